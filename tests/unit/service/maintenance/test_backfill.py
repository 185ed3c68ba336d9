"""Backfill: what a segment lacks, how work is dealt out, and which files of matches are folded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.versions import segment, version_of

from millpond.service.maintenance.backfill import (
    Backfill,
    choose_matches_to_fold,
    covered_upto,
    shares,
)
from millpond.state.id_map import IdMap
from millpond.state.version import MatchRef, Version


def matches(*ranges: tuple[int, int], sizes: int | list[int] = 10) -> tuple[MatchRef, ...]:
    each = sizes if isinstance(sizes, list) else [sizes] * len(ranges)
    return tuple(
        MatchRef(id, 1, low, upto, f"matches/{id}", "sum", size)
        for id, ((low, upto), size) in enumerate(zip(ranges, each, strict=True))
    )


def version(*ranges: tuple[int, int]) -> Version:
    return version_of(matches_of=IdMap[tuple[MatchRef, ...]]().with_changes({1: matches(*ranges)}))


@pytest.mark.parametrize(
    ("ranges", "upto"),
    [
        ([], 0),
        ([(0, 4)], 4),
        ([(0, 4), (4, 9)], 9),
        ([(0, 4), (2, 3)], 4),
        ([(0, 4), (5, 9)], 4),
        ([(1, 9)], 0),
    ],
)
def test_a_segment_is_matched_up_to_the_first_gap(ranges: list[tuple[int, int]], upto: int) -> None:
    assert covered_upto(version(*ranges), 1) == upto
    assert covered_upto(version(*ranges), 2) == 0


def test_shares_have_about_as_many_rows() -> None:
    segments = [segment(1, 0, 9, id=n, rows=rows) for n, rows in enumerate((10, 70, 25, 40, 60))]
    dealt = shares(segments, 2)
    assert sorted(sum(s.rows for s in own) for own in dealt) == [100, 105]
    assert {s.id for own in dealt for s in own} == {0, 1, 2, 3, 4}
    assert shares(segments[:1], 4) == [segments[:1]]
    assert shares([], 2) == []


def test_few_files_are_left_alone() -> None:
    ranges = [(n, n + 1) for n in range(16)]
    assert choose_matches_to_fold(matches(*ranges[:15])) == ()
    assert choose_matches_to_fold(matches(*ranges)) == matches(*ranges)


def test_a_large_file_is_folded_when_the_newer_ones_have_grown() -> None:
    ranges = [(n, n + 1) for n in range(17)]
    small = choose_matches_to_fold(matches(*ranges, sizes=[1_000, *[10] * 16]))
    assert [m.id for m in small] == list(range(1, 17))
    grown = choose_matches_to_fold(matches(*ranges, sizes=[1_000, *[40] * 16]))
    assert [m.id for m in grown] == list(range(17))
    # However their sizes are, there are always a few to be folded.
    falling = choose_matches_to_fold(matches(*ranges, sizes=[4**n for n in range(17, 0, -1)]))
    assert len(falling) == 4


def test_matches_are_rewritten_as_often_as_they_double() -> None:
    def ref(number: int, size: int) -> MatchRef:
        return MatchRef(number, 1, number, number + 1, "", "", size)

    stored: tuple[MatchRef, ...] = ()
    written = 0
    for number in range(2_000):
        stored = (*stored, ref(number, 100))
        while parts := choose_matches_to_fold(stored):
            together = sum(p.bytes for p in parts)
            written += together
            stored = (*stored[: -len(parts)], ref(parts[0].low, together))
        assert len(stored) <= 16
    assert sum(s.bytes for s in stored) == 200_000
    assert written < 12 * 200_000


def test_without_slots_nothing_is_lacking(tmp_path: Path) -> None:
    nothing: Any = None
    backfill = Backfill(tmp_path, nothing, nothing, nothing, nothing, nothing)
    assert not backfill.step(version(), 1, [segment(1, 0, 9)])
