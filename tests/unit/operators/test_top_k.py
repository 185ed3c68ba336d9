"""The first rows of a bag that changes, held to sorting it at every instant."""

from __future__ import annotations

import pickle
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.source import RelationSource
from millpond.operators.top_k import SortColumn, TopK

TYPES = [pa.int64(), pa.string()]


class Scalars:
    def compute(self, rows, sqls):
        with duckdb.connect() as connection:
            connection.register("edge_rows", rows)
            answer = connection.sql(f"SELECT {', '.join(sqls)} FROM edge_rows").to_arrow_table()
        return [column.combine_chunks() for column in answer.columns]

    def query(self, sql, tables):
        raise AssertionError


def node(count: int, skip: int) -> TopK:
    source = RelationSource("r", ("v", "k"), tuple(TYPES))
    return TopK(source, 2, (SortColumn(0, descending=True),), count, skip)


@pytest.mark.parametrize(
    ("count", "skip", "spread"),
    [
        (3, 0, 5),
        (10, 4, 50),
        (1, 0, 10**9),
        (0, 3, 5),
        (40, 30, 8),
        (1 << 61, 7, 20),
        (5, 1 << 61, 5),
    ],
)
def test_it_follows_what_sorting_says(count: int, skip: int, spread: int) -> None:
    rng = np.random.default_rng(count)
    operator = node(count, skip).operator()
    bag: list[tuple[int, str]] = []
    held: Counter = Counter()
    at = 0
    for _ in range(12):
        changes = []
        for _ in range(60):
            at += int(rng.integers(0, 2))
            if bag and rng.random() < 0.45:
                changes.append((at, -1, bag.pop(int(rng.integers(0, len(bag))))))
            else:
                # Ever smaller ones, now and then, so that labels run out of room between two.
                row = (int(rng.integers(0, spread)), "ab"[int(rng.integers(0, 2))])
                bag.append(row)
                changes.append((at, 1, row))
        at += 1
        columns = [pa.array([c[2][i] for c in changes], t) for i, t in enumerate(TYPES)]
        delta = Delta.of(
            pa.RecordBatch.from_arrays(columns, schema=positional_schema(TYPES)),
            np.array([c[0] for c in changes]),
            None,
            np.array([c[1] for c in changes]),
        )
        given = operator.advance([delta], at, Scalars())
        rows = list(zip(*[c.to_pylist() for c in given.rows.columns], strict=True))
        assert (np.diff(given.at) >= 0).all()
        for row, weight in zip(rows, given.weight.tolist(), strict=True):
            held[row] += weight
        wanted = sorted(bag, key=lambda r: (-r[0], r[1]))[skip : skip + count]
        assert +held == Counter(wanted)
        operator = pickle.loads(pickle.dumps(operator))


def test_labels_given_anew_change_nothing() -> None:
    """Rows that come each just before the last use up the room between two labels."""
    operator = node(2, 0).operator()
    held: Counter = Counter()
    for step in range(200):
        value = 1_000_000 - step if step % 2 else step
        rows = pa.RecordBatch.from_arrays(
            [pa.array([value]), pa.array(["x"])], schema=positional_schema(TYPES)
        )
        given = operator.advance([Delta.of(rows, np.array([step]))], step, Scalars())
        for moved, weight in zip(given.rows.column(0).to_pylist(), given.weight, strict=True):
            held[moved] += int(weight)
    assert +held == Counter([999_999, 999_997])


def test_rows_that_are_gone_are_forgotten() -> None:
    operator = node(2, 0).operator()
    for step in range(40):
        values = [*range(step * 20, step * 20 + 20), *range((step - 1) * 20, step * 20)]
        weights = [1] * 20 + [-1] * 20
        if step == 0:
            values, weights = values[:20], weights[:20]
        rows = pa.RecordBatch.from_arrays(
            [pa.array(values), pa.array(["x"] * len(values))], schema=positional_schema(TYPES)
        )
        at = np.full(len(values), step)
        operator.advance([Delta.of(rows, at, None, np.array(weights))], step, Scalars())
        assert operator.size() <= 120
        assert len(operator._sort_keys) <= 120
