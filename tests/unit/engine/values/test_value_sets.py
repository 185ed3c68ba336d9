"""Value sets as subsets of a small domain, compared with plain sets of its values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.values.value_sets import (
    EVERYTHING,
    NOTHING,
    Cut,
    Domain,
    ValueSet,
    float_key,
    interval,
    points,
)

UNIVERSE = [None, *range(-128, 128)]


def members(values: ValueSet) -> set[int | None]:
    return {v for v in UNIVERSE if v in values}


numbers = st.integers(-140, 140)
bounds = st.none() | numbers
plain = st.one_of(
    st.tuples(bounds, bounds).map(lambda b: interval(Domain.INT8, *b)),
    st.lists(numbers, max_size=6).map(lambda v: points(Domain.INT8, v)),
    st.sampled_from([EVERYTHING, NOTHING]),
)
value_sets = st.tuples(plain, plain, st.booleans()).map(
    lambda t: t[0].union(t[1].complement()) if t[2] else t[0].intersection(t[1])
)


@given(bounds, bounds)
def test_an_interval_holds_what_lies_between_its_bounds(low: int | None, high: int | None) -> None:
    want = {
        v
        for v in UNIVERSE
        if v is not None and (low is None or v >= low) and (high is None or v < high)
    }
    assert members(interval(Domain.INT8, low, high)) == want


@given(st.lists(numbers))
def test_points_are_the_values_given(values: list[int]) -> None:
    assert members(points(Domain.INT8, values)) == set(values) & set(UNIVERSE)


@given(value_sets, value_sets)
def test_set_operations_are_those_of_sets(one: ValueSet, two: ValueSet) -> None:
    assert members(one.union(two)) == members(one) | members(two)
    assert members(one.intersection(two)) == members(one) & members(two)
    assert members(one.complement()) == set(UNIVERSE) - members(one)


@given(value_sets, value_sets)
def test_equal_sets_are_equal_objects(one: ValueSet, two: ValueSet) -> None:
    assert (one == two) == (members(one) == members(two))
    assert one.is_empty == (not members(one))
    assert one.is_all == (members(one) == set(UNIVERSE))


@given(st.floats(), st.floats())
def test_places_of_doubles_have_the_order_of_duckdb(one: float, two: float) -> None:
    def place(value: float) -> tuple[bool, float]:
        return (True, 0.0) if math.isnan(value) else (False, value)

    assert (float_key(one) < float_key(two)) == (place(one) < place(two))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_next_place_is_the_next_double(value: float) -> None:
    assert float_key(math.nextafter(value, math.inf)) == float_key(value) + 1


@pytest.mark.parametrize(
    ("text", "after"), [(b"", b"\0"), (b"a", b"a\0"), ("ü".encode(), "ü\0".encode())]
)
def test_a_text_is_followed_by_itself_and_a_nul(text: Cut, after: Cut) -> None:
    assert Domain.TEXT.successor(text) == after
    assert text in points(Domain.TEXT, [text])
    assert after not in points(Domain.TEXT, [text])
