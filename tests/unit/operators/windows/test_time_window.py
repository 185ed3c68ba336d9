"""A window over time whose elements may come late."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.model.patterns import Pattern
from millpond.model.windows import Now, Range, Unbounded, Window, interval
from millpond.operators.protocol.delta import Delta
from millpond.operators.source import StreamSource
from millpond.operators.windows.time_window import TimeWindow

ELEMENTS = StreamSource("s", ("v",), (pa.int64(),))
WINDOWS = (Range(5), Range(6, 2), Now(), Unbounded())


def feed(elements: list[int]) -> Delta:
    """Elements whose values are their timestamps."""
    values = pa.array(elements, pa.int64())
    rows = pa.RecordBatch.from_arrays([values], schema=ELEMENTS.schema)
    return Delta.of(rows, np.array(elements, np.int64))


@pytest.mark.parametrize("window", WINDOWS, ids=repr)
@settings(max_examples=20)
@given(st.lists(st.tuples(st.lists(st.integers(0, 20), max_size=5), st.integers(0, 4)), max_size=8))
def test_it_holds_at_each_step_what_came_so_far(
    window: Window, steps: list[tuple[list[int], int]]
) -> None:
    running = TimeWindow(ELEMENTS, window, in_order=False).operator()
    came: list[int] = []
    given: list[Delta] = []
    upto = 0
    for elements, after in steps:
        upto += after
        came += elements
        delta = running.advance([feed(sorted(elements))], upto, DuckDBScalars())
        assert (np.diff(delta.at) >= 0).all()
        assert (delta.at < delta.until).all()
        given.append(delta)
        held = [
            int(value)
            for one in given
            for value in one.where((one.at <= upto) & (upto < one.until)).rows.column(0).to_pylist()
        ]
        low, high = interval(window, upto)
        expected = [t for t in came if t <= high and (low is None or low <= t)]
        assert sorted(held) == sorted(expected)


def test_rows_leave_in_another_order_than_they_came() -> None:
    late = [TimeWindow(ELEMENTS, window, in_order=False) for window in WINDOWS]
    assert [node.pattern for node in late] == [*[Pattern.WEAK] * 3, Pattern.MONOTONIC]
    in_order = [TimeWindow(ELEMENTS, window) for window in WINDOWS]
    assert [node.pattern for node in in_order] == [*[Pattern.WEAKEST] * 3, Pattern.MONOTONIC]
    assert {node.key for node in late}.isdisjoint(node.key for node in in_order)
