"""A store that an earlier commit wrote opens, with its functions, and clients see no difference.

An earlier Millpond wrote `store_1` (`tests/fixtures/make_store.py`) and was killed when it had
acknowledged pushes that were not an epoch yet. These tests open the store with this Millpond, in
this process, and hold it to what was seen when it was written: answers, changes and their cursors,
definitions, rejects; and then the same once more rows have been pushed. How workers load its
functions, and how its file source's checkpoint continues, needs Spark:
`tests/spark/test_migration_on_spark.py`.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

import stored

from millpond.cli.trust_functions import trust_functions
from millpond.engine.scalars.user_functions import load
from millpond.errors import MillpondError
from millpond.model.time import parse_instant
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

NAME = "store_1"


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What was seen of the store, which lies unpacked in the current folder."""
    monkeypatch.chdir(tmp_path)
    stored.unpack(NAME, tmp_path)
    return stored.read_expected(NAME)


@pytest.fixture
def clock(expected: dict[str, Any]) -> ManualClock:
    return ManualClock(parse_instant(expected["clock"]))


@pytest.fixture
def pond(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> Iterator[Pond]:
    """The store, opened and settled; maintenance and the advancer may log no warning.

    The one thing its owner has to do is to say that its functions are trusted.
    """
    trust_functions(Path("store"), [], True, None)
    with open_local("store", clock=clock) as opened:
        opened.wait_until_matched(stored.PATIENCE)
        yield opened
    records = caplog.get_records("setup") + caplog.records
    said = [record.message for record in records if record.levelno >= logging.WARNING]
    # The fixture is older than the file that names the DuckDB.
    assert not [one for one in said if "last opened with an unknown DuckDB" not in one]
    assert len(said) <= 1


def tables(database: Path) -> dict[str, int]:
    """The tables of a store, and how many rows each has."""
    connection = sqlite3.connect(database)
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    counts = {n: connection.execute(f"SELECT count(*) FROM {n}").fetchone()[0] for (n,) in names}
    connection.close()
    return counts


def sharing(pond: Pond, name: str) -> set[str]:
    """The queries that share a join with that one."""
    lines = pond.explain(name, "shared").splitlines()
    (line,) = (line for line in lines if line.startswith("  shared by: "))
    return set(line.removeprefix("  shared by: ").split(", "))


def test_the_fixture_has_something_of_everything(expected: dict[str, Any], tmp_path: Path) -> None:
    """Every table and folder of a new store is in the fixture, or made by migration or opening.

    If this fails, stores have a new table or folder, and a new fixture is due.
    """
    by_migration = {"journal", "set_aside"}, {"ancestor", "fold", "partition", "past_query"}
    # Caches: what opening does not find, it makes, and what is in them is computed from segments.
    caches = {"aggregates", "summaries"}
    folders = {path.parent.name for path in Path("store").rglob("*") if path.is_file()}
    with open_local(tmp_path / "new") as new:
        new.function("f", lambda x: x, arguments=["BIGINT"], returns="BIGINT")
    made = {path.name for path in (tmp_path / "new").iterdir() if path.is_dir()}
    held = {path.name for path in Path("store").iterdir() if path.is_dir()}
    assert held == made - by_migration[0] - caches
    assert held - {"checkpoints", "stems"} <= folders
    assert list(Path("store").glob(stored.FILE_LISTS))
    found = tables(Path("store/pond.db"))
    assert found.keys() == tables(tmp_path / "new" / "pond.db").keys() - by_migration[1]
    assert all(found.values()), found


def test_everything_is_as_it_was(pond: Pond, expected: dict[str, Any]) -> None:
    assert pond.status()["problems"] == []
    stored.compare(stored.seen(pond, expected["instants"]), expected["opened"])


def test_rows_acknowledged_before_it_was_killed_are_known(
    pond: Pond, expected: dict[str, Any]
) -> None:
    for one in expected["repeated"]:
        _, stream, rows, key = one["push"]
        assert one["receipt"]["duplicate"]
        assert vars(pond.ingest(stream, rows, idempotency_key=key)) == one["receipt"] | {"shed": 0}
        with pytest.raises(MillpondError, match="DATA-503"):
            pond.ingest(stream, rows[1:], idempotency_key=key)
    pond.wait_until_matched(stored.PATIENCE)
    stored.compare(stored.seen(pond, expected["instants"]), expected["opened"])


def test_a_cursor_in_the_middle_is_good(pond: Pond, expected: dict[str, Any]) -> None:
    for name, page in expected["opened"]["changes"].items():
        rows = page.get("rows", [])
        for place in {len(rows) // 2, len(rows) - 1} - {-1, 0}:
            after = rows[place - 1][0]
            assert stored.changes(pond, name, after)["rows"] == rows[place:], name


def test_life_goes_on(pond: Pond, clock: ManualClock, expected: dict[str, Any]) -> None:
    cursors = {name: page.get("cursor") for name, page in expected["opened"]["changes"].items()}
    for step in expected["later"]["steps"]:
        stored.take(pond, clock, step)
        pond.wait_until_matched(stored.PATIENCE)
    seen = stored.seen(pond, expected["later"]["instants"], cursors)
    stored.compare(seen, expected["later"]["seen"])
    assert "up to date: True" in pond.explain("told", "shared")
    for name, after in cursors.items():
        numbers = [row[0] for row in seen["changes"][name]["rows"]]
        assert numbers == list(range((after or 0) + 1, (after or 0) + 1 + len(numbers))), name


def test_it_is_the_same_when_it_is_opened_again(
    pond: Pond, clock: ManualClock, expected: dict[str, Any]
) -> None:
    pond.close()
    with open_local("store", clock=clock) as again:
        again.wait_until_matched(stored.PATIENCE)
        stored.compare(stored.seen(again, expected["instants"]), expected["opened"])


def test_its_functions_are_not_run_until_they_are_trusted(clock: ManualClock) -> None:
    """A store of an earlier commit has no seals: they are not made behind its owner's back."""
    with open_local("store", clock=clock) as pond:
        assert not any(f["trusted"] for f in pond.functions())
        states = {q.name: q.suspended for q in pond.queries()}
    suspended = {name for name, reason in states.items() if "not trusted" in (reason or "")}
    assert suspended
    trust_functions(Path("store"), [], True, None)
    with open_local("store", clock=clock) as pond:
        assert all(f["trusted"] for f in pond.functions())
        for query in pond.queries():
            assert "not trusted" not in (query.suspended or "")


def test_workers_can_read_the_functions(pond: Pond) -> None:
    found = [load(file) for file in Path("store/functions").iterdir()]
    assert {f["name"] for f in pond.functions()} <= {definition.name for definition in found}


def test_what_is_equal_to_something_old_shares_its_work(pond: Pond) -> None:
    def slots() -> dict[str, int]:
        return {stream["name"]: stream["slots"] for stream in pond.status()["streams"]}

    before = slots()
    for name in ("wanted", "either", "told", "of_three", "valuable"):
        pond.register(pond.query(name).definition.text, f"{name}_too")
    assert slots() == before
    assert {"told", "told_lately", "told_too"} <= sharing(pond, "told_too")
    assert sharing(pond, "of_three_too") == {"of_three", "of_three_counted", "of_three_too"}
