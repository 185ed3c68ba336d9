"""Values as JSON: what JSON has no value for is text, and nothing is rounded."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest

from millpond.service.json_values import (
    change_objects,
    dumps,
    is_whole,
    json_rows,
    to_json_value,
    with_instant,
)
from millpond.service.results import Changes


@pytest.mark.parametrize(
    ("arrow", "value", "written"),
    [
        (pa.float64(), float("nan"), "NaN"),
        (pa.float64(), float("-inf"), "-Infinity"),
        (pa.float32(), 0.1, 0.1),
        (pa.decimal128(38, 0), Decimal(2**70), 2**70),
        (pa.decimal128(10, 2), Decimal("1.10"), "1.10"),
        (pa.timestamp("us"), datetime(2026, 3, 1), "2026-03-01T00:00:00.000000"),
        (pa.timestamp("us", "UTC"), datetime(2026, 3, 1), "2026-03-01T00:00:00.000000+00:00"),
        (pa.binary(), b"\xff", "/w=="),
        (pa.int64(), None, None),
    ],
)
def test_a_value_of_a_column(arrow: pa.DataType, value: Any, written: Any) -> None:
    assert json_rows(pa.table({"c": pa.array([value], arrow)})) == [[written]]


def test_integers_of_any_length_and_halves_of_characters_are_written() -> None:
    assert dumps({"a": 2**70}) == b'{"a":1180591620717411303424}'
    assert dumps({"a": "\ud83d"}) == b'{"a":"\\ud83d"}'
    assert is_whole(pa.decimal128(38, 0))
    assert not is_whole(pa.decimal128(38, 2))
    assert to_json_value({1: (Decimal("0E-10"),)}) == {"1": ["0.0000000000"]}
    assert with_instant({"at": 0}, "at") == {"at": "1970-01-01T00:00:00.000000"}


def test_a_change_is_one_object() -> None:
    table = pa.table(
        {
            "cursor": pa.array([4], pa.int64()),
            "timestamp": pa.array([1_000_000], pa.int64()),
            "change": pa.array(["+"]),
            "v": pa.array([7], pa.int64()),
        }
    )
    (change,) = change_objects(Changes(table, "q", "3f2a9c.17.4", 4, 0))
    assert orjson.loads(dumps(change)) == {
        "cursor": "3f2a9c.17.4",
        "timestamp": "1970-01-01T00:00:01.000000",
        "change": "+",
        "row": {"v": 7},
        "exact": True,
    }
