"""Rows of any Spark session become elements of a pushed stream, each batch once."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pond_server import serve

from millpond.errors import MillpondError
from millpond.runtime.spark import data_writer
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

pytestmark = pytest.mark.spark

SCHEMA = """
    CREATE STREAM s (ts TIMESTAMP, id INTEGER, d DECIMAL(10, 2), tags STRING[])
        TIMESTAMP BY ts DELAY INTERVAL 1 DAY;
    CREATE STREAM large AS SELECT id FROM s WHERE id > 100;
"""


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "served") as pond:
        pond.execute(SCHEMA)
        yield pond


@pytest.fixture
def url(pond: Pond) -> Iterator[str]:
    with serve(pond) as url:
        yield url


def ids(pond: Pond) -> list[int]:
    pond.catch_up()
    return sorted(value for (value,) in pond.ask("SELECT id FROM s").rows())


def staged(tmp_path: Path) -> list[str]:
    folder = tmp_path / "served" / "inbox" / ".staged"
    return [file.name for file in folder.iterdir()] if folder.exists() else []


def test_a_frame_is_written_whole(spark: Any, url: str, pond: Pond, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT timestamp_ntz'2026-01-01 00:00:00.5' AS TS, CAST(id AS INT) AS id,"
        " CAST(1.25 AS DECIMAL(10, 2)) AS d, array('a', NULL) AS tags FROM range(0, 10, 1, 3)"
    )
    frame.write.format("millpond").option("url", url).mode("append").save("s")
    assert ids(pond) == list(range(10))
    row = pond.ask("SELECT CAST(ts AS STRING), d, tags FROM s WHERE id = 7").rows()
    assert [(str(a), float(b), c) for a, b, c in row] == [
        ("2026-01-01 00:00:00.5", 1.25, ["a", None])
    ]
    # An instant of Spark is the same instant, whatever the session's zone is.
    zoned = spark.sql("SELECT timestamp'2026-01-01 02:00:00+02:00' AS ts, 77 AS id")
    zoned.write.format("millpond").option("url", url).option("stream", "s").mode("append").save()
    pond.catch_up()
    [[when]] = pond.ask("SELECT CAST(ts AS STRING) FROM s WHERE id = 77").rows()
    assert when == "2026-01-01 00:00:00"
    assert staged(tmp_path) == []


def test_a_query_is_started_in_another_thread(
    spark: Any, url: str, pond: Pond, tmp_path: Path
) -> None:
    """As docs/guide/python.md says: a new thread has no active session by itself."""
    failed: list[str] = []

    def write(has_session: bool) -> None:
        if has_session:
            classic = spark._jvm.org.apache.spark.sql.classic
            classic.SparkSession.setActiveSession(spark._jsparkSession)
        try:
            frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
            chosen = frame.selectExpr("CAST(value AS INT) AS id", "timestamp AS ts")
            to = chosen.writeStream.format("millpond").option("url", url)
            to = to.option("checkpointLocation", str(tmp_path / "job")).trigger(availableNow=True)
            to.start("s").awaitTermination(120)
        except Exception as error:
            failed.append(str(error))

    for has_session in (False, True):
        thread = threading.Thread(target=write, args=(has_session,))
        thread.start()
        thread.join(240)
    assert len(failed) == 1
    assert "DATA_SOURCE_NOT_FOUND" in failed[0]
    assert ids(pond)


def test_of_a_job_that_fails_nothing_is_written(spark: Any, url: str, pond: Pond) -> None:
    frame = spark.sql(
        "SELECT timestamp_ntz'2026-01-01' AS ts,"
        " CAST(IF(id = 9, raise_error('on purpose'), id) AS INT) AS id FROM range(0, 10, 1, 2)"
    )
    with pytest.raises(Exception, match="on purpose"):
        frame.write.format("millpond").option("url", url).mode("append").save("s")
    assert ids(pond) == []


class Job:
    """A streaming query over files, with a checkpoint."""

    def __init__(self, spark: Any, directory: Path) -> None:
        self.spark, self.files, self.checkpoint = spark, directory / "in", directory / "checkpoint"
        self.files.mkdir()

    def add(self, *rows: int) -> None:
        lines = [json.dumps({"ts": "2026-01-01 00:00:00", "id": n}) for n in rows]
        hidden = self.files / f".{rows[0]}"
        hidden.write_text("\n".join(lines))
        hidden.rename(self.files / f"{rows[0]:04}.json")

    def run(self, url: str, parts: int = 1) -> None:
        """Write what there is and has not been written."""
        self.start(url, parts).awaitTermination()

    def start(self, url: str, parts: int = 1) -> Any:
        """Begin to."""
        writer = self.read().repartition(parts).writeStream.format("millpond").option("url", url)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start("s")

    def read(self) -> Any:
        """The rows as a streaming frame; a file is a batch."""
        reader = self.spark.readStream.schema("ts timestamp_ntz, id int")
        return reader.option("maxFilesPerTrigger", 1).json(str(self.files))

    def forget_commit(self) -> None:
        """Leave the checkpoint as a kill leaves it between the sink's commit and Spark's own."""
        commits = self.checkpoint / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


def test_each_batch_counts_once_whoever_restarts(spark: Any, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    for first in (0, 10, 20):
        job.add(*range(first, first + 10))
    with open_local(tmp_path / "served") as pond, serve(pond) as url:
        pond.execute(SCHEMA)
        job.run(url, parts=2)
        assert ids(pond) == list(range(30))
        port = int(url.rpartition(":")[2])
    job.forget_commit()
    job.add(*range(30, 35))
    # The batch comes again, cut otherwise, while the server is away; it waits.
    waiting = job.start(url, parts=3)
    assert not waiting.awaitTermination(3)
    with open_local(tmp_path / "served") as pond, serve(pond, port):
        assert waiting.awaitTermination(120)
        assert ids(pond) == list(range(35))
        job.run(url)
        assert ids(pond) == list(range(35))
    assert staged(tmp_path) == []


def test_an_earlier_state_of_the_store_is_not_written_on(spark: Any, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    job.add(0)
    with open_local(tmp_path / "one") as pond, serve(pond) as url:
        pond.execute(SCHEMA)
        job.run(url)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with open_local(tmp_path / "one") as pond, serve(pond) as url:
        job.add(1)
        job.add(2)
        job.run(url)
        assert ids(pond) == [0, 1, 2]
    job.add(3)
    with open_local(tmp_path / "copy") as pond, serve(pond) as url:
        with pytest.raises(Exception, match=r"(?s)DATA-504.*up to 0, and this is batch 3"):
            job.run(url)
        assert ids(pond) == [0]


def test_a_batch_of_foreach_batch_counts_once(
    spark: Any, url: str, pond: Pond, tmp_path: Path
) -> None:
    """The function runs again after a crash; the server knows the batch by writer and number."""
    job = Job(spark, tmp_path)
    ran: list[int] = []

    def write(frame: Any, number: int) -> None:
        ran.append(number)
        to = frame.write.format("millpond").option("url", url)
        to.option("writer", "job").option("batch", number).mode("append").save("s")

    def run() -> None:
        writer = job.read().writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.option("checkpointLocation", str(job.checkpoint)).start().awaitTermination()

    job.add(1, 2)
    job.add(3)
    run()
    job.forget_commit()
    job.add(4)
    run()
    assert ran == [0, 1, 1, 2]
    assert ids(pond) == [1, 2, 3, 4]
    with pytest.raises(Exception, match=r"(?s)DATA-504.*up to 2, and this is batch 4"):
        write(spark.sql("SELECT timestamp_ntz'2026-01-01' AS ts, 1 AS id"), 4)


def test_a_frame_of_a_name_is_written_once(spark: Any, url: str, pond: Pond) -> None:
    frame = spark.sql("SELECT timestamp_ntz'2026-01-01' AS ts, 1 AS id")
    for name in ("first", "first", "second"):
        to = frame.write.format("millpond").option("url", url).option("writer", name)
        to.mode("append").save("s")
    assert ids(pond) == [1, 1]


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("complete", r'SERVE-703(?s:.*)Hint: Use outputMode\("append"\), or foreachBatch'),
        ("update", "millpond does not support Update mode"),  # Spark's own word
    ],
)
def test_an_output_mode_that_takes_rows_back_is_refused(
    spark: Any, url: str, tmp_path: Path, mode: str, why: str
) -> None:
    job = Job(spark, tmp_path)
    job.add(1, 2)
    counts = job.read().groupBy("id").count().select("id")
    to = counts.writeStream.outputMode(mode).format("millpond").option("url", url)
    to = to.option("checkpointLocation", str(job.checkpoint)).trigger(availableNow=True)
    with pytest.raises(Exception, match=why):
        to.start("s").awaitTermination()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"batch": "1"}, "counts among those of a writer"),
        ({"writer": "", "batch": "1"}, "counts among those of a writer"),
        ({"writer": "w", "batch": "-1"}, '"-1" is no number of a batch'),
        ({"writer": "w", "batch": "last"}, '"last" is no number of a batch'),
    ],
)
def test_what_is_no_batch(spark: Any, url: str, options: dict[str, str], why: str) -> None:
    to = spark.sql("SELECT 1 AS id").write.format("millpond").option("url", url)
    with pytest.raises(Exception, match=rf"(?s)SERVE-703.*{why}"):
        to.options(**options).mode("append").save("s")


def test_a_streaming_query_has_its_name_and_numbers_by_its_checkpoint(
    spark: Any, url: str, tmp_path: Path
) -> None:
    job = Job(spark, tmp_path)
    job.add(1)
    to = job.read().writeStream.format("millpond").option("url", url).option("writer", "w")
    to = to.option("checkpointLocation", str(job.checkpoint)).trigger(availableNow=True)
    with pytest.raises(Exception, match="Spark gives a streaming query its name"):
        to.start("s").awaitTermination()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda w: w.mode("append").save(), "which stream the rows are for"),
        (lambda w: w.mode("append").save("nobody"), "CQL-201"),
        (lambda w: w.mode("append").save("large"), "POND-407"),
        (lambda w: w.mode("overwrite").save("s"), "cannot be overwritten"),
        (lambda w: w.option("patience", "long").mode("append").save("s"), '"patience" cannot be'),
    ],
    ids=["no stream", "nobody", "derived", "overwrite", "patience"],
)
def test_what_cannot_be_written_is_said(
    spark: Any, url: str, change: Callable[[Any], None], why: str
) -> None:
    frame = spark.sql("SELECT timestamp_ntz'2026-01-01' AS ts, 1 AS id")
    with pytest.raises(Exception, match=why):
        change(frame.write.format("millpond").option("url", url))


def test_a_column_the_stream_does_not_have_is_refused(spark: Any, url: str) -> None:
    frame = spark.sql("SELECT 1 AS id, 2 AS identity")
    with pytest.raises(Exception, match=r'(?s)SERVE-703.*no column "identity"'):
        frame.write.format("millpond").option("url", url).mode("append").save("s")


def test_rows_are_sent_in_parts_of_bounded_size(
    url: str, pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_writer, "_PART_ROWS", 4)
    request = data_writer.WriteRequest(url, None, "s", 0.0)
    stamps = pa.array([0] * 10, pa.timestamp("us"))
    batch = pa.RecordBatch.from_pydict({"ts": stamps, "id": pa.array(range(10))})
    sent = request.stage(iter([batch, batch.slice(0, 1), batch.slice(0, 2), batch.slice(0, 0)]))
    assert len(sent.parts) == 4  # 4, 4, 2 and 1, 2
    request.push("w", 0, [sent])
    assert ids(pond) == sorted([*range(10), 0, 0, 1])


def test_a_server_that_is_not_there_is_waited_for_no_longer_than_asked() -> None:
    request = data_writer.WriteRequest("http://127.0.0.1:1", None, "s", 0.1)
    with pytest.raises(MillpondError, match="SERVE-705"):
        request.push("w", 0, [])
