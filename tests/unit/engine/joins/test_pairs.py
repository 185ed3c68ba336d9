"""Stored pairs: every tuple once, in the zone of its oldest constituent, however it was laid."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.joins.arrangement import build
from millpond.engine.joins.keys import mix_numbers
from millpond.engine.joins.pairs import PairsReader, to_table
from millpond.engine.joins.probe import expand, probe
from millpond.engine.joins.stretched_pairs import StretchedPairs, lay_stretched, number_arrivals

_STAMPS = st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=40)


@given(_STAMPS, st.integers(0, 2**40), st.integers(-(2**62), 2**62))
def test_what_is_read_from_an_instant_on_misses_nothing(
    stamps: list[int], base: int, since: int
) -> None:
    oldest = np.array(stamps, np.int64)
    arrivals = base + np.arange(len(stamps))
    reader = PairsReader.of(to_table([arrivals, arrivals * 2], oldest))
    left, right = reader.after(since)
    assert (left * 2 == right).all()
    assert len(left) == reader.count(since) == len(set(left.tolist()))
    wanted = {int(a) for a, t in zip(arrivals, stamps, strict=True) if t >= since}
    assert wanted <= set(left.tolist())
    assert reader.count(min(stamps)) == len(stamps)


def test_numbers_too_far_apart_for_32_bits() -> None:
    arrivals = np.array([0, 2**33], np.int64)
    table = to_table([arrivals, arrivals], np.array([1, 2], np.int64))
    assert table.schema.field(0).type == pa.int64()
    assert PairsReader.of(table).after(0)[0].tolist() == [0, 2**33]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=30),
    st.integers(0, 1),
    st.booleans(),
)
def test_stretches_are_written_as_their_pairs_would_be(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]], probing: int, in_order: bool
) -> None:
    theirs = sorted(theirs, key=lambda row: row[1])
    own, other = (np.array(rows, np.int64) for rows in (ours, theirs))
    batch = build(mix_numbers(own[:, 0]), own[:, 1])
    run = build(mix_numbers(other[:, 0]), other[:, 1])
    found = probe(batch, batch.order - 9, batch.order + 9, run)
    left, right = expand(batch, found, run)
    arrivals = 100 + np.arange(len(ours))
    numbers = 500 + np.arange(len(theirs)) if in_order else 999 - np.arange(len(theirs))
    if not found.pairs:
        return
    group = StretchedPairs.of(
        found, arrivals[batch.place], own[:, 1][batch.place], run, number_arrivals(numbers)
    )
    table, low, high = lay_stretched([group], probing)
    oldest = np.minimum(own[left, 1], other[right, 1])
    assert (low, high) == (oldest.min(), oldest.max())
    sides = [arrivals[left], numbers[right]]
    expected = PairsReader.of(to_table(sides if probing == 0 else sides[::-1], oldest))
    written = PairsReader.of(table)
    for since in range(-1, 60, 7):
        pairs = [sorted(zip(*r.after(since), strict=True)) for r in (written, expected)]
        assert pairs[0] == pairs[1]
