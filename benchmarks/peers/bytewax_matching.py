"""Elements through N filters in one flow of bytewax; the numbers of what matches are kept.

The documentation advises to give a step many items at once. Two ways are measured:

- `items`: an element is an item, and each filter is a `filter` step. The source gives them by the
  thousand.
- `batches`: an item is NumPy arrays of 10,000 elements, and each filter is a `map` step that
  compares whole columns. The comparison is NumPy's then, and bytewax only moves the batches. Nobody
  has to write filters this way, and it is the fastest that we found.

Filters of one flow do not know of each other: an equality is compared by every filter. One worker
runs: a second one is a thread of the same Python, and takes turns with the first. Half of the
processors is therefore idle, which seconds of the processor do not count against it.

    python bytewax_matching.py items|batches ranges|equalities ELEMENTS CONSTANTS
"""

from __future__ import annotations

import json
import sys
import time

import bytewax.operators as op
import numpy as np
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import TestingSource, run_main

A_BATCH = 10_000


class Keep(DynamicSink):
    """Appends what a filter lets through to the list of its query."""

    def __init__(self, kept: list) -> None:
        self._kept = kept

    def build(self, _step: str, _index: int, _count: int) -> StatelessSinkPartition:
        kept = self._kept

        class Partition(StatelessSinkPartition):
            def write_batch(self, items: list) -> None:
                kept.extend(items)

        return Partition()


def main(way: str, kind: str, elements: str, constants: str) -> None:
    columns = 5 if kind == "ranges" else 1
    table = np.fromfile(elements, np.int32).reshape(-1, columns)
    numbers = np.arange(len(table))
    if kind == "ranges":
        bounds = np.fromfile(constants, np.int32).reshape(-1, columns, 2)
    else:
        bounds = np.repeat(np.fromfile(constants, np.int32)[:, None, None], 2, axis=2)
    kept: list[list] = [[] for _ in bounds]
    flow = Dataflow("matching")
    if way == "items":
        items = list(zip(numbers.tolist(), *table.T.tolist(), strict=True))
        source = op.input("in", flow, TestingSource(items, batch_size=1_000))
    else:
        items = [
            (numbers[low : low + A_BATCH], *np.ascontiguousarray(table[low : low + A_BATCH].T))
            for low in range(0, len(table), A_BATCH)
        ]
        source = op.input("in", flow, TestingSource(items, batch_size=1))
    for query, ends in enumerate(bounds.tolist()):
        chosen = filtered(way, kind, f"q{query}", source, ends)
        op.output(f"out{query}", chosen, Keep(kept[query]))
    begun, processor = time.perf_counter(), time.process_time()
    run_main(flow)
    took, used = time.perf_counter() - begun, time.process_time() - processor
    if way == "items":
        found = [[item[0] for item in some] for some in kept]
    else:
        found = [np.concatenate(some).tolist() for some in kept]
    print(
        json.dumps(
            {
                "seconds": took,
                "processor": used,
                "rows": len(table),
                "matches": sum(map(len, found)),
                "sum": sum(map(sum, found)),
            }
        )
    )


def filtered(way: str, kind: str, step: str, source: object, ends: list[list[int]]) -> object:
    """The stream of what one query matches."""
    if kind == "equalities":
        wanted = ends[0][0]
        if way == "items":
            return op.filter(step, source, lambda item: item[1] == wanted)
        return op.map(step, source, lambda item: item[0][item[1] == wanted])
    (a0, a1), (b0, b1), (c0, c1), (d0, d1), (e0, e1) = ends
    if way == "items":
        return op.filter(
            step,
            source,
            lambda item: (
                a0 <= item[1] <= a1
                and b0 <= item[2] <= b1
                and c0 <= item[3] <= c1
                and d0 <= item[4] <= d1
                and e0 <= item[5] <= e1
            ),
        )

    def compare(item: tuple[np.ndarray, ...]) -> np.ndarray:
        number, a, b, c, d, e = item
        hit = (a >= a0) & (a <= a1) & (b >= b0) & (b <= b1) & (c >= c0) & (c <= c1)
        hit &= (d >= d0) & (d <= d1) & (e >= e0) & (e <= e1)
        return number[hit]

    return op.map(step, source, compare)


if __name__ == "__main__":
    main(*sys.argv[1:])
