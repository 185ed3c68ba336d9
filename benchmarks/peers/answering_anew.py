"""Engines that answer queries anew after each batch: DuckDB and Polars, over the same elements.

Both are given what the windows hold, in memory, and one thread, since Millpond's operators are
measured on one. DuckDB runs the query's own text over a slice of the elements. Polars gets all
queries at once, as lazy frames, so that it finds what they share (`collect_all`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

SECOND = 1_000_000
#: One query of a benchmark: its aggregates' number, minutes of its window, least `n` or None.
Asked = tuple[int, int, int | None]
#: An answer: the rows by their group.
Answer = dict[int, tuple[float | int | None, ...]]


def through_duckdb(texts: Sequence[str], table: pa.Table, batch: int) -> tuple[float, list[Answer]]:
    """Seconds to answer the queries once after each batch, and the last answers."""
    stamps = table["__ts"].to_numpy()
    spent = 0.0
    last: list[pa.Table] = []
    with duckdb.connect(config={"threads": "1"}) as connection:
        for end in _ends(table, batch):
            kept, now = table.slice(0, end), int(stamps[end - 1])
            start = time.perf_counter()
            last = []
            for text in texts:
                head, window, tail = text.replace("]", "[").split("[")
                size = int(window.split()[1]) * 60 * SECOND
                first = int(np.searchsorted(stamps[:end], now - size, side="right"))
                connection.register("s", kept.slice(first))
                last.append(connection.sql(head + tail).to_arrow_table())
            spent += time.perf_counter() - start
    return spent, [by_group(answer) for answer in last]


def through_polars(
    asked: Sequence[Asked], table: pa.Table, batch: int
) -> tuple[float, list[Answer]]:
    """The same by Polars, all queries of a batch in one call."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before it is imported for the first time
    import polars as pl

    aggregates = _polars_aggregates(pl)
    stamps = table["__ts"].to_numpy()
    frame = pl.from_arrow(table)
    spent = 0.0
    last: list[Any] = []
    for end in _ends(table, batch):
        now = int(stamps[end - 1])
        start = time.perf_counter()
        lazy = []
        windows: dict[int, Any] = {}
        for number, minutes, least in asked:
            if minutes not in windows:
                first = int(np.searchsorted(stamps[:end], now - minutes * 60 * SECOND, "right"))
                windows[minutes] = frame.slice(first, end - first).lazy()
            answer = windows[minutes].group_by("k").agg(aggregates[number])
            lazy.append(answer if least is None else answer.filter(pl.col("n") > least))
        last = pl.collect_all(lazy)
        spent += time.perf_counter() - start
    return spent, [by_group(answer.to_arrow()) for answer in last]


def by_group(answer: pa.Table) -> Answer:
    """Rows of an answer by the group in its first column."""
    columns = [column.to_pylist() for column in answer.columns]
    return dict(zip(columns[0], zip(*columns[1:], strict=True), strict=True))


def _ends(table: pa.Table, batch: int) -> list[int]:
    """Up to which element the table was read after each batch."""
    return [min(low + batch, table.num_rows) for low in range(0, table.num_rows, batch)]


def _polars_aggregates(pl: Any) -> list[list[Any]]:
    """The benchmark's aggregates, in its order, as Polars' expressions."""
    n = pl.len().alias("n")
    size, price = pl.col("size"), pl.col("price")
    return [
        [n, size.sum().alias("total")],
        [n, price.mean().alias("mean")],
        [price.sum().alias("total"), price.count().alias("n")],
        [size.mean().alias("mean"), n],
        [(size > 50).sum().alias("big"), n],
        [pl.when((price > 500).any()).then(size.filter(price > 500).sum()).alias("total"), n],
        [price.max().alias("most"), n],
        [price.min().alias("least"), price.max().alias("most"), n],
        [price.std().alias("spread"), n],
        [n, (size * 2).sum().alias("twice")],
    ]
