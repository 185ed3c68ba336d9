"""Admission: what becomes an element, what a reject, and that nothing is neither."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.admission.admit import Admission, AdmittedRows, admit
from millpond.engine.admission.given_rows import CORRUPT, MOST_ROW_BYTES
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.model.time import BEGINNING

SECOND = 1_000_000
SCHEMA = Schema((Field("ts", "TIMESTAMP"), Field("v", "INTEGER"), Field("s", "VARCHAR")))


def judged(
    rows: dict[str, Any] | pa.Table, floor: int = BEGINNING, schema: Schema = SCHEMA
) -> AdmittedRows:
    by = "ts" if schema.find("ts") else None
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    return admit(table, Admission(schema, by, floor, 77 * SECOND))


def one(type_: str, values: pa.Array) -> AdmittedRows:
    """A column of a declared type, on system time."""
    return judged({"x": values}, schema=Schema((Field("x", type_),)))


def test_every_row_is_an_element_or_a_reject_with_its_place_and_reason() -> None:
    admitted = judged(
        {
            "TS": [
                "1970-01-01 00:00:05",
                None,
                "soon",
                "1970-01-01 00:00:03",
                "1970-01-01 00:00:04",
            ],
            "v": ["1", "2", "3", "4", "five"],
        },
        floor=4 * SECOND,
    )
    assert admitted.elements.to_pydict() == {
        "ts": [datetime(1970, 1, 1, 0, 0, 5)],
        "v": [1],
        "s": [None],
        "__ts": [5 * SECOND],
    }
    assert admitted.reject_rows.tolist() == [1, 2, 3, 4]
    assert admitted.rejects["reason"].to_pylist() == [
        "no timestamp",
        "column \"ts\": 'soon' is not a TIMESTAMP",
        "late: its timestamp is before the heartbeat",
        "column \"v\": 'five' is not an INTEGER",
    ]
    assert admitted.rejects["raw"][1].as_py() == '{"ts":"soon","v":"3","s":null}'


def test_on_system_time_arrival_is_the_timestamp_and_nothing_is_late() -> None:
    admitted = one("INTEGER", pa.array([1, 2]))
    assert admitted.elements["__ts"].to_pylist() == [77 * SECOND] * 2
    assert admitted.rejects.num_rows == 0


@pytest.mark.parametrize(
    "values",
    [
        pa.array([" 5 ", "7"]),
        pa.array([" 5 ", "7"], pa.large_string()),
        pa.array([" 5 ", "7"], pa.string_view()),
        pa.array(["5", "7"]).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays([1, 2], ["5", "7"]),
        pa.array([5, 7], pa.uint64()),
        pa.array([5.0, 7.0]),
        pa.array(np.array([5, 7], np.float16)),
        pa.array([Decimal("5.00"), Decimal("7")], pa.decimal128(20, 2)),
        pa.array([Decimal("5.00"), Decimal("7")], pa.decimal256(60, 2)),
    ],
    ids=lambda values: str(values.type),
)
def test_whatever_type_a_number_comes_in(values: pa.Array) -> None:
    assert one("INTEGER", values).elements["x"].to_pylist() == [5, 7]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("BIGINT", pa.array([2**64 - 1], pa.uint64())),
        ("INTEGER", pa.array([float("nan")])),
        ("INTEGER", pa.array([float("inf")])),
        ("TINYINT", pa.array([128])),
        ("DECIMAL(4,2)", pa.array([100.5])),
        ("BOOLEAN", pa.array([b"perhaps"])),
        ("DATE", pa.array([[1, 2]])),
        ("INTEGER", pa.array([{"a": 1}])),
        ("INTEGER", pa.array([timedelta(days=1)])),
        ("INTEGER", pa.array([2**31 - 1], pa.date32())),
        ("BOOLEAN", pa.array([2**62], pa.timestamp("us"))),
        ("TIMESTAMP", pa.array([10**15], pa.timestamp("s"))),
        ("TIMESTAMP", pa.array([-(2**62)], pa.timestamp("ms"))),
        ("TIMESTAMP", pa.array([-(2**63)], pa.timestamp("us"))),
        ("DATE", pa.array([2**62], pa.timestamp("ms"))),
        ("VARCHAR", pa.array([-(2**62)], pa.timestamp("ms"))),
    ],
    ids=lambda x: x if isinstance(x, str) else str(x.type),
)
def test_a_value_that_does_not_fit_is_rejected_and_shown(type_: str, value: pa.Array) -> None:
    admitted = one(type_, pa.concat_arrays([pa.nulls(1, value.type), value]))
    assert admitted.elements["x"].to_pylist() == [None]
    (reason,) = admitted.rejects["reason"].to_pylist()
    assert reason.startswith('column "x": ')
    assert reason.endswith((f" is not a {type_}", f" is not an {type_}"))
    assert admitted.rejects["raw"][0].as_py().startswith('{"x":')


def test_what_does_not_fit_is_shown_as_people_write_it() -> None:
    values = {
        "2026-03-01": pa.array([date(2026, 3, 1)]),
        "2026-03-01 12:00:00": pa.array([datetime(2026, 3, 1, 12)]),
        "999.50": pa.array([Decimal("999.50")]),
        "'999.50'": pa.array(["999.50"]),
    }
    for shown, value in values.items():
        (reason,) = one("TINYINT", value).rejects["reason"].to_pylist()
        assert reason == f'column "x": {shown} is not a TINYINT'


@pytest.mark.parametrize(
    "stamps",
    [
        pa.array([5], pa.timestamp("s")),
        pa.array([5_000], pa.timestamp("ms")),
        pa.array([5_000_000_999], pa.timestamp("ns")),
        pa.array([datetime(1970, 1, 1, 2, 0, 5, tzinfo=timezone(timedelta(hours=2)))]),
        pa.array(["1970-01-01T00:00:05Z"]),
    ],
    ids=lambda stamps: str(stamps.type),
)
def test_whatever_a_timestamp_comes_in(stamps: pa.Array) -> None:
    assert judged({"ts": stamps}).elements["__ts"].to_pylist() == [5 * SECOND]


@pytest.mark.parametrize("text", ["infinity", "-infinity", "200000-01-01"])
def test_an_instant_nobody_can_reach_is_no_timestamp(text: str) -> None:
    (reason,) = judged({"ts": [text]}).rejects["reason"].to_pylist()
    assert reason == "timestamp out of range"


@pytest.mark.parametrize("text", ["5000000-01-01", "infinity", "-infinity"])
def test_a_day_nobody_can_reach_is_no_timestamp(text: str) -> None:
    admitted = judged({"ts": [text, "1970-01-02"]}, schema=Schema((Field("ts", "DATE"),)))
    assert admitted.elements["__ts"].to_pylist() == [86_400 * SECOND]
    assert admitted.rejects["reason"].to_pylist() == ["timestamp out of range"]


def test_text_that_is_not_utf_8_is_rejected() -> None:
    offsets, data = np.array([0, 2, 3], np.int32), b"\xff\xfeb"
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    text = pa.Array.from_buffers(pa.string(), 2, buffers)
    admitted = judged({"ts": [datetime(2020, 1, 1)] * 2, "s": text})
    assert admitted.elements["s"].to_pylist() == ["b"]
    assert admitted.rejects["reason"].to_pylist() == ['column "s": its bytes are not UTF-8']


def test_a_column_given_twice_is_refused() -> None:
    stamps = pa.array([datetime(2020, 1, 1)])
    with pytest.raises(MillpondError, match="DATA-501"):
        judged(pa.Table.from_arrays([stamps, stamps], names=["ts", "ts"]))
    twice = pa.Table.from_arrays([stamps, stamps, stamps], names=["ts", "x", "x"])
    assert judged(twice).elements.num_rows == 1  # columns nobody declared are passed over
    cases = pa.Table.from_arrays([pa.array(["bad"]), stamps], names=["TS", "ts"])
    assert judged(cases).elements.num_rows == 1  # the exact name comes first


def test_what_a_reader_could_not_split_is_kept_as_it_was() -> None:
    rows = {"ts": pa.array([None, datetime(2020, 1, 1)]), CORRUPT: pa.array(["a;b", None])}
    admitted = judged(rows)
    assert admitted.elements.num_rows == 1
    assert admitted.rejects.to_pylist() == [
        {"reason": "malformed row: it does not fit the declared columns", "raw": "a;b"}
    ]


def test_what_a_reader_could_not_split_may_be_no_text() -> None:
    corrupt = pa.array([b"a;\xff", None]).cast(pa.string(), safe=False)
    admitted = judged({"ts": pa.array([None, datetime(2020, 1, 1)]), CORRUPT: corrupt})
    assert admitted.rejects["raw"].to_pylist() == ["a;\ufffd"]


def test_no_rows_are_no_rows() -> None:
    assert judged({}).elements.num_rows == 0
    assert judged({"ts": pa.array([], pa.timestamp("us"))}).elements.schema.names[-1] == "__ts"


def test_zoned_instants_are_read_in_utc_wherever_the_machine_is() -> None:
    script = """
import time, pyarrow as pa
from datetime import datetime, UTC
from millpond.engine.admission.admit import Admission, admit
from millpond.engine.scalars.residual_query import Residual
from millpond.model.schema import Field, Schema
schema = Schema((Field("d", "DATE"), Field("s", "VARCHAR")))
x = pa.array([datetime(2020, 1, 1, 2, tzinfo=UTC)])
print(admit(pa.table({"d": x, "s": x}), Admission(schema, None, 0, 0)).elements.to_pylist())
sql = "SELECT CAST(TIMESTAMPTZ '2020-01-01 02:00:00+00' AS TIMESTAMP) AS t"
print(Residual().evaluate(sql, {}).to_pylist())
"""
    shown = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for zone in ("UTC", "America/New_York")
    ]
    assert shown[0] == shown[1]
    assert "2020, 1, 1, 2, 0" in shown[0]


def test_a_zoned_instant_of_the_day_before() -> None:
    zoned = pa.array([datetime(2020, 1, 1, 23, tzinfo=UTC)], pa.timestamp("us", tz="Asia/Tokyo"))
    assert one("DATE", zoned).elements["x"].to_pylist() == [datetime(2020, 1, 1).date()]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary(3)])
def test_bytes_are_the_text_they_encode_unless_the_column_is_a_blob(type_):
    given = pa.array([b"abc", b"12\xff", b"\xc3\xa9!"], type_)
    schema = Schema((Field("s", "VARCHAR"), Field("b", "BLOB")))
    admitted = admit(pa.table({"s": given, "b": given}), Admission(schema, None, 0, 0))
    assert admitted.elements["s"].to_pylist() == ["abc", "é!"]
    assert admitted.elements["b"].to_pylist() == [b"abc", b"\xc3\xa9!"]
    assert admitted.rejects["reason"].to_pylist() == ['column "s": its bytes are not UTF-8']
    number = pa.table({"n": pa.array([b" 12", b"x12"], pa.binary())})
    cast = admit(number, Admission(Schema((Field("n", "INTEGER"),)), None, 0, 0))
    assert cast.elements["n"].to_pylist() == [12]


def test_a_row_that_is_too_large_is_a_reject_and_its_neighbours_are_not() -> None:
    schema = Schema((Field("ts", "TIMESTAMP"), Field("a", "VARCHAR"), Field("n", "BIGINT[]")))
    large, just = "x" * (MOST_ROW_BYTES + 1), "x" * (MOST_ROW_BYTES - 1000)
    texts = ["a", large, "b", just, *("c" * 100_000 for _ in range(300)), "d"]
    lists = [[1]] * (len(texts) - 1) + [list(range(MOST_ROW_BYTES // 8 + 1))]
    stamps = ["2026-01-01 00:00:00"] * len(texts)
    rows = pa.table({"ts": stamps, "a": texts, "n": lists})
    admitted = admit(rows, Admission(schema, "ts", BEGINNING, 0))
    assert admitted.reject_rows.tolist() == [1, len(texts) - 1]
    assert set(admitted.rejects["reason"].to_pylist()) == {
        f"the row has more than {MOST_ROW_BYTES:,} bytes"
    }
    assert admitted.rejects.nbytes < 1000
    assert admitted.elements["a"].to_pylist() == [*texts[:1], *texts[2:-1]]
