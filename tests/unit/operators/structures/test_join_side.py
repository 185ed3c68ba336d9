"""A side of a join gives its pairs in parts: the same pairs, and never many more at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.model.time import END
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.structures.join_side import Side

TYPES = [pa.int64()]


def delta(at: list[int], until: list[int]) -> Delta:
    rows = pa.RecordBatch.from_arrays(
        [pa.array(range(len(at)), pa.int64())], schema=positional_schema(TYPES)
    )
    stamps = np.array(at, np.int64), np.array(until, np.int64)
    return Delta(rows, *stamps, np.ones(len(at), np.int64))


@pytest.fixture
def side() -> Side:
    """100 rows of key 0, of which every second has left, and one of key 1."""
    side = Side(positional_schema(TYPES))
    until = [5 if place % 2 else END for place in range(100)]
    side.build(delta([1] * 101, [*until, END]), np.array([0] * 100 + [1]), 2)
    return side


@pytest.mark.parametrize("most", [1, 49, 50, 51, 120, 10_000])
def test_parts_are_the_pairs_of_a_whole_probe(side: Side, most: int) -> None:
    probing = delta([10, 10, 3, 10, 10], [END] * 5)
    numbers = np.array([0, 1, 0, -1, 0])
    whole = side.probe(probing, numbers)
    assert len(whole[0]) == 50 + 1 + 100 + 50
    parts = list(side.probe_in_parts(probing, numbers, most))
    for place in (0, 1):
        assert np.concatenate([part[place] for part in parts]).tolist() == whole[place].tolist()
    assert all(len(part[0]) < most + 100 for part in parts), "most, and the pairs of one more row"
    assert len(parts) > 1 or most > 150


def test_nothing_probes_for_nothing(side: Side) -> None:
    probing, held = side.probe(delta([], []), np.empty(0, np.int64))
    assert (len(probing), len(held)) == (0, 0)


def test_different_zeros_stay_different_rows() -> None:
    """What reads the pairs can tell them apart, by a cast to a text."""
    schema = positional_schema([pa.float64()])
    side = Side(schema)
    rows = pa.RecordBatch.from_arrays([pa.array([0.0, -0.0, 7.0, 7.0])], schema=schema)
    stamps = np.array([1, 2, 3, 4]), np.array([END] * 4)
    side.build(Delta(rows, *stamps, np.array([1, 1, 1, -1])), np.zeros(4, np.int64), 1)
    side.compact(5)
    left = side.rows.pick(np.arange(len(side))).column(0)
    assert [str(value) for value in left.to_pylist()] == ["0.0", "-0.0"]
    assert side.weight[:2].tolist() == [1, 1]


@pytest.mark.parametrize("most", [1, 3, 1_000])
@pytest.mark.parametrize("late", [False, True], ids=["in order", "late"])
def test_rows_in_windows_are_found_without_their_ends(most: int, late: bool) -> None:
    """Pairs of windows are those of rows that leave so long after they came."""
    side = Side(positional_schema(TYPES))
    stamps = [*range(0, 60, 3), *([1, 2] if late else [])]
    numbers = np.arange(len(stamps)) % 2
    side.build(delta(stamps[:20], [END] * 20), numbers[:20], 2)
    side.build(delta(stamps[20:], [END] * len(stamps[20:])), numbers[20:], 2)
    probing = [10, 20, 30, 40, 58]
    own = np.array([0, 1, 0, 1, 7])
    for length, held_length in ((1, 1), (5, 9), (100, 4), (4, END)):
        for before in (0, 7, len(stamps)):
            new = delta(probing, [at + length for at in probing])
            windows = (length, held_length)
            parts = list(side.probe_windows_in_parts(new, own, windows, before, most))
            found = {
                (a, b) for part in parts for a, b in zip(*map(np.ndarray.tolist, part), strict=True)
            }
            assert sum(len(part[0]) for part in parts) == len(found)
            assert found == {
                (i, j)
                for i, at in enumerate(probing)
                for j, other in enumerate(stamps[:before])
                if own[i] == numbers[j] and max(at, other) < min(at + length, other + held_length)
            }
