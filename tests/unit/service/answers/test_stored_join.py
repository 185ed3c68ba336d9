"""Stored joins: when what is stored answers, and when the windows are the better way."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.conftest import SECOND, components_of

from millpond.model.time import to_datetime
from millpond.service.answers import stored_join
from millpond.service.answers.stored_join import StoredJoin, StoredRows
from millpond.service.components import Components
from millpond.service.pond import Pond

TEXT = "SELECT a.v, b.v FROM a [RANGE 20 SECONDS], b [RANGE 20 SECONDS] WHERE a.k = b.k"
SELECTIVE = f"{TEXT} AND a.v > 2 AND b.v < 7"


def feed(pond: Pond, stream: str, *elements: tuple[int, int, int]) -> None:
    """Elements (second, k, v), an epoch."""
    pond.ingest(stream, [{"ts": to_datetime(at * SECOND), "k": k, "v": v} for at, k, v in elements])


@pytest.fixture
def parts(pond: Pond) -> Components:
    for name in "ab":
        pond.execute(
            f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts"
            " DELAY INTERVAL 5 SECONDS"
        )
    for name, text in (("q", TEXT), ("few", SELECTIVE)):
        pond.register(text, name)
        pond.register(text, f"plain_{name}", materialize="none")
    return components_of(pond)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[StoredRows | None]:
    """What stored joins gave, one after the other."""
    given: list[StoredRows | None] = []
    rows = StoredJoin.rows

    def record(self: StoredJoin, *arguments: Any) -> StoredRows | None:
        given.append(rows(self, *arguments))
        return given[-1]

    monkeypatch.setattr(StoredJoin, "rows", record)
    return given


def same(pond: Pond, at: int | None = None) -> None:
    """Each query's answer is that of the windows, row by row."""
    for name in ("q", "few"):
        stored, plain = (
            pond.query(each).invoke(None if at is None else at * SECOND)
            for each in (name, f"plain_{name}")
        )
        assert stored.rows() == plain.rows()


def test_stored_pairs_and_new_elements_make_the_answer(
    pond: Pond, parts: Components, found: list[StoredRows | None]
) -> None:
    feed(pond, "a", (10, 1, 1), (12, 2, 3), (14, 1, 5))
    feed(pond, "b", (11, 1, 4), (13, 2, 8), (15, 1, 6))
    pond.wait_until_matched()
    same(pond)
    assert [rows.count for rows in found if rows is not None] == [5, 2]
    # New ones are joined with old ones and among each other, though nothing is stored of them.
    parts.maintenance.stop()
    feed(pond, "a", (13, 1, 7), (16, 2, 9))
    feed(pond, "b", (16, 2, 0))
    found.clear()
    same(pond)
    same(pond, at=14)
    assert len(found) == 4
    assert None not in found


def test_what_left_the_window_is_not_in_the_answer(
    pond: Pond, parts: Components, found: list[StoredRows | None]
) -> None:
    feed(pond, "a", (10, 1, 3))
    feed(pond, "b", (12, 1, 4))
    pond.wait_until_matched()
    feed(pond, "b", (29, 2, 0))
    feed(pond, "a", (29, 3, 0))
    for at in (29, 30, 31, 40):
        same(pond, at)
    assert [rows.count for rows in found if rows is not None][:4] == [1, 1, 0, 0]


def test_elements_that_come_late_are_in_their_place(
    pond: Pond, parts: Components, found: list[StoredRows | None]
) -> None:
    for stream in "ab":
        feed(pond, stream, (14, 1, 5), (18, 1, 3))
    pond.wait_until_matched()
    for stream in "ab":
        feed(pond, stream, (15, 1, 6), (14, 1, 4))
    pond.wait_until_matched()
    feed(pond, "a", (16, 1, 6))
    same(pond)
    assert any(found)


@pytest.mark.parametrize("limits", [{"_FEW": 0, "_PER_ELEMENT": 0}, {"_FEW_FRESH": -1}])
def test_of_too_many_the_windows_are_joined(
    pond: Pond,
    parts: Components,
    found: list[StoredRows | None],
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, int],
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(stored_join, name, value)
    feed(pond, "a", (10, 1, 5))
    feed(pond, "b", (11, 1, 5))
    pond.wait_until_matched()
    parts.maintenance.stop()
    feed(pond, "b", *[(12, 1, v) for v in range(8)])
    same(pond)
    assert found == [None, None]


def test_what_is_not_stored_far_enough_back_is_joined_anew(
    pond: Pond, parts: Components, found: list[StoredRows | None]
) -> None:
    feed(pond, "a", (10, 1, 5))
    feed(pond, "b", (11, 1, 5))
    pond.wait_until_matched()
    same(pond)
    assert None not in found
    feed(pond, "a", (90, 1, 5))
    feed(pond, "b", (90, 1, 5))
    pond.wait_until_matched()
    # Pairs whose window ended long ago are forgotten.
    (core,) = parts.log.version.joins.cores.values()
    assert core.since_of(0) == 70 * SECOND
    found.clear()
    same(pond)
    assert None not in found
    found.clear()
    same(pond, at=20)
    assert found == [None, None]


def test_what_was_merged_with_newer_elements_is_joined_once(
    pond: Pond, parts: Components, found: list[StoredRows | None]
) -> None:
    for second in (10, 11, 12):
        for stream in "ab":
            feed(pond, stream, (second, 1, second - 6))
    pond.wait_until_matched()
    (core,) = parts.log.version.joins.cores.values()
    parts.joins.failed[core.id] = "held back, while segments go on being merged"
    for second in range(13, 25):
        for stream in "ab":
            feed(pond, stream, (second, second % 2, 5))
    pond.wait_until_matched()
    oldest = min(parts.log.version.segments(core.stream_ids[0]), key=lambda s: s.min_ts)
    assert oldest.epoch > core.epoch
    same(pond)
    assert None not in found
