"""Memory is divided for the best predicted precision, never worse than equally."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.operators.protocol.precision import (
    EXACT,
    Precision,
    eliminate_duplicates,
    join_rows,
    sample_rows,
    unite_rows,
)
from millpond.planner.approximate.allocation import allocate, round_down, share_equally

#: A plan over three windows, by its name: what it makes of the windows' shares.
PLANS = {
    "join": lambda a, b, c: join_rows(join_rows(a, b), c),
    "union": lambda a, b, c: unite_rows([a, b, c], [100.0, 10.0, 1.0]),
    "distinct": lambda a, b, c: unite_rows([eliminate_duplicates(a, 9.0), b, c], [1.0, 1.0, 1.0]),
    "intersect": lambda a, b, c: join_rows(
        eliminate_duplicates(a, 5.0), eliminate_duplicates(unite_rows([b, c], [1.0, 2.0]), 0.5)
    ),
}


def predict_by(name: str, shares: Sequence[float]) -> Precision:
    found: Precision = PLANS[name](*(sample_rows(EXACT, share) for share in shares))
    return found


@given(
    st.sampled_from(sorted(PLANS)),
    st.tuples(*[st.floats(1.0, 1e9)] * 3),
    st.floats(0.001, 0.5),
    st.floats(0.01, 1.5),
)
@settings(max_examples=25)
def test_it_fits_and_is_not_worse_than_equal_shares(
    name: str, needs: tuple[float, ...], lowest: float, part: float
) -> None:
    least = [lowest] * 3
    granted = max(part, lowest) * sum(needs)
    found = allocate(lambda shares: predict_by(name, shares), needs, least, granted)
    assert found is not None
    assert all(lowest <= share <= 1 for share in found)
    assert sum(n * s for n, s in zip(needs, found, strict=True)) <= granted * (1 + 1e-6)
    equal = predict_by(name, share_equally(needs, least, granted))
    assert predict_by(name, found).missing <= equal.missing + 1e-9


def test_shares_that_are_rounded_are_not_below_the_least() -> None:
    least = [1 / 3, 1 / 7, 1e-10]
    for granted in 1.0, 30.0, 1e6:
        shares = share_equally([100.0, 10.0, 1.0], least, granted)
        assert all(s >= own for s, own in zip(shares, least, strict=True))


def test_what_has_copies_gets_less() -> None:
    shares = allocate(lambda s: predict_by("distinct", s), [900, 100, 100], [0.01] * 3, 300)
    assert shares is not None
    assert shares[0] < 0.2
    assert shares[1] == pytest.approx(1)
    assert shares[2] == pytest.approx(1)


def test_without_a_formula_nothing_is_divided() -> None:
    assert allocate(lambda shares: None, [1.0, 1.0], [0.1, 0.1], 1.0) is None


@given(st.floats(0.0001, 1.0), st.floats(0.0001, 1.0))
@settings(max_examples=50)
def test_shares_are_rounded_down(share: float, least: float) -> None:
    share = max(share, least)
    rounded = round_down(share, least)
    assert least * 100 <= rounded <= share * 100 * (1 + 1e-6)
    assert rounded >= share * 99
