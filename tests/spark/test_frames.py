"""Spark DataFrames as streams, streaming ones and others."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError

pytestmark = pytest.mark.spark


@pytest.fixture
def events(spark: Any, tmp_path: Path) -> Any:
    """Writes events to a directory, and gives the streaming frame that reads it."""
    folder = tmp_path / "events"
    folder.mkdir()

    def write(name: str, *numbers: int) -> Any:
        lines = [json.dumps({"at": f"2024-01-01T00:00:{n:02}Z", "n": n}) for n in numbers]
        (folder / f".{name}").write_text("\n".join(lines))
        (folder / f".{name}").rename(folder / f"{name}.json")
        return spark.readStream.schema("at timestamp, n bigint").json(str(folder))

    return write


@pytest.mark.slow  # the next one, and a restart, say it too
def test_a_streaming_frame(pond, events):
    stream = pond.stream("events", events("a", 1, 2), timestamp="at")
    assert [(f.name, f.type) for f in stream.schema.fields] == [
        ("at", "TIMESTAMP"),
        ("n", "BIGINT"),
    ]
    query = pond.register("SELECT at, n FROM events [RANGE 2 SECONDS]")
    pond.catch_up()
    assert query.invoke().rows() == [(datetime(2024, 1, 1, 0, 0, n), n) for n in (1, 2)]
    events("b", 3)
    pond.catch_up()
    assert [n for _, n in query.invoke().rows()] == [2, 3]


def test_a_streaming_frame_goes_on_after_a_restart(open_store, events, spark):
    pond = open_store()
    frame = events("a", 1, 2)
    pond.stream("events", frame, timestamp="at")
    pond.catch_up()
    pond.close()
    events("b", 3)
    again = open_store()
    assert again.ask("SELECT count(*) FROM events").rows() == [(2,)]
    again.stream("events", frame, timestamp="at")
    again.catch_up()
    assert again.ask("SELECT count(*), sum(n) FROM events").rows() == [(3, 6)]
    again.stream("events", frame, timestamp="at")  # and again while it runs
    events("c", 4)
    again.catch_up()
    assert again.ask("SELECT count(*), sum(n) FROM events").rows() == [(4, 10)]
    assert sum(query.name.startswith("millpond events ") for query in spark.streams.active) == 1


def test_a_frame_that_is_not_streaming_is_read_at_once(pond, spark):
    frame = spark.createDataFrame(
        [(datetime(2024, 1, 1), "JFK", 1.5), (datetime(2024, 1, 2), None, None)],
        "ts timestamp_ntz, origin string, delay double",
    )
    pond.stream("flights", frame, timestamp="ts")
    assert pond.ask("SELECT * FROM flights").rows() == [
        (datetime(2024, 1, 1), "JFK", 1.5),
        (datetime(2024, 1, 2), None, None),
    ]


def test_rows_given_again_after_a_restart_are_not_read_twice(open_store, spark):
    def frame(*numbers: int) -> Any:
        rows = [(n, None if n % 2 else "even") for n in numbers]
        return spark.createDataFrame(rows, "n long, k string")

    def total(pond: Any) -> Any:
        return pond.ask("SELECT count(*), sum(n) FROM s").rows()

    pond = open_store()
    pond.stream("s", frame(1, 2))
    pond.stream("s", frame(3))
    assert total(pond) == [(3, 6)]
    pond.close()
    pond = open_store()
    pond.stream("s", frame(2, 1).repartition(2))
    pond.stream("s", frame(3))
    assert total(pond) == [(3, 6)]
    pond.stream("s", frame(3))  # once more than before: meant
    pond.stream("s", frame(4))
    assert total(pond) == [(5, 13)]


def test_rows_of_a_frame_without_a_timestamp_are_rejected(pond, spark):
    frame = spark.sql(
        "SELECT timestamp'2024-01-01 00:00:00' AS ts, 1 AS n UNION ALL SELECT null, 2"
    )
    pond.stream("s", frame, timestamp="ts")
    assert pond.ask("SELECT n FROM s").rows() == [(1,)]
    assert pond.ask("SELECT reason FROM s$rejects").rows() == [("no timestamp",)]


def test_types_of_all_kinds(pond, spark):
    frame = spark.sql(
        "SELECT 1Y AS a, 2S AS b, 3 AS c, 4L AS d, 1.5F AS e, 2.5D AS f, 12.34BD AS g, true AS h,"
        " 'x' AS i, date'2024-01-02' AS j, timestamp'2024-01-02 03:04:05.678901' AS k"
    )
    pond.stream("s", frame)
    ((*numbers, g, h, i, k, at),) = pond.ask("SELECT * FROM s").rows()
    assert numbers == [1, 2, 3, 4, 1.5, 2.5]
    assert (str(g), h, i) == ("12.34", True, "x")
    assert (k, at) == (datetime(2024, 1, 2).date(), datetime(2024, 1, 2, 3, 4, 5, 678901))


def test_a_frame_a_stream_cannot_have(pond, spark):
    with pytest.raises(MillpondError, match="CQL-210"):
        pond.stream("s", spark.sql("SELECT map(1, 2) AS a"))
    pond.execute("CREATE STREAM s (n BIGINT)")
    with pytest.raises(MillpondError, match="CQL-208"):
        pond.stream("s", spark.sql("SELECT 1L AS n"))
    with pytest.raises(MillpondError, match="CQL-202"):
        pond.stream("t", spark.sql("SELECT 1L AS n"), timestamp="ts")
