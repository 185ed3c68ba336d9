"""Rows as programs give them become columns."""

from __future__ import annotations

import json
import math
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.api import encode
from millpond.engine.admission.admit import Admission, AdmittedRows, admit
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


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb"])
def test_text_that_cannot_be_written_is_kept_aside(value: Any) -> None:
    table = from_rows([{"a": 1, "s": value}, {"a": 2, "s": "good"}])
    assert table["s"].to_pylist() == [None, "good"]
    assert table[CORRUPT].to_pylist() == [ascii(value), None]


@pytest.mark.parametrize("rows", [None, 5, "x", {"a": 1}, [1], [None], [[1]]])
def test_what_is_no_rows_is_refused(rows: Any) -> None:
    with pytest.raises(MillpondError, match="DATA-501"):
        from_rows(rows)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("BLOB", b"\x00\xff"),
        ("BLOB", rb"\x41"),
        ("BLOB", b""),
        ("BLOB[]", [b"\x00\xff", rb"\x41", b"x", b"", None]),
        ("DECIMAL(38,10)[]", [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.5")]),
        ("STRUCT(p DECIMAL(38,0), b BLOB)", {"p": Decimal("9" * 38), "b": b"\xfe"}),
        ("STRUCT(l DECIMAL(20,2)[])", {"l": [Decimal("1e5"), Decimal("0.10"), None]}),
        ("DOUBLE[]", [0.1, math.inf, 2.5]),
        ("VARCHAR[]", ["é", "\\x41", "\x00"]),
        ("DATE[]", [date(1, 1, 1)]),
    ],
)
def test_values_of_python_are_admitted_as_they_are(type: str, value: Any) -> None:
    schema = Schema((Field("i", "INTEGER"), Field("v", type)))
    rows = from_rows([{"i": 1, "v": value}, {"i": 2, "v": None}])
    admitted = admit(rows, Admission(schema, None, 0, 0))
    assert [x["v"] for x in admitted.elements.to_pylist()] == [value, None]


def test_a_decimal_inside_of_json_is_a_number() -> None:
    [text, *_] = from_rows([{"v": {1: Decimal("0.12345678901234567890"), "n": [math.nan]}}])["v"]
    assert text.as_py() == '{"1": 0.12345678901234567890, "n": [NaN]}'


def test_a_decimal_very_deep_inside_is_rejected_or_taken() -> None:
    deep: Any = Decimal("0.5")
    for _ in range(800):
        deep = [deep]
    [text] = from_rows([{"v": deep}])["v"]
    assert text.as_py().startswith("[[[")


BYTES = [b"a\\x41", "a\\x41", None, b"\xff\x00", bytearray(b"z"), memoryview(b"z"), np.bytes_(b"z")]


def admit_one(values: list[Any], type: str) -> AdmittedRows:
    rows = from_rows([{"i": n, "V": value} for n, value in enumerate(values)])
    schema = Schema((Field("i", "INTEGER"), Field("v", type)))
    return admit(rows, Admission(schema, None, 0, 0))


def test_bytes_beside_a_text_are_bytes_as_they_are() -> None:
    admitted = admit_one([*BYTES, "é"], "BLOB")
    given = [x["v"] for x in admitted.elements.to_pylist()]
    assert given == [b"a\\x41", b"aA", None, b"\xff\x00", b"z", b"z", b"z"]
    assert admitted.rejects["reason"].to_pylist() == ["column \"v\": 'é' is not a BLOB"]
    assert json.loads(admitted.rejects["raw"][0].as_py()) == {"i": 7, "v": "\\xC3\\xA9"}


def test_bytes_beside_other_values_are_the_text_of_these_bytes() -> None:
    admitted = admit_one([*BYTES, "é", "é".encode(), 1, 0.5, "\ud800"], "VARCHAR")
    given = [x["v"] for x in admitted.elements.to_pylist()]
    assert given == ["a\\x41", "a\\x41", None, "z", "z", "z", "é", "é", "1", "0.5"]
    assert admitted.rejects["reason"].to_pylist() == [
        'column "v": its bytes are not UTF-8',
        "malformed row: it does not fit the declared columns",
    ]
    numbers = admit_one([b"7", 8, "9", 10.0, b"x"], "INTEGER")
    assert [x["v"] for x in numbers.elements.to_pylist()] == [7, 8, 9, 10]
    assert numbers.rejects["reason"].to_pylist() == ["column \"v\": 'x' is not an INTEGER"]


def test_bytes_are_the_same_through_a_client() -> None:
    rows = [{"v": value} for value in BYTES]
    schema = Schema((Field("v", "BLOB"),))
    sent = from_text(encode.table_arrow(from_rows(rows)), "arrow", schema)
    judge = Admission(schema, None, 0, 0)
    assert admit(sent, judge).elements.equals(admit(from_rows(rows), judge).elements)
