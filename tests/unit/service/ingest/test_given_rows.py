"""Rows as programs give them become columns."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.admission.given_rows import CORRUPT
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.service.ingest.given_rows import from_rows
from millpond.service.ingest.row_formats import from_text

SCHEMA = Schema((Field("a", "INTEGER"), Field("s", "VARCHAR")))


def test_keys_are_names_in_any_case() -> None:
    table = from_rows([{"a": 1}, {"A": 2, "s": "x"}])
    assert table.to_pydict() == {"a": [1, 2], "s": [None, "x"]}


@pytest.mark.parametrize(("text", "format"), [('{"a": "1"}\r\n', "ndjson"), ("a\r\n1\r\n", "csv")])
def test_a_byte_order_mark_is_no_part_of_the_first_line(text: str, format: str) -> None:
    assert from_text(text.encode("utf-8-sig"), format, SCHEMA)["a"].to_pylist() == ["1"]


@pytest.mark.parametrize("rows", [[{}], [{}, {}], [{"unknown": 1}]])
def test_a_row_without_columns_is_a_row(rows: list[dict[str, Any]]) -> None:
    assert from_rows(rows).num_rows == len(rows)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None], [1, None]),
        ([2**60 + 1, 0.5], [str(2**60 + 1), "0.5"]),
        ([2, True], ["2", "true"]),
        ([2**70], [str(2**70)]),
        ([10**5000], ["1" + "0" * 5000]),
        ([{"k": [1, "x"]}, "y"], ['{"k": [1, "x"]}', "y"]),
        ([{"k": 1}], ['{"k": 1}']),
        ([[1, 2]], ["[1, 2]"]),
        ([Decimal("1.10"), Decimal("2")], ["1.10", "2"]),
        ([b"x", "y"], ["x", "y"]),
        ([np.int64(3), 4], ["3", "4"]),
        ([uuid.UUID(int=1)], [str(uuid.UUID(int=1))]),
        ([np.datetime64("2020-01-01")], ["2020-01-01"]),
        ([date(2020, 1, 1), "x"], ["2020-01-01", "x"]),
    ],
)
def test_a_value_means_the_same_whatever_stands_beside_it(
    values: list[Any], expected: list[Any]
) -> None:
    assert from_rows([{"x": value} for value in values])["x"].to_pylist() == expected


def test_instants_with_and_without_a_zone_are_in_utc() -> None:
    rows = [{"x": datetime(2020, 1, 1)}, {"x": datetime(2020, 1, 1, tzinfo=UTC)}]
    stamps = from_rows(rows)["x"].cast(pa.timestamp("us")).to_pylist()
    assert stamps == [datetime(2020, 1, 1)] * 2


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb", b"\xff"])
def test_text_that_cannot_be_written_is_kept_aside(value: Any) -> None:
    table = from_rows([{"a": 1, "s": value}, {"a": 2, "s": "good"}])
    assert table["s"].to_pylist() == [None, "good"]
    assert table[CORRUPT].to_pylist() == [ascii(value), None]


@pytest.mark.parametrize("rows", [None, 5, "x", {"a": 1}, [1], [None], [[1]]])
def test_what_is_no_rows_is_refused(rows: Any) -> None:
    with pytest.raises(MillpondError, match="DATA-501"):
        from_rows(rows)
