"""Every sketch is a function of the bag of values, and keeps its word about errors."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond import synopses
from millpond.cql.print.approximations import write_kept_value
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.model.approximation import (
    APPROXIMATE,
    BUCKETS,
    CONFIDENCE,
    COUNT_DISTINCT,
    COUNT_OF,
    ERROR,
    LEAST_HASHES,
    QUANTILE,
)
from millpond.synopses.sketches import SKETCHES, Sketch
from millpond.synopses.sketches.least_hashes import LeastHashes
from millpond.synopses.sketches.log_histogram import LogHistogram
from millpond.synopses.sketches.signed_counts import SignedCounts

_DOUBLES = st.floats(allow_subnormal=True) | st.integers(-(10**6), 10**6).map(float)


def sketch_of(function: str, values: pa.Array) -> Sketch:
    sql = write_kept_value(function, "v")
    kept = ScalarEvaluator.of_this_thread().values(pa.table({"v": values}), sql).drop_null()
    return SKETCHES[function].create(kept.to_numpy())


def bits(sketch: Sketch) -> bytes:
    return sketch.pack().tobytes()


def test_every_function_has_a_sketch_and_every_file_is_one() -> None:
    assert set(SKETCHES) == set(APPROXIMATE)
    files = (Path(synopses.__file__).parent / "sketches").glob("[a-z]*.py")
    modules = {kind.__module__.rpartition(".")[2] for kind in SKETCHES.values()}
    assert {file.stem for file in files} == modules


@pytest.mark.parametrize("function", APPROXIMATE)
@given(
    values=st.lists(st.none() | _DOUBLES, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    seed=st.integers(0, 1_000),
)
def test_a_sketch_is_a_function_of_the_bag(
    function: str, values: list[float | None], cuts: list[int], seed: int
) -> None:
    whole = sketch_of(function, pa.array(values, pa.float64()))
    shuffled = values.copy()
    random.Random(seed).shuffle(shuffled)
    ends = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    parts = [
        sketch_of(function, pa.array(shuffled[low:high], pa.float64()))
        for low, high in pairwise(ends)
    ]
    merged = SKETCHES[function].merge(parts)
    assert bits(merged) == bits(whole)
    half = SKETCHES[function].merge([parts[-1], SKETCHES[function].merge(parts[:-1])])
    assert bits(half) == bits(whole)
    assert bits(SKETCHES[function].unpack(whole.pack())) == bits(whole)
    assert whole.nbytes <= 16 * max(len(values), 1)


@given(st.lists(_DOUBLES.filter(lambda v: v == v), min_size=1, max_size=60), st.floats(0, 1))
def test_a_quantile_is_within_its_error(values: list[float], share: float) -> None:
    sketch = sketch_of(QUANTILE, pa.array(values, pa.float64()))
    assert isinstance(sketch, LogHistogram)
    rank = max(1, len(values) - int(np.floor(len(values) - share * len(values))))
    exact = sorted(values)[rank - 1]
    found = sketch.estimate(share)
    assert found is not None
    assert found == exact or abs(found - exact) <= abs(exact) / 64 <= ERROR * abs(exact)


def test_a_quantile_of_nothing_is_null() -> None:
    assert sketch_of(QUANTILE, pa.array([None], pa.float64())).estimate(0.5) is None  # type: ignore[call-arg, union-attr]


@pytest.mark.parametrize("size", [0, 1, LEAST_HASHES - 1])
def test_few_distinct_values_are_counted_exactly(size: int) -> None:
    sketch = sketch_of(COUNT_DISTINCT, pa.array([*range(size), *range(size)], pa.int64()))
    assert isinstance(sketch, LeastHashes)
    assert sketch.estimate() == size


def test_many_distinct_values_are_within_the_error_as_often_as_said() -> None:
    """Over 400 bags; more failures than the expected number by 4σ would break the promise."""
    rng = np.random.default_rng(20030105)
    cases = 400
    wrong = 0
    for case in range(cases):
        size = int(rng.integers(LEAST_HASHES, 60_000))
        start = int(rng.integers(-(2**62), 2**62))
        step = int(rng.integers(1, 1_000))
        values = pa.array(np.arange(size, dtype=np.int64) * step + start)
        if case % 4 == 0:
            values = values.cast(pa.string())
        sketch = sketch_of(COUNT_DISTINCT, values)
        assert isinstance(sketch, LeastHashes)
        wrong += abs(sketch.estimate() - size) > ERROR * size
    expected = cases * (1 - CONFIDENCE)
    assert wrong <= expected + 4 * np.sqrt(expected * CONFIDENCE)
    assert wrong > 0  # else the sketch is larger than its promise needs


@given(st.lists(st.integers(0, 30), max_size=80), st.integers(0, 40))
def test_few_values_are_counted_exactly(values: list[int], wanted: int) -> None:
    """No two of these values have one counter."""
    sketch = sketch_of(COUNT_OF, pa.array(values, pa.int64()))
    assert isinstance(sketch, SignedCounts)
    assert sketch.estimate(hash_of(wanted)) == values.count(wanted)


def hash_of(value: int) -> int:
    table = pa.table({"v": pa.array([value], pa.int64())})
    (found,) = ScalarEvaluator.of_this_thread().values(table, "hash(v)").to_pylist()
    return int(found)


def test_counts_of_values_are_within_the_error_as_often_as_said() -> None:
    """Of thousands of values of skewed bags; the error is of the root of the squared counts."""
    rng = np.random.default_rng(20030107)
    asked = wrong = 0
    for _ in range(6):
        counts = (200_000 / np.arange(1, 150_001) ** rng.uniform(0.1, 0.9)).astype(np.int64) + 1
        start = int(rng.integers(-(2**40), 2**40))
        values = pa.array(np.arange(start, start + len(counts)))
        table = pa.table({"v": values})
        hashes = ScalarEvaluator.of_this_thread().values(table, "hash(v)").to_numpy()
        # One value a time would be as many additions: a bag is its distinct values, counted.
        signs = np.where(hashes >= np.uint64(2**63), 1, -1)
        buckets = (hashes % np.uint64(BUCKETS)).astype(np.int64)
        sketch = SignedCounts._add_up(buckets, signs * counts)
        root = float(np.sqrt((counts.astype(np.float64) ** 2).sum()))
        for place in rng.integers(0, len(counts), 500).tolist():
            asked += 1
            found = sketch.estimate(int(hashes[place]))
            wrong += abs(found - int(counts[place])) > ERROR * root
    expected = asked * (1 - CONFIDENCE)
    assert wrong <= expected + 4 * np.sqrt(expected)
