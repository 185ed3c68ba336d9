"""kill -9 of the server and of Spark jobs that write rows or read changes: each is there once."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.faults.local_server import command_of_server
from tests.waiting import wait_until

from millpond.api.client import connect
from millpond.errors import MillpondError

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("MILLPOND_KILLS", "30"))
#: Rows of a file; a file is a batch.
ROWS = 20
#: For how many seconds a job waits for the server: some give up while the server starts again.
PATIENCE = (1, 60)

JOB = """
import sys
from pyspark.sql import SparkSession

url, files, checkpoint, parts, patience = sys.argv[1:]
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
session = session.config("spark.sql.shuffle.partitions", parts).getOrCreate()
frame = session.readStream.schema("id long, v int").option("maxFilesPerTrigger", "1").json(files)
writer = frame.repartition(int(parts)).writeStream.format("millpond").option("url", url)
query = writer.option("patience", patience).option("checkpointLocation", checkpoint).start("s")
print("writing", flush=True)
query.awaitTermination()
"""


#: Reads the changes of a query and writes them into files, which Spark lists as it commits them.
READER = """
import sys
from pyspark.sql import SparkSession

url, out, checkpoint, patience = sys.argv[1:]
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
reader = session.readStream.format("millpond").option("url", url).option("patience", patience)
frame = reader.option("changes", "q").load()
writer = frame.select("id").writeStream.format("parquet").option("path", out)
query = writer.option("checkpointLocation", checkpoint).start()
print("reading", flush=True)
query.awaitTermination()
"""


class Process:
    """A process that is killed and started again."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.running: subprocess.Popen[bytes] | None = None

    def start(self, *command: str) -> None:
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, process_group=0
            )

    def kill(self) -> None:
        if self.running is not None:
            with suppress(ProcessLookupError):  # it ended by itself
                os.killpg(self.running.pid, signal.SIGKILL)
            self.running.wait()
            self.running = None

    def is_over(self) -> bool:
        """Whether it was killed, or ended by itself, as a job whose patience is over."""
        return self.running is None or self.running.poll() is not None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.timeout(7200)
def test_every_row_is_there_once_whoever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(17)
    port, files = free_port(), tmp_path / "files"
    url = f"http://127.0.0.1:{port}"
    files.mkdir()
    server, job = Process(tmp_path / "server.log"), Process(tmp_path / "job.log")
    count = 0

    def add_file() -> None:
        nonlocal count
        hidden = files / ".next"
        rows = range(count * ROWS, (count + 1) * ROWS)
        hidden.write_text("\n".join(json.dumps({"id": n, "v": n % 7}) for n in rows))
        hidden.rename(files / f"{count:06}.json")
        count += 1

    def start_server() -> None:
        server.start(*command_of_server(tmp_path / "store", port))

    def start_job() -> None:
        """Start the job, which waits for the server, or ends by itself while that is away."""
        job.kill()
        more = [str(chance.choice([1, 2, 3])), str(chance.choice(PATIENCE))]
        job.start(sys.executable, "-c", JOB, url, str(files), str(tmp_path / "checkpoint"), *more)

    def has_more_than(count: int) -> bool:
        if job.is_over():
            start_job()
        return len(read() or []) > count

    def read() -> list[int] | None:
        try:
            with connect(url) as pond:
                pond.catch_up(60)
                return sorted(value for (value,) in pond.ask("SELECT id FROM s").rows())
        except MillpondError as error:
            if error.code not in ("SERVE-705", "POND-405", "POND-410"):
                raise
            return None

    def is_up() -> bool:
        return read() is not None

    def read_at_last() -> list[int]:
        found: list[list[int]] = []
        wait_until(lambda: found.extend(x for x in [read()] if x is not None) or found, 300)
        return found[0]

    try:
        start_server()
        wait_until(lambda: _declare(url), 300, "the server did not start")
        start_job()
        seen = 0
        for _ in range(KILLS):
            for _ in range(3):
                add_file()
            # Somewhere in the next batches; every other time behind some progress.
            if chance.random() < 0.5:
                wait_until(lambda seen=seen: has_more_than(seen), 300, f"no batch: see {job.log}")
            time.sleep(chance.random() * 3)
            for victim in chance.choice([[server], [job], [server, job]]):
                victim.kill()
            if server.running is None:
                start_server()
                wait_until(is_up, 300, "the server did not start again")
            if job.is_over():
                start_job()
            found = read_at_last()
            assert len(found) == len(set(found))
            assert len(found) >= seen
            seen = len(found)
        everything = list(range(count * ROWS))
        more = f"rows are missing: see {job.log}"
        wait_until(lambda: has_more_than(len(everything) - 1), 600, more)
        assert read() == everything
    finally:
        job.kill()
        server.kill()


def read_committed(out: Path) -> list[int]:
    """The rows of the files that Spark's list names; other files are of attempts that failed."""
    names = set()
    for listed in (out / "_spark_metadata").glob("[0-9]*"):
        for line in listed.read_text().splitlines()[1:]:
            names.add(json.loads(line)["path"].rpartition("/")[2])
    return sorted(v for name in names for v in pq.read_table(out / name)["id"].to_pylist())


@pytest.mark.timeout(7200)
def test_every_change_is_read_once_whoever_is_killed(tmp_path: Path) -> None:
    """A streaming query of Spark's follows a query's changes, with a checkpoint."""
    chance = random.Random(19)
    port, out = free_port(), tmp_path / "out"
    url = f"http://127.0.0.1:{port}"
    server, job = Process(tmp_path / "server.log"), Process(tmp_path / "job.log")
    pushed = 0

    def push() -> bool:
        """Push the next rows, again until they are acknowledged."""
        try:
            with connect(url) as pond:
                rows = [{"id": n, "v": 0} for n in range(pushed, pushed + ROWS)]
                pond.ingest("s", rows, idempotency_key=f"rows {pushed}")
        except MillpondError as error:
            if error.code not in ("SERVE-705", "POND-405", "POND-410"):
                raise
            return False
        return True

    def start_server() -> None:
        server.start(*command_of_server(tmp_path / "store", port))
        wait_until(lambda: _declare(url), 300, "the server did not start")

    def start_job() -> None:
        """Start the job, which waits for the server, or ends by itself while that is away."""
        job.kill()
        more = [str(out), str(tmp_path / "checkpoint"), str(chance.choice(PATIENCE))]
        job.start(sys.executable, "-c", READER, url, *more)

    def read_by_job() -> list[int]:
        if job.is_over():
            start_job()
        return read_committed(out)

    try:
        start_server()
        start_job()
        for _ in range(KILLS):
            for _ in range(3):
                wait_until(push, 300, "rows are not taken")
                pushed += ROWS
            seen = len(read_committed(out))
            if chance.random() < 0.5:
                wait_until(lambda seen=seen: len(read_by_job()) > seen, 300, f"see {job.log}")
            time.sleep(chance.random() * 3)
            for victim in chance.choice([[server], [job], [server, job]]):
                victim.kill()
            if server.running is None:
                start_server()
            found = read_by_job()
            assert len(found) == len(set(found))
        everything = list(range(pushed))

        wait_until(lambda: read_by_job() == everything, 600, f"missing: see {job.log}")
    finally:
        job.kill()
        server.kill()


def _declare(url: str) -> bool:
    try:
        with connect(url) as pond:
            pond.execute("CREATE STREAM IF NOT EXISTS s (id BIGINT, v INTEGER)")
            pond.execute("CREATE QUERY IF NOT EXISTS q AS ISTREAM (SELECT id FROM s [NOW])")
    except MillpondError as error:
        if error.code != "SERVE-705":
            raise
        return False
    return True
