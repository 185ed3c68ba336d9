"""What do composite tuples save when a new join query probes kept data? PSoup's figure 11.

The query is `R.a < c1 AND R.a op2 S.b AND S.b op3 c2`. Its structs for the kept elements of R are
hybrid: each still has to find partners in S by `S.b op2 a` and `S.b op3 c2`. *Separate*: each
struct probes the Data SteM of S by itself, with both factors. *Composite*: the factor they share is
applied to S once, and the structs, batched, are one sort-merge with what it leaves. (Part of what a
struct by itself costs is Python's call, some 5 us.) Op2 and op3 are
equality or inequality, as in the paper; both ways must find the same pairs.

    python benchmarks/papers/composite_tuples.py [--kept 200000] [--structs 10,100,1000,10000]
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

from _harness import picture, seconds, show
from millpond.engine.joins.arrangement import SortedRun, build
from millpond.engine.joins.probe import GREATEST, LEAST, expand, probe

#: Structs that probe one by one; what all of them would take is worked out from these.
SEPARATELY = 500
SPAN = 1_000_000


def bounds(op: str, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest S.b for `S.b op value`; an inequality leaves a thousandth."""
    if op == "=":
        return value, value
    return value, value + SPAN // 1000


def separate(values: np.ndarray, op2: str, op3: tuple[int, int], kept: SortedRun) -> int:
    """Pairs found struct by struct, with both factors in each probe."""
    pairs = 0
    for value in values:
        one = np.array([value], np.int64)
        struct = build(None, one)
        low, high = bounds(op2, one)
        found = probe(struct, np.maximum(low, op3[0]), np.minimum(high, op3[1]), kept)
        left, _ = expand(struct, found, kept)
        pairs += len(left)
    return pairs


def composite(values: np.ndarray, op2: str, op3: tuple[int, int], kept: SortedRun) -> int:
    """Pairs found by one merge of all structs with what the shared factor leaves of S."""
    first, last = np.searchsorted(kept.order, [op3[0], op3[1] + 1])
    rest = SortedRun(kept.keys[first:last], kept.order[first:last], kept.place[first:last])
    structs = build(None, values)
    low, high = bounds(op2, structs.order)
    found = probe(structs, low, high, rest)
    left, _ = expand(structs, found, rest)
    return len(left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kept", type=int, default=200_000)
    parser.add_argument("--structs", default="10,100,1000,10000")
    options = parser.parse_args()
    counts = [int(n) for n in options.structs.split(",")]
    chance = np.random.default_rng(6)
    kept = build(None, chance.integers(0, SPAN, options.kept))
    ranges = {"=": (SPAN // 3, SPAN // 3), "<": (LEAST // 2, SPAN // 2), "none": (LEAST, GREATEST)}
    rows, lines = [], {}
    for op2, op3 in (("=", "<"), ("<", "<"), ("<", "="), ("=", "none")):
        ys: list[float] = []
        for count in counts:
            values = chance.integers(0, SPAN, count)
            few, shared = values[:SEPARATELY], ranges[op3]
            assert separate(few, op2, shared, kept) == composite(few, op2, shared, kept)
            alone = seconds(partial(separate, few, op2, shared, kept)) * count / len(few)
            together = min(seconds(partial(composite, values, op2, shared, kept)) for _ in "123")
            rows.append([f"{op2}, {op3}", count, alone * 1e3, together * 1e3, alone / together])
            ys.append(together * 1e3)
        lines[f"composite: {op2}, {op3}"] = (counts, ys)
        lines[f"separate: {op2}, {op3}"] = (counts, [r[2] for r in rows[-len(counts) :]])
    show(
        f"Composite tuples, {options.kept:,} kept elements",
        ["op2, op3", "structs", "separate, ms", "composite, ms", "times"],
        rows,
    )
    picture("composite_tuples", "A new join query probes kept data", "hybrid structs", "ms", lines)


if __name__ == "__main__":
    main()
