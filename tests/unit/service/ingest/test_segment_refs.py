"""Built segments in the epoch log: arrival is numbered by splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.runtime.batch_tasks import BuiltSegment, SplitRun
from millpond.service.ingest.segment_refs import number_runs
from millpond.state.arrow_file import FileMeta
from millpond.state.segment_file import global_seq


def segment(count: int, *runs: SplitRun) -> BuiltSegment:
    return BuiltSegment(1, "data", FileMeta(Path("x"), count, 0, ""), 0, 0, runs)


def test_no_segments_take_no_numbers() -> None:
    assert number_runs([], 7) == (7, [])


def test_runs_are_laid_by_key_and_offset() -> None:
    late = segment(5, SplitRun(0, ("b", 0), 0), SplitRun(2, ("c", 0), 0))
    early = segment(4, SplitRun(0, ("a", 9), 3), SplitRun(1, ("a", 10), 0))
    first = segment(3, SplitRun(0, ("a", 9), 0))
    following, runs = number_runs([late, early, first], 100)
    assert following == 112
    assert runs == [((0, 107), (2, 109)), ((0, 103), (1, 104)), ((0, 100),)]


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
    st.integers(1, 4),
)
def test_numbers_do_not_depend_on_which_task_built_what(
    sizes: list[int], random: object, tasks: int
) -> None:
    """Every split's rows have the numbers they would have had in one task."""
    pieces = []
    for key, size in enumerate(sizes):
        cut = random.randint(0, size)  # type: ignore[attr-defined]
        pieces += [(key, 0, cut), (key, cut, size - cut)]
    pieces = [p for p in pieces if p[2]]
    dealt = [[p for n, p in enumerate(pieces) if n % tasks == task] for task in range(tasks)]
    built, places = [], []
    for share in dealt:
        runs, start, place = [], 0, []
        for key, offset, count in share:
            runs.append(SplitRun(start, (key,), offset))
            start += count
            place += [(key, offset + i) for i in range(count)]
        if start:
            built.append(segment(start, *runs))
            places.append(place)
    following, runs_of = number_runs(built, 50)
    assert following == 50 + sum(sizes)
    numbers = {
        where: int(number)
        for place, own in zip(places, runs_of, strict=True)
        for where, number in zip(place, global_seq(np.arange(len(place)), own), strict=True)
    }
    assert [numbers[where] for where in sorted(numbers)] == list(range(50, 50 + sum(sizes)))
