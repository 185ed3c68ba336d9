"""ROWS windows: what is held, and that a step costs what it brings."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.source import StreamSource
from millpond.operators.structures.row_store import RowStore
from millpond.operators.windows.rows_window import RowsWindow

TYPES = [pa.string(), pa.int64()]
SOURCE = StreamSource("s", ("k", "v"), tuple(TYPES))


def delta(keys: list[str | None], values: list[int], at: list[int]) -> Delta:
    columns = [pa.array(keys, pa.string()), pa.array(values, pa.int64())]
    rows = pa.RecordBatch.from_arrays(columns, schema=positional_schema(TYPES))
    return Delta.of(rows, np.array(at, np.int64))


@pytest.mark.parametrize(("count", "by"), [(1, (0,)), (3, (0,)), (40, ()), (1, ())])
def test_it_holds_the_last_of_each_key(count: int, by: tuple[int, ...]) -> None:
    rng = np.random.default_rng(count)
    operator = RowsWindow(SOURCE, count, by).operator()
    held: Counter[tuple[str | None, int]] = Counter()
    last: dict[object, list[tuple[str | None, int]]] = defaultdict(list)
    number = now = 0
    for _ in range(60):
        size = int(rng.integers(0, 30))
        keys = [(None, "a", "b", "c", "d")[i] for i in rng.integers(0, 5, size)]
        at = (now + np.cumsum(rng.integers(0, 2, size))).tolist()
        values = list(range(number, number + size))
        number, now = number + size, (at[-1] if at else now) + 1
        for row in zip(keys, values, strict=True):
            queue = last[row[0] if by else "all"]
            queue.append(row)
            del queue[:-count]
        given = operator.advance([delta(keys, values, at)], now, DuckDBScalars())
        assert (np.diff(given.at) >= 0).all()
        rows = zip(*[c.to_pylist() for c in given.rows.columns], strict=True)
        for row, weight in zip(rows, given.weight.tolist(), strict=True):
            held[row] += weight
        assert +held == Counter(row for queue in last.values() for row in queue)
        assert min(held.values(), default=0) >= 0
        operator = pickle.loads(pickle.dumps(operator))
        alive = sum(map(len, last.values()))
        assert operator.size() == alive
        assert len(operator._rows) <= 2 * alive + 64 + 30


def test_rows_are_picked_from_several_batches() -> None:
    store, values = RowStore(positional_schema(TYPES)), 0
    for size in (64, 16, 4, 1):
        rows = delta(["x"] * size, list(range(values, values + size)), [0] * size).rows
        store.add(rows)
        values += size
    assert len(store._batches) > 2
    places = np.random.default_rng(1).permutation(values)
    assert store.pick(places).column(1).to_pylist() == places.tolist()
    assert store.pick(np.array([3, 3, 1])).column(1).to_pylist() == [3, 3, 1]
    assert store.pick(np.array([84, 80])).column(1).to_pylist() == [84, 80]
