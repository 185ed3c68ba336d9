"""Answers and changes of a served pond, read by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pond_server import serve
from pyspark.sql.types import StructType

import millpond
from millpond.errors import MillpondError
from millpond.runtime import patient_calls
from millpond.runtime.spark import data_source
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

pytestmark = pytest.mark.spark

SCHEMA = """
    CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER, d DECIMAL(10, 2)) TIMESTAMP BY ts;
    CREATE QUERY q WITH (changes = 'from beginning') AS
        SELECT k, v, d FROM s [RANGE 10 SECONDS] WHERE v > 0;
    CREATE STREAM large AS ISTREAM(SELECT v FROM s WHERE v >= 2);
"""


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "served") as pond:
        pond.execute(SCHEMA)
        push(pond, range(4))
        yield pond


@pytest.fixture
def url(pond: Pond) -> Iterator[str]:
    with serve(pond) as url:
        yield url


def push(pond: Pond, seconds: range) -> None:
    rows = [
        {"ts": f"2026-01-01 00:00:{t:02}", "k": "a" if t % 2 else None, "v": t, "d": "1.25"}
        for t in seconds
    ]
    pond.ingest("s", rows)
    pond.catch_up()


def test_an_answer_is_a_frame(spark: Any, url: str) -> None:
    reader = spark.read.format("millpond").option("url", url)
    frame = reader.load("q")
    assert frame.dtypes == [("k", "string"), ("v", "int"), ("d", "decimal(10,2)")]
    found = sorted(frame.collect(), key=lambda row: row.v)
    assert [tuple(row) for row in found] == [
        ("a", 1, Decimal("1.25")),
        (None, 2, Decimal("1.25")),
        ("a", 3, Decimal("1.25")),
    ]
    then = reader.option("query", "q").option("at", "2026-01-01 00:00:02").load()
    assert then.count() == 2
    asked = spark.read.format("millpond").option("url", url)
    assert asked.option("cql", "SELECT count(*) AS n FROM s").load().collect()[0].n == 4


def test_changes_come_once_whenever_they_are_read(
    spark: Any, url: str, pond: Pond, tmp_path: Path
) -> None:
    job = Job(spark, url, "large", tmp_path / "checkpoint")
    job.run()
    so_far = pond.derived("large").fetch().rows()
    assert job.got == [(cursor, sign, v) for cursor, _, sign, v in so_far] != []
    job.run()
    push(pond, range(4, 9))
    everything = pond.derived("large").fetch().rows()
    assert len(everything) > len(so_far)
    job.run()
    assert job.got == [(cursor, sign, v) for cursor, _, sign, v in everything]


class Job:
    """A job that reads changes with a checkpoint, whenever it is run."""

    def __init__(self, spark: Any, url: str, changes: str, checkpoint: Path) -> None:
        self.spark, self.url, self.changes, self.checkpoint = spark, url, changes, checkpoint
        self.got: list[tuple[int, str, int]] = []

    def run(self, **options: str) -> None:
        reader = self.spark.readStream.format("millpond").option("url", self.url)
        frame = reader.option("changes", self.changes).options(**options).load()
        writer = frame.writeStream.foreachBatch(self._take).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.checkpoint)).start().awaitTermination()

    def _take(self, frame: Any, batch: int) -> None:
        self.got += sorted((r.cursor, r.change, r.v) for r in frame.collect())


def changes_of(pond: Pond, name: str) -> list[tuple[int, str, int]]:
    """All changes, page by page."""
    found, page = [], pond.query(name).fetch()
    while page.table.num_rows or page.redefined is not None:
        found += [(row["cursor"], row["change"], row["v"]) for row in page.table.to_pylist()]
        page = pond.query(name).fetch(page.cursor)
    return found


REPLACED = "CREATE OR REPLACE QUERY q AS SELECT {} FROM s [RANGE 10 SECONDS] WHERE v > {}"


def test_a_job_reads_on_behind_another_definition(
    spark: Any, url: str, pond: Pond, tmp_path: Path
) -> None:
    """A page ends where a definition does, and there is more behind it."""
    job = Job(spark, url, "q", tmp_path / "checkpoint")
    job.run()
    push(pond, range(4, 6))
    pond.execute(REPLACED.format("k, v, d", 1))
    push(pond, range(6, 9))
    want = changes_of(pond, "q")
    assert ("-", 1) in {(sign, v) for _, sign, v in want}
    job.run()
    assert job.got == want
    frame = spark.read.format("millpond").option("url", url).option("changes", "q").load()
    assert sorted((r.cursor, r.change, r.v) for r in frame.collect()) == want


def test_a_job_stops_where_the_columns_become_others(
    spark: Any, url: str, pond: Pond, tmp_path: Path
) -> None:
    job = Job(spark, url, "q", tmp_path / "checkpoint")
    job.run()
    push(pond, range(4, 6))
    pond.execute(REPLACED.format("v, v + 1 AS w", 0))
    push(pond, range(6, 9))
    page = pond.query("q").fetch()
    while page.redefined is None:
        mark = page.cursor
        page = pond.query("q").fetch(mark)
    whole = spark.read.format("millpond").option("url", url).option("changes", "q")
    for read in (job.run, job.run, whole.load().collect):
        with pytest.raises(Exception, match=rf"(?s)POND-412.*other columns after cursor {mark}"):
            read()
    behind = Job(spark, url, "q", tmp_path / "another")
    behind.run(after=mark)
    assert behind.got == [(r["cursor"], r["change"], r["v"]) for r in page.table.to_pylist()]
    assert len(whole.option("after", mark).load().collect()) == len(behind.got)


def test_a_job_goes_on_when_what_it_has_read_is_no_longer_kept(
    spark: Any, url: str, pond: Pond, tmp_path: Path
) -> None:
    pond.execute("CREATE QUERY few WITH (keep_changes = 4) AS ISTREAM (SELECT v FROM s [NOW])")
    job = Job(spark, url, "few", tmp_path / "checkpoint")
    job.run()
    for second in range(4, 16):
        push(pond, range(second, second + 1))
        if second % 3 == 0:
            job.run()
    with pytest.raises(MillpondError, match="POND-412"):
        pond.query("few").fetch()
    assert [v for _, _, v in job.got] == list(range(3, 15))


def test_changes_so_far_are_a_frame(spark: Any, url: str, pond: Pond) -> None:
    reader = spark.read.format("millpond").option("url", url).option("changes", "q")
    want = [(row[0], row[2], *row[3:]) for row in pond.query("q").fetch().rows()]
    frame = reader.load()
    assert dict(frame.dtypes)["timestamp"] == "timestamp_ntz"
    assert [tuple(r) for r in frame.drop("timestamp").orderBy("cursor").collect()] == want
    after = reader.option("after", "1").load()
    assert [tuple(r) for r in after.drop("timestamp").orderBy("cursor").collect()] == want[1:]


def test_many_changes_are_read_in_parts(
    url: str, pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_source, "_CHANGES_A_TASK", 1)
    source = data_source.MillpondSource({"url": url, "changes": "q"})
    want = [row[0] for row in pond.query("q").fetch().rows()]
    assert len(want) > 1
    read = [b["cursor"].to_pylist() for b in source.reader(source.schema()).read(None)]
    assert read == [[cursor] for cursor in want]
    stream = source.streamReader(source.schema())
    spans = stream.partitions(stream.initialOffset(), stream.latestOffset())
    assert [[c for b in stream.read(s) for c in b["cursor"].to_pylist()] for s in spans] == read


def test_changes_are_asked_for_again_while_the_server_is_away(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that reads changes outlives a restart of the server, as one that writes rows does."""
    connect, refused = millpond.connect, iter(["http://127.0.0.1:1"] * 2)
    monkeypatch.setattr(millpond, "connect", lambda url, token: connect(next(refused, url), token))
    monkeypatch.setattr(patient_calls, "_PAUSE_SECONDS", 0.01)
    options = {"url": url, "changes": "q"}
    reader = data_source.MillpondSource(options).streamReader(StructType())
    assert isinstance(reader.initialOffset(), dict)
    assert next(refused, None) is None
    with pytest.raises(MillpondError, match="SERVE-705"):
        data_source.MillpondSource(
            {**options, "url": "http://127.0.0.1:1", "patience": "0"}
        ).schema()


def test_a_checkpoint_of_other_changes_is_refused(url: str, pond: Pond) -> None:
    source = data_source.MillpondSource({"url": url, "changes": "q"})
    stream = source.streamReader(source.schema())
    elsewhere = {"cursor": "000000.1.7"}
    with pytest.raises(MillpondError, match=r"(?s)POND-412.*AFTER 'oldest'"):
        stream.partitions(elsewhere, stream.latestOffset())


def test_an_answer_is_no_stream(spark: Any, url: str, tmp_path: Path) -> None:
    frame = spark.readStream.format("millpond").option("url", url).load("q")
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception, match="SERVE-703: an answer is no stream"):
        writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "SERVE-703"),
        ({"query": "q", "changes": "q"}, "SERVE-703"),
        ({"query": "nobody"}, "CQL-201"),
        ({"changes": "q", "after": "seven"}, "POND-412"),
        ({"query": "q", "url": "http://127.0.0.1:1"}, "SERVE-705"),
    ],
)
def test_what_cannot_be_read_is_said(
    spark: Any, url: str, options: dict[str, str], code: str
) -> None:
    with pytest.raises(Exception, match=code):
        spark.read.format("millpond").options(**{"url": url, **options}).load().collect()
