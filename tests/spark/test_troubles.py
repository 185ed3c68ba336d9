"""Sources that cannot be read: the stream stops and says why, the others go on, and it resumes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond

pytestmark = pytest.mark.spark


def stream(pond: Pond, name: str) -> dict[str, Any]:
    return next(s for s in pond.status()["streams"] if s["name"] == name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def pond_beside(pond: Pond, eventually: Callable[..., Any]) -> Callable[[], None]:
    """Checks that another stream of the same pond takes rows and answers."""
    pond.execute("CREATE STREAM other (n BIGINT)")
    pushed = 0

    def check() -> None:
        nonlocal pushed
        pond.ingest("other", [{"n": pushed}])
        pushed += 1
        eventually(lambda: pond.ask("SELECT count(*) FROM other").rows() == [(pushed,)])

    return check


def test_a_damaged_file(pond, pond_beside, folder, eventually):
    pq.write_table(pa.table({"n": [1]}), folder / "a.parquet")
    pond.execute(f"CREATE STREAM s (n BIGINT) USING parquet OPTIONS (path '{folder}')")
    pond.catch_up()
    (folder / "b.parquet").write_bytes(b"PAR1 this is not parquet PAR1")
    stopped = eventually(lambda: stream(pond, "s")["state"] == "stopped" and stream(pond, "s"))
    assert stopped["reason"].startswith("DATA-502: the file")
    assert "b.parquet" in stopped["reason"]
    pond_beside()
    assert pond.ask("SELECT n FROM s").rows() == [(1,)]
    pq.write_table(pa.table({"n": [2]}), folder / ".b")
    (folder / ".b").rename(folder / "b.parquet")
    eventually(lambda: pond.ask("SELECT n FROM s ORDER BY n").rows() == [(1,), (2,)])
    eventually(lambda: stream(pond, "s")["state"] == "running")


def test_a_damaged_packed_file(pond, pond_beside, folder, eventually):
    pond.execute(f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}')")
    (folder / "a.csv.gz").write_bytes(b"\x1f\x8b\x08 this is not gzip")
    stopped = eventually(lambda: stream(pond, "s")["state"] == "stopped" and stream(pond, "s"))
    assert "a.csv.gz" in stopped["reason"]
    pond_beside()
    (folder / "a.csv.gz").unlink()
    pond_beside()


def test_a_directory_that_goes_away_and_comes_back(pond, pond_beside, folder, eventually):
    (folder / "a.csv").write_text("1\n")
    pond.execute(f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}')")
    pond.catch_up()
    shutil.rmtree(folder)
    stopped = eventually(lambda: stream(pond, "s")["state"] == "stopped" and stream(pond, "s"))
    assert stopped["reason"].startswith('DATA-502: the source of "s" cannot be read')
    assert str(folder) in stopped["reason"]
    pond_beside()
    assert pond.ask("SELECT n FROM s").rows() == [(1,)]
    folder.mkdir()
    (folder / "b.csv").write_text("2\n")
    eventually(lambda: pond.ask("SELECT n FROM s ORDER BY n").rows() == [(1,), (2,)])
    eventually(lambda: stream(pond, "s")["state"] == "running")


def test_a_directory_that_is_away_when_the_store_is_opened(open_store, folder, eventually):
    (folder / "a.csv").write_text("1\n")
    pond = open_store()
    pond.execute(f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}')")
    query = pond.register("SELECT n FROM s", "all_of_it")
    pond.catch_up()
    pond.close()
    folder.rename(folder.with_name("away"))
    pond = open_store()
    query = pond.query("all_of_it")
    assert query.invoke().rows() == [(1,)]
    eventually(lambda: stream(pond, "s")["state"] == "stopped")
    assert str(folder) in stream(pond, "s")["reason"]
    (folder.with_name("away") / "b.csv").write_text("2\n")
    folder.with_name("away").rename(folder)
    eventually(lambda: sorted(query.invoke().rows()) == [(1,), (2,)])
    eventually(lambda: stream(pond, "s")["state"] == "running")


def test_a_stopped_stream_can_be_dropped(pond, folder, eventually, spark):
    pond.execute(f"CREATE STREAM s (n BIGINT) USING parquet OPTIONS (path '{folder}')")
    (folder / "a.parquet").write_bytes(b"nothing of the kind")
    eventually(lambda: stream(pond, "s")["state"] == "stopped")
    pond.execute("DROP STREAM s")
    assert pond.status()["streams"] == []
    assert not any(query.name.startswith("millpond s ") for query in spark.streams.active)


def test_a_jvm_that_goes_first_is_no_news(spark, capsys):
    """A signal to the process group ends the JVM before PySpark's server of accumulators."""
    server = spark.sparkContext._accumulatorServer
    try:
        raise EOFError
    except EOFError:
        server.handle_error(None, ("127.0.0.1", 1))
    assert capsys.readouterr().err == ""
    try:
        raise ValueError("something else")
    except ValueError:
        server.handle_error(None, ("127.0.0.1", 1))
    assert "something else" in capsys.readouterr().err


@pytest.mark.parametrize("length", [63, pytest.param(60, marks=pytest.mark.slow)])
def test_a_store_about_as_long_as_sockets_may_be(length):
    """Spark refuses every job whose sockets lie in a directory whose path is longer."""
    script = """
import sys
import millpond
with millpond.open(sys.argv[1], master="local[1]") as pond:
    pond.execute("CREATE STREAM s (v INTEGER); INSERT INTO s VALUES (1)")
    print(pond.ask("SELECT v FROM s").rows())
"""
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        rest = length - len(f"{base}//checkpoints/.scratch-12345678")
        done = subprocess.run(
            [sys.executable, "-c", script, f"{base}/{'s' * rest}"],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.stdout == "[(1,)]\n", done.stderr[-2000:]


@pytest.mark.parametrize(("format", "hint"), [("kafak", '"kafka"'), ("nothing", "spark.jars")])
def test_a_format_nobody_knows(pond, format, hint):
    with pytest.raises(MillpondError) as refused:
        pond.execute(f"CREATE STREAM s (v STRING) USING {format} OPTIONS (path 'x')")
    assert refused.value.code == "DATA-502"
    assert hint in refused.value.hint
