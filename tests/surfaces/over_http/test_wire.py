"""What values look like on the wire, and that they come back as they were."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.api import decode, encode
from millpond.errors import MillpondError, Span
from millpond.model.loss import Bounds, Cause, Loss
from millpond.model.time import BEGINNING, END
from millpond.service import json_values
from millpond.service.results import Answer, StatementResult

LOSS = (
    Loss("s", Cause.EXPIRED, None, 3),
    Loss("s", Cause.SHED, 4, END, 12, 12),
    Loss("s", Cause.SAMPLED, 4, END, kept=2.5),
    Loss("s", Cause.SHORTENED, None, 3),
)
BOUNDS = Bounds(0.95, {"bool": [(1.0, 2.5), None, (-math.inf, 0.0)]})
MOMENT = datetime(2026, 3, 1, 12, 0, 0, 500)

COLUMNS = {
    "bool": pa.array([True, None, False]),
    "int": pa.array([2**63 - 1, None, -(2**63)]),
    "ints": pa.array([1, 2, 3], pa.int32()),
    "float": pa.array([1.0, None, 0.1]),
    "floats": pa.array([1.0, 2.5, 1e300]),
    "odd": pa.array([math.inf, None, -math.inf]),
    "odds": pa.array([math.inf, 2.5, -math.inf]),
    "text": pa.array(["a", None, '"\\\n\u2028é']),
    "ts": pa.array([MOMENT, None, datetime(1, 1, 1)], pa.timestamp("us")),
    "tss": pa.array([MOMENT, MOMENT, datetime(9999, 12, 31)], pa.timestamp("us")),
    "day": pa.array([date(2026, 3, 1), None, date(1, 1, 1)]),
    "price": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(10, 2)),
    "least": pa.array([Decimal("0E-10"), None, Decimal("-1E-10")], pa.decimal128(12, 10)),
    "narrow": pa.array([0.1, None, math.inf], pa.float32()),
    "whole": pa.array([Decimal(10**30), None, Decimal(-1)], pa.decimal128(38, 0)),
    "list": pa.array([[1, 2], None, []]),
    "bytes": pa.array([b"\x00\xff", None, b""]),
}
TABLE = pa.table(COLUMNS)


def through_json(table):
    answer = Answer(table, 1, final=True)
    return decode.answer(json.loads(encode.answer_json(answer))).table


def test_values():
    rows = json_values.json_rows(TABLE)
    assert rows[0] == [
        True,
        2**63 - 1,
        1,
        1.0,
        1.0,
        "Infinity",
        "Infinity",
        "a",
        "2026-03-01T12:00:00.000500",
        "2026-03-01T12:00:00.000500",
        "2026-03-01",
        "1.50",
        "0.0000000000",
        0.1,
        10**30,
        [1, 2],
        "AP8=",
    ]
    assert rows[2][5:7] == ["-Infinity", "-Infinity"]
    assert rows[2][12:14] == ["-0.0000000001", "Infinity"]


def test_a_table_comes_back():
    back = through_json(TABLE)
    assert back.to_pydict() == TABLE.to_pydict()
    assert back.schema == TABLE.schema


def test_not_a_number():
    [[value]] = json_values.json_rows(pa.table({"x": [math.nan]}))
    assert value == "NaN"
    assert math.isnan(through_json(pa.table({"x": [math.nan]})).column("x")[0].as_py())


def test_an_empty_table_keeps_its_types():
    assert through_json(TABLE.slice(0, 0)).schema.field("price").type == pa.decimal128(10, 2)


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1) | st.none(),
            st.floats(allow_nan=False) | st.none(),
            st.text() | st.none(),
            st.datetimes() | st.none(),
        )
    )
)
def test_any_rows_come_back(rows):
    types = [pa.int64(), pa.float64(), pa.string(), pa.timestamp("us")]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    table = pa.table(columns, names=["i", "f", "s", "t"])
    assert through_json(table).to_pydict() == table.to_pydict()
    answer = Answer(table, 5, final=False, loss=LOSS, bounds=BOUNDS, query="q", epoch=2)
    back = decode.arrow_answer(encode.answer_arrow(answer))
    assert back.table.equals(table)
    assert (back.as_of, back.loss, back.bounds) == (5, LOSS, BOUNDS)
    assert (back.query, back.epoch) == ("q", 2)


@pytest.mark.parametrize("at", [0, -1, BEGINNING, END, BEGINNING + 1, 1_772_366_400_000_000, None])
def test_an_instant_comes_back(at):
    assert decode.instant(json_values.instant_text(at)) == at


def test_plain_values():
    zoned = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert json_values.to_json_value({1: (zoned, time(1, 2), timedelta(1), np.int64(3), {2})}) == {
        "1": ["2026-03-01T12:00:00.000000+00:00", "01:02:00", "1 day, 0:00:00", 3, [2]]
    }
    assert json_values.to_json_value([pa.MonthDayNano([0, 3, 10**9])]) == ["3 days 00:00:01"]


def test_a_chunked_column():
    column = pa.chunked_array([pa.array([MOMENT], pa.timestamp("us"))] * 2)
    assert json_values.json_columns(pa.table({"ts": column})) == [
        ["2026-03-01T12:00:00.000500"] * 2
    ]


@pytest.mark.parametrize(
    "result",
    [
        StatementResult("create query", "q", message="query q registered"),
        StatementResult("explain", text="plan"),
        StatementResult("show queries", table=pa.table({"name": ["a"]})),
        StatementResult("invoke", "q", answer=Answer(TABLE, 5, final=True, query="q")),
    ],
)
def test_a_result_comes_back(result):
    assert decode.result(json.loads(encode.results_ndjson([result]))) == result


def test_an_error_comes_back():
    text = "SELECT *\nFROM fligths"
    error = MillpondError("CQL-201", "no such", detail="d", hint="h", text=text, span=Span(14, 21))
    back = decode.error(400, json.dumps(error.to_json()).encode(), text)
    assert back.render() == error.render()
    assert (back.line, back.column) == (2, 6)


def test_an_error_that_is_not_millponds():
    assert decode.error(502, b"<html>Bad gateway").code == "SERVE-705"
    assert decode.error(418, b'{"error": {"code": "X-1", "message": "m"}}').code == "INTERNAL-901"
