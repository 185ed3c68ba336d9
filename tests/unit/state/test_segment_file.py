"""Elements come back from a segment's file as they were, whichever columns it holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.state.arrow_file import open_arrow, write_arrow
from millpond.state.segment_file import encode_elements, global_seq, open_segment

INSTANT = pa.timestamp("us")


def elements(
    at: list[int], seq: list[int], when: list[int | None] | None = None, kind: pa.DataType = INSTANT
) -> pa.Table:
    columns = {"v": pa.array(range(len(at)), pa.int32())}
    if when is not None:
        columns["when"] = pa.array(when, kind)
    columns["__ts"] = pa.array(at, pa.int64())
    columns["__seq"] = pa.array(seq, pa.int64())
    return pa.table(columns)


def written(directory: Path, table: pa.Table) -> tuple[list[str], pa.Table]:
    """(the columns of the file, what comes back)."""
    number = len(list(directory.iterdir()))
    file = write_arrow(directory / f"{number}.arrow", encode_elements(table))
    return open_arrow(file.path).column_names, open_segment(file.path, file.checksum)


@pytest.mark.parametrize(
    ("table", "held"),
    [
        (elements([7, 7, 9], [0, 1, 2]), ["v", "__ts"]),
        (elements([7, 7, 9], [1, 0, 2]), ["v", "__ts", "__seq"]),
        (elements([7, 7, 9], [1, 2, 3]), ["v", "__ts", "__seq"]),
        (elements([7, 8], [0, 1], [7, 8]), ["v", "when"]),
        (elements([7, 8], [1, 0], [7, 8]), ["v", "when", "__seq"]),
        (elements([7, 8], [0, 1], [7, 8], pa.timestamp("us", "UTC")), ["v", "when"]),
        (elements([7, 8], [0, 1], [7, 8], pa.int64()), ["v", "when", "__ts"]),
        (elements([7, 8], [0, 1], [7, 9]), ["v", "when", "__ts"]),
        (elements([7, 8], [0, 1], [7, None]), ["v", "when", "__ts"]),
        (elements([], []), ["v", "__ts"]),
        (elements([], [], []), ["v", "when"]),
    ],
)
def test_a_column_that_others_tell_is_not_written(
    tmp_path: Path, table: pa.Table, held: list[str]
) -> None:
    columns, again = written(tmp_path, table)
    assert columns == held
    assert again.equals(table, check_metadata=True)


def test_more_rows_than_any_segment_before(tmp_path: Path) -> None:
    count = 70_001
    table = elements(list(range(count)), list(range(count)))
    columns, again = written(tmp_path, table)
    assert "__seq" not in columns
    assert np.array_equal(again["__seq"].to_numpy(), np.arange(count))
    assert written(tmp_path, table.slice(0, 2))[1]["__seq"].to_pylist() == [0, 1]


def test_columns_of_several_pieces(tmp_path: Path) -> None:
    table = pa.concat_tables([elements([1], [0], [1]), elements([2, 3], [1, 2], [2, 3])])
    columns, again = written(tmp_path, table)
    assert columns == ["v", "when"]
    assert again.equals(table)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=5),
    st.randoms(use_true_random=False),
)
def test_any_elements_come_back(tmp_path_factory, rows, random) -> None:  # type: ignore[no-untyped-def]
    at, when = [row[0] for row in rows], [row[1] for row in rows]
    seq = list(range(len(rows)))
    if random.random() < 0.5:
        random.shuffle(seq)
    table = elements(at, seq, when)
    assert written(tmp_path_factory.mktemp("any"), table)[1].equals(table)


def test_arrival_numbers_of_several_runs():
    local = np.array([5, 0, 2, 1, 3], dtype=np.int64)
    runs = ((0, 100), (2, 40), (5, 7))
    assert global_seq(local, runs).tolist() == [7, 100, 40, 101, 41]
    assert global_seq(local, ((0, 0),)) is local
    assert global_seq(local, ((0, 9),)).tolist() == [14, 9, 11, 10, 12]
