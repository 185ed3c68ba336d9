"""Maintenance of totals: what queries ask for, in few files, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.service.conftest import OpenPond, components_of, rows

from millpond.service.maintenance import aggregate_maintenance
from millpond.service.maintenance.aggregate_maintenance import list_measured
from millpond.service.maintenance.backfill import Backfill
from millpond.service.pond import Pond
from millpond.state.aggregate_file import Measured, list_files, read_totals


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate_maintenance, "STORED_ROWS", 3)


@pytest.fixture
def pond(open_pond: OpenPond) -> Pond:
    pond = open_pond()
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.ingest("s", rows(1, 2, 3, 4))
    pond.ingest("s", rows(5, 6))
    return pond


def files(pond: Pond) -> list[Path]:
    return list(list_files(components_of(pond)._store.directory))


def test_a_selection_is_not_bound_to_find_what_it_aggregates(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = components_of(pond)
    totals = parts.maintenance._totals
    bound: list[str] = []
    monkeypatch.setattr(
        aggregate_maintenance,
        "list_measured",
        lambda registrar, version, query: bound.append(query.text),
    )
    sums = [
        "SELECT sum(v) AS n FROM s WHERE v > 1",
        "SELECT v FROM s GROUP BY v",
        "SELECT DISTINCT v FROM s",
    ]
    with parts.maintenance.round:
        for text in ("SELECT v FROM s WHERE v > 1", "SELECT ts, v FROM s [RANGE 1 HOUR]", *sums):
            pond.register(text)
        bound.clear()
        totals.tidy()
        assert bound == sums
        # A relation that is derived may aggregate in its own text.
        pond.execute("CREATE RELATION total AS SELECT sum(v) AS n FROM s [RANGE 1 HOUR]")
        last = pond.register("SELECT n FROM total", "last")
        bound.clear()
        totals.tidy()
        assert last.definition.text in bound


@pytest.mark.parametrize(
    ("text", "options", "measured"),
    [
        ("SELECT sum(v) AS n FROM s WHERE v > 1", {}, {Measured(0, "v")}),
        ("SELECT count(*) AS n FROM s WHERE v > 1", {}, {Measured(0, None)}),
        (
            "SELECT avg(v) AS n, max(ts) AS t FROM s",
            {},
            {Measured(None, "v"), Measured(None, "ts")},
        ),
        ("SELECT count(*) AS n FROM s", {}, set()),
        ("SELECT sum(v) AS n FROM s WHERE v > 1", {"materialize": "none"}, None),
        ("SELECT count(*) AS n FROM s$rejects", {}, None),
        ("SELECT v FROM s WHERE v > 1", {}, None),
        ("SELECT sum(v) AS n FROM s [ROWS 3]", {}, None),
    ],
)
def test_what_a_query_asks_for(
    pond: Pond, text: str, options: dict[str, str], measured: set[Measured] | None
) -> None:
    query = pond.register(text, **options)
    parts = components_of(pond)
    found = list_measured(parts.registrar, parts.log.version, query.definition)
    assert (None if found is None else set(found[1])) == measured


def test_small_segments_get_no_file(pond: Pond) -> None:
    pond.register("SELECT sum(v) AS n FROM s WHERE v > 1")
    pond.wait_until_matched()
    (file,) = files(pond)
    (blocks,) = read_totals(file).values()
    assert blocks.rows == 2


def test_queries_share_totals_and_new_ones_add_a_file(pond: Pond) -> None:
    for text in ("sum(v) AS n", "max(v) AS n"):
        pond.register(f"SELECT {text} FROM s WHERE v > 1")
        pond.wait_until_matched()
    assert len(files(pond)) == 1
    pond.register("SELECT sum(v) AS n FROM s WHERE v > 2")
    pond.wait_until_matched()
    assert len(files(pond)) == 2


def test_many_files_of_a_segment_become_one(pond: Pond) -> None:
    for number in range(10):
        pond.register(f"SELECT sum(v) AS n FROM s WHERE v > {number}")
        pond.wait_until_matched()
    most = aggregate_maintenance._MOST_FILES
    assert len(files(pond)) == 10 - most
    made = {measured for file in files(pond) for measured in read_totals(file)}
    assert made == {Measured(slot, "v") for slot in range(10)}


def test_inactive_queries_keep_nothing(pond: Pond) -> None:
    query = pond.register("SELECT sum(v) AS n FROM s WHERE v > 1", name="q")
    pond.wait_until_matched()
    pond.execute("ALTER QUERY q SET (active = false)")
    pond.wait_until_matched()
    assert files(pond) == []
    pond.execute("ALTER QUERY q SET (active = true)")
    pond.wait_until_matched()
    assert len(files(pond)) == 1
    assert query.invoke().rows() == [(5,)]


def test_a_predicate_that_fails_is_left_out(pond: Pond) -> None:
    pond.register("SELECT sum(v) AS n FROM s WHERE CAST(v || 'x' AS INTEGER) = 1")
    pond.register("SELECT sum(v) AS n FROM s WHERE v > 0")
    pond.wait_until_matched()
    (file,) = files(pond)
    assert read_totals(file).keys() == {Measured(1, "v")}


def test_totals_follow_when_matches_come_later(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Backfill, "step", lambda *_: False)
        pond.register("SELECT sum(v) AS n FROM s WHERE v > 0")
        pond.wait_until_matched()
        assert files(pond) == []
    maintenance = components_of(pond).maintenance
    for id in list(maintenance._up_to_date):
        maintenance.look_again(id)  # what the patched backfill noted
    maintenance.wake()
    pond.wait_until_matched()
    assert len(files(pond)) == 1
