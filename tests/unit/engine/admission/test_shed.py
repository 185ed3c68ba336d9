"""Which elements are shed, and how they are counted."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.admission.admit import AdmittedRows
from millpond.engine.admission.shed import Shedding, count_seconds, shed_table


def kept_of(shedding: Shedding, seed: int, places: np.ndarray, chunks: np.ndarray) -> set[int]:
    """The places of the elements that are kept."""
    rows = pa.table({"place": places, "__ts": places})
    admitted = AdmittedRows(rows, rows.slice(0, 0), np.empty(0, np.int64))
    found = shedding.shed(admitted, seed, places, chunks)
    shed = 0 if found.shed is None else sum(found.shed["elements"].to_pylist())
    assert found.elements.num_rows + shed == len(places)
    return set(found.elements["place"].to_pylist())


def test_about_the_share_is_shed_and_a_greater_share_sheds_more() -> None:
    places = np.arange(100_000)
    kept = [kept_of(Shedding(share), 7, places, places) for share in (0.0, 0.5, 0.9, 1.0)]
    assert [round(len(found) / 100_000, 1) for found in kept] == [1.0, 0.5, 0.1, 0.0]
    assert all(less >= more for less, more in itertools.pairwise(kept))


def test_what_is_shed_does_not_depend_on_the_cut() -> None:
    places = np.arange(10, 1010)
    whole = kept_of(Shedding(0.5), 3, places, places)
    parts = [kept_of(Shedding(0.5), 3, part, part) for part in np.split(places, 10)]
    assert whole == set().union(*parts)
    assert whole != kept_of(Shedding(0.5), 4, places, places)


def test_chunks_are_shed_whole() -> None:
    places = np.arange(20_000)
    chunks = places // 10
    for share, least, most in ((0.0, 2000, 2000), (0.5, 900, 1100), (1.0, 0, 0)):
        kept = kept_of(Shedding(share, by_chunk=True), 1, places, chunks)
        whole = {place // 10 for place in kept}
        assert least <= len(whole) <= most
        assert len(kept) == 10 * len(whole)


@given(st.lists(st.integers(-(10**15), 10**15)))
def test_every_element_is_counted_in_its_second(stamps: list[int]) -> None:
    seconds, counts = count_seconds(np.array(stamps, np.int64))
    assert counts.sum() == len(stamps)
    expected = {stamp // 1_000_000 * 1_000_000 for stamp in stamps}
    assert seconds.tolist() == sorted(expected)
    assert shed_table(np.array(stamps, np.int64), "1-3")["elements"].to_pylist() == counts.tolist()
