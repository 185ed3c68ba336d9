"""Elements that another store keeps are read like a store's own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.time import BEGINNING
from millpond.operators.structures.element_runs import ElementRun, LentRun, Places, find_number

FIRST = 1_000


def make_runs(stamps: list[list[int]]) -> tuple[ElementRun, ...]:
    """Runs of elements whose one column is their number."""
    runs, number = [], FIRST
    for some in stamps:
        numbers = np.arange(number, number + len(some))
        runs.append(ElementRun(np.array(some, np.int64), {0: pa.array(numbers)}, number))
        number += len(some)
    return tuple(runs)


@st.composite
def runs_and_numbers(draw: st.DrawFn) -> tuple[tuple[ElementRun, ...], list[int]]:
    steps = draw(st.lists(st.integers(0, 3), min_size=1, max_size=30))
    stamps = np.cumsum(steps).tolist()
    cuts = sorted(draw(st.sets(st.integers(1, len(stamps)), max_size=4)) | {len(stamps)})
    runs = make_runs(
        [stamps[low:high] for low, high in zip([0, *cuts[:-1]], cuts, strict=True)],
    )
    chosen = draw(st.sets(st.integers(FIRST, FIRST + len(stamps) - 1), min_size=1))
    return runs, sorted(chosen)


@given(runs_and_numbers(), st.integers(-1, 90), st.integers(0, 30))
def test_lent_elements_are_those_of_the_other_store(
    made: tuple[tuple[ElementRun, ...], list[int]], low: int, more: int
) -> None:
    runs, numbers = made
    stamps = {
        number: int(ts) for run in runs for number, ts in enumerate(run.ts.tolist(), run.first)
    }
    lent = LentRun(Places.of(np.array(numbers)), runs)
    assert lent.ts.tolist() == [stamps[n] for n in numbers]
    assert lent.column(0).to_pylist() == numbers
    assert (lent.earliest, lent.latest) == (stamps[numbers[0]], stamps[numbers[-1]])
    some = lent.between(low, low + more)
    expected = [n for n in numbers if low <= stamps[n] <= low + more]
    assert some.places.list_numbers().tolist() == expected
    if expected:
        assert some.to_own({0}).column(0).to_pylist() == expected
        odd = np.array(expected) % 2 == 1
        assert some.where(odd).places.list_numbers().tolist() == [n for n in expected if n % 2]
    every = sorted(stamps)
    for side, holds in (("left", lambda ts: ts >= low), ("right", lambda ts: ts > low)):
        after = [n for n in every if holds(stamps[n])]
        assert find_number(runs, low, side) == (after[0] if after else every[-1] + 1)


def test_what_the_other_store_has_dropped_is_before_everything() -> None:
    runs = make_runs([[1, 2, 3], [4, 5, 6]])[1:]
    lent = LentRun(Places.of(np.array([FIRST, FIRST + 4])), runs)
    assert (lent.earliest, lent.latest) == (BEGINNING, 5)
    assert lent.between(4, 9).ts.tolist() == [5]
    gone = LentRun(Places.of(np.array([FIRST])), ())
    assert (gone.latest, len(gone.between(0, 9))) == (BEGINNING, 0)


def test_numbers_far_from_the_first_are_found() -> None:
    places = Places.of(np.array([FIRST, FIRST + 3]))
    assert [places.find(n) for n in (-(1 << 60), FIRST + 1, 1 << 60)] == [0, 1, 2]
    both = places.join(Places.of(np.array([FIRST + (1 << 30)])))
    assert both is not None
    assert both.list_numbers().tolist() == [FIRST, FIRST + 3, FIRST + (1 << 30)]
    assert places.join(Places.of(np.array([FIRST + (1 << 31)]))) is None
