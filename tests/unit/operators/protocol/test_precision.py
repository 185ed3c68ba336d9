"""The formulas of precision, each held to data that has the multiplicities it is told."""

from __future__ import annotations

import numpy as np
import pytest

from millpond.operators.protocol.precision import (
    EXACT,
    Precision,
    eliminate_duplicates,
    join_rows,
    sample_rows,
    subtract_rows,
    unite_rows,
)

VALUES = 20_000
Rows = dict[int, int]


class Side:
    """Rows as values: those of the exact edge, those it is given, and its precision by count.

    Of `universe` values each has Poisson-many rows, which are kept by chance; as many other values
    for each exact row as `wrong` says come in, and are kept by the same chance.
    """

    def __init__(self, seed: int, copies: float, kept: float, wrong: float) -> None:
        random = np.random.default_rng(seed)
        exact = random.poisson(copies, VALUES)
        others = random.poisson(copies * wrong, VALUES)
        # Wrong values are values that the other side may have, but never one of the exact rows.
        others[exact > 0] = 0
        others = (others * (VALUES / max((exact == 0).sum(), 1))).astype(np.int64)
        self.exact = exact
        self.given = random.binomial(exact, kept) + random.binomial(others, kept)
        self.precision = measure(self.exact, self.given)


def measure(exact: np.ndarray, given: np.ndarray) -> Precision:
    rows = exact.sum()
    missing = np.maximum(exact - given, 0).sum() / rows
    return Precision(missing, np.maximum(given - exact, 0).sum() / rows)


def is_near(predicted: Precision, measured: Precision, by: float = 0.02) -> bool:
    return (
        abs(predicted.missing - measured.missing) <= by
        and abs(predicted.wrong - measured.wrong) <= by
    )


CASES = [
    # copies left, kept left, wrong left, the same of the right
    (1.0, 0.5, 0.0, 1.0, 0.7, 0.0),
    (3.0, 0.2, 0.0, 2.0, 0.9, 0.0),
    (0.3, 0.9, 0.0, 4.0, 0.1, 0.0),
]


@pytest.mark.parametrize("case", CASES)
def test_joins_and_intersections(case: tuple[float, ...]) -> None:
    left, right = Side(1, *case[:3]), Side(2, *case[3:])
    measured = measure(left.exact * right.exact, left.given * right.given)
    assert is_near(join_rows(left.precision, right.precision), measured)
    once = [
        eliminate_duplicates(side.precision, c) for side, c in ((left, case[0]), (right, case[3]))
    ]
    both = (left.exact > 0) & (right.exact > 0)
    found = (left.given > 0) & (right.given > 0)
    assert is_near(join_rows(*once), measure(both.astype(int), found.astype(int)))


@pytest.mark.parametrize("case", CASES)
def test_unions_and_distinct_rows(case: tuple[float, ...]) -> None:
    left, right = Side(3, *case[:3]), Side(4, *case[3:])
    rows = [float(left.exact.sum()), float(right.exact.sum())]
    measured = measure(
        np.concatenate([left.exact, right.exact]), np.concatenate([left.given, right.given])
    )
    assert is_near(unite_rows([left.precision, right.precision], rows), measured)
    for side, copies in ((left, case[0]), (right, case[3])):
        exact, given = (side.exact > 0).astype(int), (side.given > 0).astype(int)
        assert is_near(eliminate_duplicates(side.precision, copies), measure(exact, given))


@pytest.mark.parametrize("case", CASES)
def test_differences_have_wrong_rows_where_the_right_lacks_some(case: tuple[float, ...]) -> None:
    left, right = Side(5, *case[:3]), Side(6, *case[3:])
    exact = np.where(right.exact > 0, 0, left.exact)
    given = np.where(right.given > 0, 0, left.given)
    common = float(left.exact[right.exact > 0].sum() / left.exact.sum())
    once = eliminate_duplicates(right.precision, case[3])
    assert once.missing > 0.01
    assert is_near(subtract_rows(left.precision, once, common), measure(exact, given), 0.05)


def test_wrong_rows_on_one_side() -> None:
    """Each wrong row has a partner as often as a right one."""
    random = np.random.default_rng(7)
    exact, other = random.poisson(2.0, VALUES), random.poisson(2.0, VALUES)
    half = np.arange(VALUES) % 2 == 0
    whole = np.where(half, exact, 0)  # exact rows have even values, wrong ones odd values
    wrong = np.where(half, 0, random.binomial(exact, 0.25))
    given = random.binomial(whole + wrong, 0.6)
    left = measure(whole, given)
    assert 0.1 < left.wrong < 0.2
    assert 0 < left.false_positives < 0.3
    assert is_near(join_rows(left, EXACT), measure(whole * other, given * other))
    kept = random.binomial(given, 0.5)
    assert is_near(sample_rows(left, 0.5), measure(whole, kept))
    assert is_near(
        unite_rows([left, EXACT], [1.0, 3.0]), Precision(left.missing / 4, left.wrong / 4)
    )


def test_wrong_values_subtracted_hide_rows() -> None:
    """Values that the right side has wrongly are values of the left as often as right ones."""
    common = 0.5
    found = subtract_rows(EXACT, Precision(0.0, 0.2), common)
    assert found.missing == pytest.approx(0.2)
    assert found.wrong == 0.0
    assert subtract_rows(EXACT, EXACT, 1.0) == EXACT
    assert subtract_rows(EXACT, EXACT, 0.3) == EXACT


def test_what_is_exact_stays_exact() -> None:
    assert join_rows(EXACT, EXACT) == EXACT
    assert unite_rows([EXACT, EXACT], [1.0, 2.0]) == EXACT
    assert eliminate_duplicates(EXACT, 3.0) == EXACT
    assert sample_rows(EXACT, 1.0) == EXACT
    assert EXACT.false_positives == 0.0
