"""Epochs, heartbeats, late and bad rows, as SEMANTICS section 1 has them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from tests.oracle.history import StreamHistory, Unfit, cast

from millpond.catalog.objects import StreamDef
from millpond.model.schema import Field, Schema
from millpond.model.time import BEGINNING, END, to_datetime

SECOND = 1_000_000
SCHEMA = Schema((Field("ts", "TIMESTAMP"), Field("v", "INTEGER")))


def history(**declared: Any) -> StreamHistory:
    return StreamHistory(StreamDef(1, "s", SCHEMA, **{"timestamp_by": "ts", **declared}))


def row(second: int, value: Any = 0) -> dict[str, Any]:
    return {"ts": to_datetime(second * SECOND), "v": value}


def test_a_stream_without_elements_promises_nothing() -> None:
    assert history().heartbeat(clock=99) == BEGINNING


def test_the_heartbeat_is_delay_behind_the_greatest_timestamp() -> None:
    stream = history(delay=3 * SECOND)
    stream.commit([row(10), row(8)], clock=0)
    assert stream.heartbeat(0) == 7 * SECOND


def test_what_is_late_is_judged_by_the_epoch_before() -> None:
    stream = history()
    assert stream.commit([row(10), row(1)], clock=0) == []
    (late,) = stream.commit([row(11), row(9)], clock=0)
    assert late.row == 1
    assert late.reason == "late: its timestamp is before the heartbeat"
    assert [e.at // SECOND for e in stream.elements] == [10, 1, 11]


def test_a_reject_is_an_element_of_the_rejects_at_the_clock() -> None:
    stream = history()
    stream.commit([{"ts": None, "v": 1}, row(1, "x")], clock=5 * SECOND)
    assert [e.row["rejected_at"] for e in stream.rejects] == [datetime(1970, 1, 1, 0, 0, 5)] * 2
    assert stream.rejects[0].row["reason"] == "no timestamp"
    assert '"v"' in stream.rejects[1].row["reason"]
    assert stream.elements == []


def test_a_heartbeat_never_goes_back() -> None:
    stream = history()
    stream.advance_heartbeat(10 * SECOND, clock=0)
    stream.advance_heartbeat(5 * SECOND, clock=0)
    stream.commit([row(10)], clock=0)
    assert stream.heartbeat(0) == 10 * SECOND


def test_an_idle_stream_follows_the_clock_as_far_behind_as_it_was() -> None:
    stream = history(delay=2 * SECOND, idle_after=30 * SECOND)
    stream.commit([row(100)], clock=101 * SECOND)
    assert stream.heartbeat(130 * SECOND) == 98 * SECOND
    assert stream.heartbeat(131 * SECOND) == 128 * SECOND
    (late,) = stream.commit([row(127), row(128)], clock=131 * SECOND)
    assert late.row == 0
    assert stream.heartbeat(131 * SECOND) == 128 * SECOND


def test_system_time_is_the_clock() -> None:
    stream = history(timestamp_by=None)
    stream.commit([row(50), row(3)], clock=7 * SECOND)
    assert [e.at for e in stream.elements] == [7 * SECOND] * 2
    assert stream.heartbeat(9 * SECOND) == 9 * SECOND


def test_an_ended_stream_is_final_for_ever() -> None:
    stream = history()
    stream.end()
    assert stream.heartbeat(0) == END


@pytest.mark.parametrize(
    ("value", "kind", "held"),
    [
        (5, "INTEGER", 5),
        ("5", "INTEGER", 5),
        (" 5 ", "BIGINT", 5),
        (1, "DOUBLE", 1.0),
        ("true", "BOOLEAN", True),
        ("1970-01-01 00:00:01", "TIMESTAMP", datetime(1970, 1, 1, 0, 0, 1)),
        (None, "INTEGER", None),
        (7, "VARCHAR", "7"),
    ],
)
def test_values_are_cast_as_duckdb_casts_them(value: Any, kind: str, held: Any) -> None:
    assert cast(value, Field("c", kind)) == held


@pytest.mark.parametrize(
    ("value", "kind"), [("x", "INTEGER"), (2**31, "INTEGER"), (128, "TINYINT"), ("soon", "DATE")]
)
def test_values_that_do_not_fit_are_named(value: Any, kind: str) -> None:
    with pytest.raises(Unfit, match='column "c"'):
        cast(value, Field("c", kind))
