"""When elements leave windows of rows: as their meaning says, in whatever order they come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.catalog.objects import StreamDef
from millpond.model.schema import Field, Schema
from millpond.model.windows import Rows
from millpond.service.answers.counted_lives import CountedLives

STREAM = StreamDef(1, "s", Schema((Field("k", "VARCHAR"),)))
Element = tuple[int, str | None]
ELEMENTS = st.tuples(st.integers(0, 9), st.sampled_from(["a", None]))


def add(lives: CountedLives, elements: list[Element], first: int) -> dict[int, int]:
    """Add elements in the order of their timestamps; return when which of all leave."""
    table = pa.table(
        {
            "k": pa.array([k for _, k in elements], pa.string()),
            "__ts": pa.array([at for at, _ in elements], pa.int64()),
        }
    )
    left, at = lives.add(table, np.arange(first, first + len(elements)))
    return dict(zip(left.tolist(), at.tolist(), strict=True))


def held_at(elements: list[Element], window: Rows, now: int) -> set[int]:
    """The numbers of the elements that the window holds, by the definition."""
    there = sorted((at, n, k) for n, (at, k) in enumerate(elements) if at <= now)
    parts: dict[str | None, list[int]] = {}
    for _, number, k in there:
        parts.setdefault(k if window.by else "", []).append(number)
    return {number for part in parts.values() for number in part[-window.count :]}


@pytest.mark.parametrize("window", [Rows(2), Rows(1, ("k",)), Rows(2, ("k",))], ids=str)
@settings(max_examples=30)
@given(st.lists(st.lists(ELEMENTS, min_size=1, max_size=4), max_size=6))
def test_what_has_not_left_is_in_the_window(window: Rows, steps: list[list[Element]]) -> None:
    lives = CountedLives(window, STREAM)
    came: list[Element] = []
    until: dict[int, int] = {}
    for step in steps:
        step = sorted(step, key=lambda element: element[0])
        until |= add(lives, step, len(came))
        came += step
        for now in range(max(at for at, _ in came), 11):
            held = {n for n, (at, _) in enumerate(came) if at <= now < until.get(n, 99)}
            assert held == held_at(came, window, now)
    assert (lives.nbytes > 0) == bool(came)
