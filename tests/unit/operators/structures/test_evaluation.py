"""Expressions on deltas: rows that cancel each other are no rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.errors import MillpondError
from millpond.operators.protocol.delta import Delta
from millpond.operators.structures.evaluation import evaluate_expressions, net_weights

CAST = ["CAST(c0 AS INTEGER)"]


def delta(*rows: tuple[str, int, int, int]) -> Delta:
    values, at, until, weight = zip(*rows, strict=True)
    batch = pa.RecordBatch.from_arrays([pa.array(values)], names=["c0"])
    return Delta(batch, np.array(at), np.array(until), np.array(weight))


def test_a_row_that_is_cancelled_cannot_fail() -> None:
    rows = delta(("two", 1, 9, 1), ("2", 1, 9, 1), ("two", 1, 9, -1), ("3", 2, 9, 1))
    left, (values,) = evaluate_expressions(rows, CAST, DuckDBScalars())
    assert values.to_pylist() == [2, 3]
    assert (left.at.tolist(), left.weight.tolist()) == ([1, 2], [1, 1])


@pytest.mark.parametrize("interval", [(1, 8), (2, 9)])
def test_a_row_that_holds_for_a_while_fails(interval: tuple[int, int]) -> None:
    rows = delta(("two", 1, 9, 1), ("two", *interval, -1), ("3", 2, 9, 1))
    with pytest.raises(MillpondError, match="POND-404"):
        evaluate_expressions(rows, CAST, DuckDBScalars())


def test_weights_are_added_up() -> None:
    left = net_weights(delta(("a", 1, 9, 2), ("b", 1, 9, 1), ("a", 1, 9, -1), ("b", 1, 9, -1)))
    assert (left.rows.column(0).to_pylist(), left.weight.tolist()) == (["a"], [1])


def test_weights_of_different_zeros_are_not_added_up() -> None:
    values = pa.array([-0.0, 0.0, -0.0])
    stamps = np.array([1, 1, 1]), np.array([9, 9, 9])
    given = Delta(pa.RecordBatch.from_arrays([values], names=["c0"]), *stamps, np.array([1, 1, -1]))
    _, (texts,) = evaluate_expressions(net_weights(given), ["CAST(c0 AS VARCHAR)"], DuckDBScalars())
    assert texts.to_pylist() == ["0.0"]
