"""Exact sums held to fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.operators.aggregation.cells import Layout
from millpond.synopses.double_walks import walk_doubles, walk_moments
from millpond.synopses.exact_doubles import ExactSums
from millpond.synopses.running_totals import walk_counts

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [1e16, -1e16, 1.0, 0.1, -0.0, 5e-324, 1.7e308, -1.7e308, 2.0**-1022]
)


@settings(max_examples=150)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 1), NUMBERS, st.integers(-3, 1_000_000)),
            min_size=1,
            max_size=8,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_sums_and_squares_are_exact_and_rounded_once(steps) -> None:
    """Over several batches, with weights, each value as far from the others as doubles reach."""
    plain, both, layout = ExactSums(), ExactSums(with_squares=True), Layout()
    plain.reserve(2)
    both.reserve(2)
    counted = np.zeros(2, np.int64)
    held: list[list[tuple[Fraction, int]]] = [[], []]
    for step in steps:
        groups, values, weights = (np.array(column) for column in zip(*step, strict=True))
        values = values.astype(np.float64)
        cells = layout.lay_out(groups, np.arange(len(step)), 2)
        in_order = weights[cells.order]
        plain.reach(values, weights)
        both.reach(values, weights)
        counts, exponents = np.empty((2, cells.places), np.int64)
        sums, spreads = np.empty((2, cells.places))
        where = (cells.bounds, cells.starts, cells.groups)
        walk_counts(*where, in_order, counted, counts)
        args = (cells.order, *where, in_order, values)
        walk_doubles(*args, plain.base, plain.words, plain.specials, sums)
        walk_moments(
            *args, both.base, both.words, both.squares, both.specials, counts, spreads, exponents
        )
        for t, group in enumerate(cells.groups.tolist()):
            for c in range(cells.starts[t], cells.starts[t + 1]):
                place = cells.order[cells.bounds[c]]
                held[group].append((Fraction(values[place]), int(weights[place])))
                total = sum((v * w for v, w in held[group]), Fraction(0))
                squares = sum((v * v * w for v, w in held[group]), Fraction(0))
                n = sum(w for _, w in held[group])
                assert counts[c + t + 1] == n
                assert sums[c + t + 1] == rounded(total)
                spread = n * squares - total * total
                if n > 0 and spread >= 0:
                    found = Fraction(spreads[c + t + 1]) * Fraction(2) ** int(exponents[c + t + 1])
                    assert abs(found - spread) <= spread / 2**53


def rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
