"""What is observed of a run of elements is what they satisfy, and no more than is worth using."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.operators.structures.observed_constraints import observe_constraints


def observe(values: list[object] | np.ndarray, type_: pa.DataType | None = None) -> set[object]:
    run = pa.table({"a": pa.array(values, type_)})
    return {(c.kind, c.rows) for c in observe_constraints(run)}


def measure_spread(values: list[int]) -> int:
    """By definition: elements with other values between two with one value."""
    found = 0
    for value in set(values):
        places = [i for i, other in enumerate(values) if other == value]
        inside = values[places[0] : places[-1] + 1]
        found = max(found, sum(other != value for other in inside))
    return found


def measure_lateness(values: list[int]) -> int:
    """By definition: elements after the first greater one, up to a smaller one."""
    found = 0
    for place, value in enumerate(values):
        greater = [i for i in range(place) if values[i] > value]
        found = max(found, place - greater[0] if greater else 0)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_k_is_twice_what_was_seen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = (np.arange(1_000) // 3 + rng.integers(0, 1 + 2 * seed, 1_000)).tolist()
    spread, late = measure_spread(values), measure_lateness(values)
    expected = {("ordered", 2 * late)} if 2 * late <= 50 else set()
    if 2 * spread <= 50:
        expected |= {("clustered", 2 * spread)}
    assert observe(values) == expected


def test_what_comes_once_is_unique() -> None:
    names = [f"n{i * 7919 % 1_009}" for i in range(1_000)]
    assert observe(names) == {("unique", None)}
    assert observe([*names[:-1], None, *names[:1]]) == set()


def test_too_little_says_nothing() -> None:
    assert observe(list(range(999))) == set()
    assert observe([1, 2, 3] * 500) == set()
    assert observe([float(i) for i in range(2_000)]) == set()
