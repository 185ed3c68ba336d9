"""What is observed of a run of elements is what they satisfy, and no more than is worth using."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.operators.structures.observed_constraints import (
    observe_constraints,
    observe_key,
    observe_reference,
)


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


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ([i % 40 for i in range(2_000)], ("unique", None)),
        ([i // 80 for i in range(2_000)], ("clustered", 0)),
        ([0] * 2_000, None),
        ([None] * 1_500 + [i % 40 for i in range(500)], None),
    ],
    ids=["unique", "clustered", "neither", "null"],
)
def test_of_several_columns_keys_are_seen(
    other: list[int | None], expected: tuple[str, int | None] | None
) -> None:
    own = [i // 40 for i in range(2_000)]
    if expected is None:
        own = [i % 1_000 for i in range(2_000)]
    run = pa.table({"a": own, "b": other})
    found = observe_key(run, ("a", "b"))
    assert (found and (found.kind, found.rows)) == expected
    assert found is None or found.columns == ("a", "b")


def refer(parts: list[tuple[int, int]], orders: list[tuple[int, int]]) -> int | None:
    """What is seen of elements (instant, key) that refer to others; k, or None for nothing."""
    tables = []
    for elements in (parts, orders):
        at, ids = (np.array(values, np.int64) for values in zip(*sorted(elements), strict=True))
        tables.append(pa.table({"__ts": at, "id": ids, "name": [f"n{i}" for i in ids.tolist()]}))
    run, referenced = tables
    found = {
        observe_reference(run, columns, referenced, columns, "orders")
        for columns in (("id",), ("name",), ("id", "name"))
    }
    every = {None if one is None else one.rows for one in found}
    (k,) = every
    return k


COMING = [(10 * i, i) for i in range(2_000)]


def test_references_to_what_came_before_have_k_0() -> None:
    assert refer([(10 * i + 3, i) for i in range(2_000)], COMING) == 0
    assert refer([(10 * i, i) for i in range(2_000)], COMING) == 0
    # A few that many refer to, all of them long before.
    assert refer([(10_000 + i, i % 50) for i in range(2_000)], [(i, i) for i in range(50)]) == 0


@pytest.mark.parametrize("behind", [1, 3, 40])
def test_references_to_what_comes_later_have_twice_the_k_that_was_seen(behind: int) -> None:
    """What the last ones refer to may still come."""
    parts = [(10 * (i - behind) + 5, i) for i in range(50, 2_000 + behind - 1)]
    assert refer(parts, COMING) == 2 * behind


def test_references_to_what_did_not_come_say_nothing() -> None:
    parts = [(10 * i + 3, i) for i in range(1_000)]
    assert refer([*parts, *[(10 * i + 3, 10_000 + i) for i in range(500)]], COMING) is None
    assert refer([(10 * i, i) for i in range(1_500)], [(5 * i, -i) for i in range(1, 999)]) is None
    assert refer(parts[:999], COMING) is None
