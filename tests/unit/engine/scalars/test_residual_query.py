"""The residual: limits hold, nothing is reached, and an evaluation leaves no trace."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millpond.confined.deadline import Deadlines
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.scalars.residual_query import Limits, Residual
from millpond.errors import MillpondError

LONG = "SELECT sum(a.range * b.range % 7) AS n FROM range(100000000) a, range(100000000) b"


def test_tables_are_seen_by_one_evaluation_only() -> None:
    residual = Residual()
    table = pa.table({"x": [1, 2]})
    assert residual.evaluate("SELECT sum(x) AS n FROM t", {"t": table}).to_pylist() == [{"n": 3}]
    with pytest.raises(MillpondError, match="POND-404"):
        residual.evaluate("SELECT * FROM t", {})


def test_what_takes_too_long_is_stopped_and_the_next_is_not() -> None:
    residual = Residual()
    begun = time.monotonic()
    with pytest.raises(MillpondError, match="POND-405"):
        residual.evaluate(LONG, {}, Limits(seconds=0.05))
    assert time.monotonic() - begun < 10
    assert residual.evaluate("SELECT 1 AS n", {}, Limits(seconds=1e300)).num_rows == 1


def test_more_rows_than_allowed_are_not_given() -> None:
    with pytest.raises(MillpondError, match="POND-405"):
        Residual().evaluate("SELECT * FROM range(200000)", {}, Limits(rows=1_000))
    assert (
        Residual().evaluate("SELECT * FROM range(1000)", {}, Limits(rows=1_000)).num_rows == 1_000
    )


def test_more_memory_than_allowed_is_not_given() -> None:
    residual = Residual(Limits(memory=64 << 20))
    with pytest.raises(MillpondError, match="POND-405"):
        residual.evaluate("SELECT len(list(range)) AS n FROM range(50000000)", {})
    with pytest.raises(MillpondError, match="POND-405: the answer is larger than 64 MiB"):
        residual.evaluate("SELECT repeat('x', 2000) AS s FROM range(100000)", {})


def test_what_does_not_fit_into_memory_is_not_written_to_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB would write it to the current directory, as much as the disk holds."""
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"n": pa.array(np.arange(8_000_000))})
    residual = Residual(Limits(memory=64 << 20))
    with pytest.raises(MillpondError, match="POND-405: the query needs more memory"):
        residual.evaluate("SELECT n FROM t ORDER BY n * 7919 % 1000003 LIMIT 4000000", {"t": rows})
    assert list(tmp_path.iterdir()) == []
    # DuckDB keeps what such an evaluation took until its database is closed.
    assert residual._idle == []
    assert residual.evaluate("SELECT 1 AS n", {}).num_rows == 1


def test_wide_rows_are_looked_at_before_they_are_many() -> None:
    """A batch of 65,536 rows of 30 KB would be two gigabytes before its size could be seen."""
    script = """
import resource
from millpond.engine.scalars.residual_query import Limits, Residual
from millpond.errors import MillpondError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
residual = Residual(Limits(memory=64 << 20))
residual.evaluate("SELECT 1", {})
before = peak()
try:
    residual.evaluate("SELECT repeat('x', 30000) AS s FROM range(100000)", {})
except MillpondError as error:
    print(error.code, peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    code, grown = done.stdout.split()
    assert code == "POND-405"
    assert int(grown) < 700, f"{grown} MiB"


def test_what_breaks_a_database_breaks_one_evaluation_only() -> None:
    """DuckDB gives a database up after some errors, here at an instant its JSON cannot write."""
    beyond = pa.table({"t": pa.array([2**62], pa.timestamp("ms"))})
    residual = Residual()
    with pytest.raises(MillpondError, match="POND-404"):
        residual.evaluate("SELECT to_json(t) FROM x", {"x": beyond})
    assert residual.evaluate("SELECT count(*) AS n FROM x", {"x": beyond}).to_pylist() == [{"n": 1}]
    evaluator = ScalarEvaluator()
    evaluator.evaluate(beyond, ["to_json(t) = ''"])
    (found,) = evaluator.evaluate(beyond, ["t IS NOT NULL"])
    assert found.to_pylist() == [True]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/out.csv'",
        "SELECT * FROM table_of_python",
        "SET enable_external_access = true",
        "ATTACH '/tmp/other.db'",
        "INSTALL httpfs",
    ],
)
def test_nothing_outside_is_reached(sql: str) -> None:
    table_of_python = pa.table({"x": [1]})
    with pytest.raises(MillpondError, match="POND-404"):
        Residual().evaluate(sql, {})
    assert table_of_python.num_rows == 1


def test_a_deadline_interrupts_what_is_late_and_only_that() -> None:
    deadlines = Deadlines()
    late, never = threading.Event(), threading.Event()
    with deadlines.within(3_600, never.set):
        with deadlines.within(0.0, late.set):
            assert late.wait(10)
        with deadlines.within(60, never.set):
            pass
    assert not never.is_set()


def test_deadlines_that_were_met_are_forgotten() -> None:
    deadlines = Deadlines()
    for _ in range(1_000):
        with deadlines.within(3_600, lambda: None):
            pass
    assert len(deadlines._due) < 100
