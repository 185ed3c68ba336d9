"""Expressions on deltas: rows that cancel each other are no rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_of_equal_rows_the_first_leave_and_the_others_stay_where_they_came() -> None:
    """A queue in front of which the last of three equal rows stood lost the row between them."""
    rows = delta(("a", 1, 9, 1), ("b", 1, 9, 1), ("a", 1, 9, 2), ("c", 1, 9, 1), ("a", 1, 9, -2))
    left = net_weights(rows)
    assert left.rows.column(0).to_pylist() == ["b", "a", "c"]
    assert left.weight.tolist() == [1, 1, 1]


def test_more_may_leave_than_came() -> None:
    left = net_weights(delta(("a", 1, 9, 1), ("b", 1, 9, -1), ("a", 1, 9, -3)))
    assert (left.rows.column(0).to_pylist(), left.weight.tolist()) == (["b", "a"], [-1, -2])


def test_no_rows_are_none() -> None:
    assert len(net_weights(delta(("a", 1, 9, 1)).slice(0, 0))) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([-2, -1, 1, 1, 2])), max_size=20))
def test_what_is_cancelled_is_what_leaves_first(changes: list[tuple[str, int]]) -> None:
    left: Counter[str] = Counter()
    for value, weight in changes:
        left[value] += max(0, -weight)
    expected = []
    for value, weight in changes:
        stays = max(0, weight - left[value])
        left[value] -= max(0, weight) - stays
        expected += [(value, stays)] if stays else []
    given_rows = delta(*((value, 1, 9, weight) for value, weight in changes or [("a", 1)]))
    found = net_weights(given_rows if changes else given_rows.slice(0, 0))
    rows = list(zip(found.rows.column(0).to_pylist(), found.weight.tolist(), strict=True))
    assert [row for row in rows if row[1] > 0] == expected
    assert {row[0]: -row[1] for row in rows if row[1] < 0} == dict(+left)
