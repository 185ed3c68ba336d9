"""Window functions over rows that only come: what is kept, and instants that come in pieces."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from tests.tools.check_operator import GivenInput, sum_deltas

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.model.patterns import MONOTONIC
from millpond.operators.aggregation.aggregates.count import Count
from millpond.operators.aggregation.aggregates.sum import SumOfDoubles
from millpond.operators.aggregation.frames import RowFrame
from millpond.operators.aggregation.measures import Argument
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.node import Operator
from millpond.operators.running_frames import (
    EarlierValue,
    FramedAggregate,
    RowNumber,
    RunningFrames,
    WindowCall,
)

N, D = pa.int64(), pa.float64()
COUNT = Count(Argument(), N)


def node(*calls: WindowCall) -> RunningFrames:
    return RunningFrames(GivenInput("s", (N, D), MONOTONIC), 2, calls)


def give(operator: Operator, keys: list[int], values: list[float], at: list[int]) -> Delta:
    schema = GivenInput("s", (N, D), MONOTONIC).schema
    rows = pa.RecordBatch.from_arrays([pa.array(keys, N), pa.array(values, D)], schema=schema)
    return operator.advance([Delta.of(rows, np.array(at, np.int64))], at[-1], DuckDBScalars())


def test_an_instant_that_comes_in_three_steps() -> None:
    total = FramedAggregate((0,), N, RowFrame(None, of_time=True), COUNT)
    operator = node(total, RowNumber((), N, "row_number")).operator()
    given = [give(operator, [1, 2], [0.5, 0.5], [3, 7])]
    given += [give(operator, [key], [0.5], [7]) for key in (1, 2, 1)]
    given.append(give(operator, [1], [0.5], [8]))
    assert sum_deltas(given, 7) == Counter(
        [(1, 0.5, 1, 1), (2, 0.5, 2, 2), (1, 0.5, 3, 3), (2, 0.5, 2, 4), (1, 0.5, 3, 5)]
    )
    assert sum_deltas(given, 8)[(1, 0.5, 4, 6)] == 1
    assert all((delta.weight > 0).all() for delta in (given[0], given[-1]))


def test_what_frames_have_passed_is_dropped() -> None:
    by = (0,)
    calls = (
        EarlierValue(by, D, 1, 3),
        FramedAggregate(by, N, RowFrame(50, of_time=True), COUNT),
        FramedAggregate(by, N, RowFrame(9, 2), COUNT),
    )
    operator, chance, count = node(*calls).operator(), np.random.default_rng(5), 20_000
    keys = chance.integers(0, 7, count).tolist()
    values, at = chance.normal(size=count).tolist(), (np.arange(count) // 3).tolist()
    given = [
        give(operator, keys[lo : lo + 90], values[lo : lo + 90], at[lo : lo + 90])
        for lo in range(0, count, 90)
    ]
    expected: list[tuple[float | None, int, int]] = [(None, 0, 0)] * count
    for key in range(7):
        own = [n for n in range(count) if keys[n] == key]
        instants = np.array([at[n] for n in own])
        for place, n in enumerate(own):
            since = np.searchsorted(instants, at[n] - 50)
            up_to = np.searchsorted(instants, at[n], side="right")
            before = values[own[place - 3]] if place >= 3 else None
            rows = max(0, place - 1) - max(0, place - 9)
            expected[n] = (before, int(up_to - since), rows)
    found = [
        row
        for delta in given
        for row in zip(*(c.to_pylist() for c in delta.rows.columns[2:]), strict=True)
    ]
    assert found == expected
    assert operator.size() < 2_500


def test_a_sum_of_doubles_depends_on_no_row_that_has_left() -> None:
    """2^60 has left the frame; a sum that was added up and taken from would have lost the rest."""
    total = FramedAggregate((), D, RowFrame(1), SumOfDoubles(Argument(1, D), D))
    operator = node(total).operator()
    values = [2.0**60, 0.1, 0.2, -(2.0**60), 2.0**60, 0.3, 0.7]
    steps = [give(operator, [1], [value], [n]) for n, value in enumerate(values)]
    found = [step.rows.column(2)[0].as_py() for step in steps]
    assert found == [sum(values[max(0, n - 1) : n + 1]) for n in range(len(values))]
