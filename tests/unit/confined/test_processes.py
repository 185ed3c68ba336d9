"""Evaluation in another process: the same answers and errors, and ends that touch nobody."""

from __future__ import annotations

import resource
import threading
import time

import duckdb
import pyarrow as pa
import pytest

from millpond.confined.processes import (
    ConfinedProcesses,
    Request,
    bind_confined,
    confined,
    evaluate_confined,
    read_table,
)

ROWS = pa.table({"a": ["x", "y"], "n": [1, 2]})


def evaluate(sql: str, seconds: float = 20.0) -> list[dict[str, object]]:
    rows = evaluate_confined(sql, {"t": ROWS}, Request(sql, seconds=seconds)).rows
    assert rows is not None
    answer: list[dict[str, object]] = read_table(rows).to_pylist()
    return answer


def test_an_answer() -> None:
    assert evaluate("SELECT repeat(a, n) AS r FROM t ORDER BY r") == [{"r": "x"}, {"r": "yy"}]


def test_only_the_rows_of_a_slice_are_sent() -> None:
    sql = "SELECT a FROM t"
    rows = evaluate_confined(sql, {"t": ROWS.slice(1)}, Request(sql)).rows
    assert rows is not None
    assert read_table(rows).to_pylist() == [{"a": "y"}]


def test_columns_are_bound_over_tables_that_are_gone_afterwards() -> None:
    schema = ["CREATE TEMP TABLE u (a VARCHAR, b DECIMAL(9,2))"]
    assert bind_confined("SELECT b, range(3) AS r FROM u", schema=schema) == [
        ("b", "DECIMAL(9,2)"),
        ("r", "BIGINT[]"),
    ]
    with pytest.raises(duckdb.CatalogException):
        bind_confined("SELECT * FROM u")


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT nosuch FROM t", duckdb.BinderException),
        ("SELECT CAST(a AS BIGINT) FROM t", duckdb.ConversionException),
        ("SELECT FROM WHERE", duckdb.ParserException),
    ],
)
def test_errors_are_those_of_duckdb(sql: str, kind: type[duckdb.Error]) -> None:
    with pytest.raises(kind):
        evaluate(sql)


def test_what_is_too_large_ends_with_the_reason() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for sql in ("SELECT len(range(100000000)) AS n", "SELECT len(range(n * 100000000)) FROM t"):
        with pytest.raises(duckdb.OutOfMemoryException, match="larger than the memory"):
            evaluate(sql)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert evaluate("SELECT 1 AS n") == [{"n": 1}]


def test_what_takes_too_long_is_ended() -> None:
    evaluate("SELECT 1 AS n")
    began = time.monotonic()
    with pytest.raises(duckdb.InterruptException, match="longer than 1 seconds"):
        evaluate("SELECT levenshtein(repeat('ab', 100000), repeat('ba', 100000))", 1.0)
    assert time.monotonic() - began < 10
    assert evaluate("SELECT 1 AS n") == [{"n": 1}]


def test_processes_are_used_again_and_never_more_than_two() -> None:
    processes = ConfinedProcesses()
    done = []

    def work() -> None:
        for _ in range(5):
            processes.ask(Request("SELECT 1 AS n", seconds=60.0))
            done.append(None)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 20
    assert 1 <= len(processes._idle) <= 2
    processes.close()


def test_one_that_ended_by_itself_is_replaced() -> None:
    evaluate("SELECT 1 AS n")
    for process in confined._idle:
        process._popen.kill()
        process._popen.wait()
    assert evaluate("SELECT 2 AS n") == [{"n": 2}]
