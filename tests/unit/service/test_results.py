"""What is given back: rows as Python's values, changes with cursors, one-line messages."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from millpond.service.results import (
    Answer,
    Changes,
    IngestReceipt,
    count_text,
    python_values,
    report,
)


def test_an_answer_has_rows_even_without_columns() -> None:
    answer = Answer(pa.table({"v": [1, None], "k": ["a", "b"]}), 5, final=True)
    assert answer.rows() == list(answer) == [(1, "a"), (None, "b")]
    assert (answer.columns, len(answer)) == (["v", "k"], 2)
    empty = pa.table({"v": [1, 2, 3]}).select([])
    assert Answer(empty, 5, final=True).rows() == [()] * len(Answer(empty, 5, final=True))


def test_frames_have_the_same_rows() -> None:
    answer = Answer(pa.table({"v": [1, None]}), 5, final=False)
    assert answer.to_polars().rows() == [(1,), (None,)]
    assert "not final" in repr(answer)


FAR, TEXT = 253_402_300_800_000_000, "10000-01-01 00:00:00.000000"
NEAR = 1_000_000


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([NEAR, None], pa.timestamp("us"), [datetime.datetime(1970, 1, 1, 0, 0, 1), None]),
        ([FAR, None], pa.timestamp("us"), [TEXT, None]),
        ([2**31 - 2, 0], pa.date32(), [None, datetime.date(1970, 1, 1)]),
        (
            [[FAR], [], None],
            pa.list_(pa.timestamp("us")),
            [[TEXT], [], None],
        ),
        (
            [{"at": FAR, "v": 1}],
            pa.struct([("at", pa.timestamp("us")), ("v", pa.int64())]),
            [{"at": TEXT, "v": 1}],
        ),
        (
            [[("a", FAR)]],
            pa.map_(pa.string(), pa.timestamp("us")),
            [[("a", TEXT)]],
        ),
    ],
    ids=["near", "far", "far date", "in a list", "in a struct", "in a map"],
)
def test_what_python_has_no_object_for_is_its_text(
    values: list[Any], kind: pa.DataType, expected: list[Any]
) -> None:
    found = python_values(pa.chunked_array([pa.array(values, kind)]))
    for got, want in zip(found, expected, strict=True):
        if want is None and got is not None:
            assert isinstance(got, str)
            assert int(got.split("-")[0]) > 9999
        else:
            assert got == want


def changes(**columns: list[Any]) -> Changes:
    found = pa.table({"__ts": [10, 10, 20], "v": [1, 2, 1], **columns})
    return Changes.of("q", ["v"], found, "3f.1", after=7, upto=10, newest=12, as_of=9)


def test_changes_are_numbered_after_the_cursor() -> None:
    found = changes(__sign=[-1, 1, 1])
    assert found.rows() == [(8, 10, "-", 1), (9, 10, "+", 2), (10, 20, "+", 1)]
    assert next((c.cursor, c.at, c.sign, c.row) for c in found) == ("3f.1.8", 10, "-", (1,))
    assert (found.columns, found.cursor, found.newest, len(found)) == (["v"], "3f.1.10", 12, 3)


def test_elements_of_a_stream_only_come() -> None:
    assert [c.sign for c in changes()] == ["+"] * 3


def test_receipts_and_messages_are_one_line() -> None:
    assert str(IngestReceipt(3, 0)) == "3 accepted"
    assert str(IngestReceipt(0, 2)) == "0 accepted, 2 rejected ()"
    assert report("create stream", "s", "created").message == "stream s: created"
    assert report("drop query", "q", "dropped").message == "query q: dropped"
    assert report("insert", "s", "3 accepted").message == "s: 3 accepted"
    assert count_text(0, "row") == "0 rows"
