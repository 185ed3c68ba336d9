"""Labels keep the order of what they are given to."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millpond.synopses.ordered_labels import OrderedLabels


@given(st.lists(st.lists(st.text("ab", max_size=6), max_size=30, unique=True), max_size=6))
def test_labels_are_in_the_values_order(batches) -> None:
    labels = OrderedLabels()
    for batch in batches:
        labels.insert([value for value in batch if value not in labels.labels])
        ordered = sorted(labels.labels)
        given_labels = [labels.labels[value] for value in ordered]
        assert given_labels == sorted(set(given_labels))
        assert [labels.values[label] for label in given_labels] == ordered
    kept = set(sorted(labels.labels)[::2])
    before = {value: labels.labels[value] for value in kept}
    labels.forget(kept)
    assert labels.labels == before


def test_where_there_is_no_room_all_are_given_anew_in_order() -> None:
    labels = OrderedLabels()
    told = []
    labels.on_relabel = lambda old, new: told.append((old.tolist(), new.tolist()))
    labels.insert([0.0, 1.0])
    value = 1.0
    for _ in range(100):
        value /= 2
        labels.insert([value])
    assert told
    for old, new in told:
        assert len(old) == len(new)
        assert (np.diff(old) > 0).all()
        assert (np.diff(new) > 0).all()
    ordered = [labels.labels[v] for v in sorted(labels.labels)]
    assert ordered == sorted(ordered)
