"""Which totals an aggregate needs, and that segments outside the window are not opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.conftest import SECOND, components_of, rows

from millpond.planner.aggregates import ColumnAggregate
from millpond.service.answers import segment_aggregates
from millpond.service.answers.segment_aggregates import list_asked
from millpond.service.pond import Pond


@pytest.mark.parametrize(
    ("calls", "asked"),
    [
        ([("count", None)], [(None, True, None)]),
        ([("count", None), ("min", "a"), ("max", "a")], [("a", False, None)]),
        ([("max", "a"), ("avg", "a"), ("count", "b")], [("a", True, None), ("b", False, None)]),
        (
            [("count", None), ("approx_quantile", "a"), ("min", "a")],
            [("a", False, "approx_quantile"), ("a", False, None)],
        ),
        (
            [("count", None), ("approx_quantile", "a")],
            [(None, True, None), ("a", False, "approx_quantile")],
        ),
    ],
)
def test_a_column_is_measured_once(
    calls: list[tuple[str, str | None]], asked: list[tuple[str | None, bool, str | None]]
) -> None:
    assert list_asked([ColumnAggregate(*call) for call in calls]) == asked


@pytest.fixture
def counted(pond: Pond) -> Pond:
    """A pond with ten segments that touch each other and are not merged."""
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 9 SECONDS"
    )
    for start in range(10, 60, 10):
        pond.ingest("s", rows(*range(start, start + 10)))
    return pond


@pytest.mark.parametrize(
    ("window", "predicate", "expected", "read"),
    [
        ("[RANGE UNBOUNDED]", "true", 50, 0),
        ("[RANGE 20 SECONDS]", "true", 20, 0),
        ("[RANGE 25 SECONDS]", "true", 25, 1),
        ("[NOW]", "true", 1, 1),
        ("[RANGE 25 SECONDS]", "v < 5", 10, 1),
    ],
)
def test_only_segments_at_the_edges_are_opened(
    counted: Pond,
    monkeypatch: pytest.MonkeyPatch,
    window: str,
    predicate: str,
    expected: int,
    read: int,
) -> None:
    query = counted.register(f"SELECT count(*) AS n FROM s {window} WHERE {predicate}")
    counted.wait_until_matched()
    assert query.invoke().rows() == [(expected,)]
    opened: list[Any] = []
    find_rows = segment_aggregates.find_rows
    monkeypatch.setattr(
        segment_aggregates, "find_rows", lambda *of: opened.append(of) or find_rows(*of)
    )
    assert query.invoke().rows() == [(expected,)]
    assert len(opened) == read


def test_as_of_any_kept_instant(counted: Pond) -> None:
    query = counted.register("SELECT count(*) AS n, sum(v) AS total FROM s [RANGE 15 SECONDS]")
    for at in range(0, 70):
        inside = [t % 10 for t in range(10, 60) if at - 15 < t <= at]
        assert query.invoke(at * SECOND).rows() == [(len(inside), sum(inside) if inside else None)]


def test_an_answer_survives_files_that_vanish(counted: Pond, tmp_path: Path) -> None:
    query = counted.register("SELECT max(v) AS n FROM s [RANGE 1 HOUR]")
    counted.wait_until_matched()
    for file in (components_of(counted)._store.directory / "aggregates").iterdir():
        file.unlink()
    assert query.invoke().rows() == [(9,)]
