"""Changes folded by key, against what a table has that applies them one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.results import Changes
from millpond.service.sinks.keyed_rows import fold_answer, fold_changes
from millpond.service.sinks.sender import DeliveryError


def events(*changes: tuple[int, str, Any, int]) -> list[FeedEvent]:
    """Changes of a query with the columns k and v: instant, sign, k and v of each."""
    table = pa.table(
        {
            "cursor": pa.array(range(1, len(changes) + 1), pa.int64()),
            "timestamp": pa.array([at for at, _, _, _ in changes], pa.int64()),
            "change": pa.array([sign for _, sign, _, _ in changes], pa.string()),
            "k": pa.array([k for _, _, k, _ in changes]),
            "v": pa.array([v for _, _, _, v in changes], pa.int64()),
        }
    )
    page = Changes(table, "q", f"3f2a9c.1.{len(changes)}", len(changes), 0)
    return [FeedEvent("change", None, "q", 1, changes=page, index=n) for n in range(len(changes))]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 5)), max_size=30), st.integers(0, 30))
def test_what_is_left_to_do_makes_the_table(steps: list[tuple[int, int]], cut: int) -> None:
    """Each step gives a key another value, or (-1) none; a table had the steps before the cut."""
    rows: dict[int, int] = {}
    before: dict[int, int] = {}
    changes: list[tuple[int, str, Any, int]] = []
    for at, (key, value) in enumerate(steps):
        if at == cut:
            before, changes = dict(rows), []
        if key in rows:
            changes.append((at, "-", key, rows.pop(key)))
        if value >= 0:
            rows[key] = value
            changes.append((at, "+", key, value))
    found = fold_changes(events(*changes), ["k"])
    assert {k for (k,) in found.held.values()} == {c[2] for c in changes} & before.keys()
    assert {k for (k,) in found.fresh.values()} == {c[2] for c in changes} - before.keys()
    table = {k: v for k, v in before.items() if (k,) not in found.gone.values()}
    assert table | dict(found.put.values()) == rows
    assert not found.put.keys() & found.gone.keys()


def test_a_key_that_two_rows_have_at_an_instant() -> None:
    with pytest.raises(DeliveryError, match="the key k = 1 at 1970") as stopped:
        fold_changes(events((0, "+", 1, 5), (1, "+", 2, 5), (2, "+", 1, 6)), ["k"])
    assert stopped.value.is_final
    # Within one instant the old row goes before the new one comes.
    assert fold_changes(events((0, "-", 1, 5), (0, "+", 1, 6)), ["k"]).put == {(1,): (1, 6)}
    with pytest.raises(DeliveryError, match="the key k = 1;"):
        fold_answer(pa.table({"k": [1, 2, 1], "v": [5, 5, 6]}), ["k"])


def test_a_row_without_a_key() -> None:
    with pytest.raises(DeliveryError, match=r"a NULL in its key \(k = None\)") as stopped:
        fold_changes(events((0, "+", None, 5)), ["k"])
    assert stopped.value.is_final


def test_keys_of_any_type_are_found_again() -> None:
    """A NaN equals itself, as in the database; so do lists and structs."""
    for key in (float("nan"), [1, 2], {"a": [1]}, "x", b"x"):
        found = fold_changes(events((0, "+", key, 1), (1, "-", key, 1)), ["k"])
        assert (len(found.put), len(found.gone), len(found.fresh)) == (0, 1, 1)
