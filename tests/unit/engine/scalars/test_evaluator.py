"""Scalar expressions in a locked-down DuckDB."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from millpond.engine.scalars.evaluator import ScalarEvaluator, truth

TABLE = pa.table({"a": [1, 2, None, 4], "s": ["1", "x", "3", "4"]})


def test_values_come_in_row_order_with_nulls() -> None:
    results = ScalarEvaluator().evaluate(TABLE, ["a > 1", "a IS NULL", "a"])
    assert [r.to_pylist() for r in results] == [
        [False, True, None, True],
        [False, False, True, False],
        [True, True, None, True],
    ]
    assert truth(results[0]).tolist() == [False, True, False, True]


def test_an_expression_that_fails_disturbs_no_other() -> None:
    sqls = [f"a > {i}" for i in range(100)]
    sqls[17] = "CAST(s AS INTEGER) > 0"
    sqls[63] = "nothing > 0"
    results = ScalarEvaluator().evaluate(TABLE, sqls)
    failed = {i for i, r in enumerate(results) if isinstance(r, duckdb.Error)}
    assert failed == {17, 63}
    assert results[99].to_pylist() == [False, False, None, False]


def test_a_comment_cannot_swallow_what_follows() -> None:
    (result,) = ScalarEvaluator().evaluate(TABLE, ["a > 1 -- and more"])
    assert result.to_pylist() == [False, True, None, True]


def test_no_rows() -> None:
    (result,) = ScalarEvaluator().evaluate(TABLE.slice(0, 0), ["a > 1"])
    assert len(result) == 0


def test_the_outside_cannot_be_reached(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    hidden = TABLE
    results = ScalarEvaluator().evaluate(
        TABLE,
        [
            f"(SELECT count(*) FROM '{secret}') > 0",
            f"(SELECT count(*) FROM read_csv('{secret}')) > 0",
            "(SELECT count(*) FROM hidden) > 0",
        ],
    )
    assert hidden.num_rows
    assert all(isinstance(r, duckdb.Error) for r in results)
    with pytest.raises(duckdb.Error):
        ScalarEvaluator().connection.execute("SET enable_external_access = true")


def test_each_thread_has_its_own() -> None:
    seen: list[ScalarEvaluator] = []
    thread = threading.Thread(target=lambda: seen.append(ScalarEvaluator.of_this_thread()))
    thread.start()
    thread.join()
    assert ScalarEvaluator.of_this_thread() is ScalarEvaluator.of_this_thread()
    assert seen[0] is not ScalarEvaluator.of_this_thread()


def test_an_evaluator_travels_to_workers() -> None:
    evaluator = ScalarEvaluator("256MB")
    evaluator.evaluate(TABLE, ["a > 1"])
    copy = pickle.loads(pickle.dumps(evaluator))
    assert copy.evaluate(TABLE, ["a > 1"])[0].to_pylist() == [False, True, None, True]
    evaluator.close()
    copy.close()
