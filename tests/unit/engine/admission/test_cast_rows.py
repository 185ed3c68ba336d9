"""Casting the columns of rows: how they are found and decoded, and the first reason of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.admission.cast_rows import FirstReasons, cast_columns, conform, format_value
from millpond.engine.admission.given_rows import CORRUPT
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema

SCHEMA = Schema((Field("n", "INTEGER"), Field("s", "VARCHAR")))


def test_the_first_reason_against_a_row_counts() -> None:
    reasons = FirstReasons(3)
    reasons.mark(np.array([True, False, False]), lambda row: f"first of {row}")
    reasons.mark(np.array([True, True, False]), lambda row: f"second of {row}")
    assert reasons.texts == {0: "first of 0", 1: "second of 1"}
    assert reasons.bad.tolist() == [True, True, False]


def test_a_column_is_found_by_its_very_name_before_others() -> None:
    reasons = FirstReasons(1)
    rows = conform(pa.table({"N": [1], "n": [2], "other": [3]}), SCHEMA, reasons)
    assert rows.column_names == ["n", "s"]
    assert rows["n"].to_pylist() == [2]
    assert rows["s"].to_pylist() == [None]
    assert conform(pa.table({"N": [1]}), SCHEMA, reasons)["n"].to_pylist() == [1]


def test_a_column_that_is_there_twice_is_refused() -> None:
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["n", "n"])
    with pytest.raises(MillpondError, match='DATA-501: the column "n" is there twice'):
        conform(rows, SCHEMA, FirstReasons(1))


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["7", "x"]).dictionary_encode(),
        pa.array(["7", "x"], pa.string_view()),
        pa.array([b"7", b"x"]),
        pa.array([b"7", b"x"], pa.binary_view()),
        pa.RunEndEncodedArray.from_arrays([1, 2], pa.array(["7", "x"])),
    ],
)
def test_encoded_text_is_read_and_cast(column: pa.Array) -> None:
    reasons = FirstReasons(2)
    rows = conform(pa.table({"n": column}), SCHEMA, reasons)
    cast = cast_columns(rows, SCHEMA, reasons)
    assert cast["n"].to_pylist() == [7, None]
    assert cast["n"].type == pa.int32()
    assert reasons.texts == {1: "column \"n\": 'x' is not an INTEGER"}


def test_bytes_that_are_no_text_are_shown_with_replacements() -> None:
    reasons = FirstReasons(2)
    rows = conform(pa.table({"s": [b"ok", b"\xff"]}), SCHEMA, reasons)
    assert rows["s"].to_pylist() == ["ok", "\ufffd"]
    assert reasons.texts == {1: 'column "s": its bytes are not UTF-8'}


def test_a_line_that_does_not_split_is_malformed() -> None:
    reasons = FirstReasons(2)
    lines = pa.array([None, b"1;\xff"]).view(pa.string())
    rows = conform(pa.table({"n": [1, None], CORRUPT: lines}), SCHEMA, reasons)
    assert rows[CORRUPT].to_pylist() == [None, "1;\ufffd"]
    cast_columns(rows, SCHEMA, reasons)
    assert list(reasons.texts) == [1]


def test_an_instant_beyond_the_representable_is_no_value() -> None:
    schema = Schema((Field("t", "TIMESTAMP"),))
    reasons = FirstReasons(2)
    rows = conform(pa.table({"t": pa.array([0, 2**62], pa.timestamp("s"))}), schema, reasons)
    cast = cast_columns(rows, schema, reasons)["t"]
    assert cast.cast(pa.int64()).to_pylist() == [0, None]
    assert list(reasons.texts) == [1]


def test_long_values_are_cut_in_messages() -> None:
    assert format_value(pa.scalar("x" * 100)) == "'" + "x" * 56 + "…'"
    assert format_value(pa.scalar(5)) == "5"
