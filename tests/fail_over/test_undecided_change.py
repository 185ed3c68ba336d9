"""A change that failed, whose record is in the journal all the same: it is there after a start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.conftest import components_of

from millpond.catalog.objects import SYSTEM_ACTIONS
from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.service.pond import Pond
from millpond.state.database.database import Database
from millpond.testing.local_runtime import open_local

ROWS = [{"v": v} for v in range(5)]


def break_journal(pond: Pond, monkeypatch: pytest.MonkeyPatch, table: str) -> Database:
    """Let the next record about a table be written, its sync fail, and it not be taken back."""
    database = components_of(pond).log._database
    journal = database._journal
    append = journal.append

    def fail_behind(statements: Iterable[Any]) -> None:
        asked = list(statements)
        append(asked)
        if any(table in str(statement) for statement in asked):
            raise MillpondError("STORE-603", "the disk gives no answer")

    def refuse(mark: tuple[int, int]) -> None:
        raise OSError("the disk gives no answer")

    monkeypatch.setattr(journal, "append", fail_behind)
    monkeypatch.setattr(journal, "take_back", refuse)
    return database


@pytest.mark.parametrize("table", ["INTO inbox", "INTO segment"])
def test_rows_of_a_change_that_is_undecided_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    with open_local(tmp_path) as pond:
        pond.execute("CREATE STREAM s (v BIGINT)")
        database = break_journal(pond, monkeypatch, table)
        with pytest.raises(MillpondError, match="STORE-603"):
            pond.ingest("s", ROWS)
        assert not database.is_decided
        monkeypatch.undo()
    with open_local(tmp_path) as pond:
        pond.catch_up()
        assert pond.ask("SELECT v FROM s ORDER BY v").table.to_pylist() == ROWS


def test_rows_of_an_undecided_change_of_the_pond_s_own_streams_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_local(tmp_path) as pond:
        database = break_journal(pond, monkeypatch, "INTO segment")
        rows = [("shed", "s", 0.0, 1.0, 0.5, "why")]
        with pytest.raises(MillpondError, match="STORE-603"):
            components_of(pond).system_streams.append(SYSTEM_ACTIONS, rows)
        assert not database.is_decided
        monkeypatch.undo()
    with open_local(tmp_path) as pond:
        assert pond.ask("SELECT name FROM system$actions").rows() == [("s",)]


def test_changes_of_an_undecided_redefinition_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = (
        "CREATE OR REPLACE QUERY q WITH (changes = 'from beginning') AS SELECT v FROM s WHERE v > "
    )
    with open_local(tmp_path) as pond:
        pond.execute("CREATE STREAM s (v BIGINT)")
        pond.execute(create + "1")
        pond.ingest("s", ROWS)
        pond.catch_up()
        assert len(pond.query("q").fetch()) == 3
        database = break_journal(pond, monkeypatch, "INTO segment")
        with pytest.raises(MillpondError, match="STORE-603"):
            pond.execute(create + "2")
        assert not database.is_decided
        monkeypatch.undo()
    with open_local(tmp_path) as pond:
        assert "v > 2" in pond.query("q").definition.text
        held: Counter[int] = Counter()
        cursor = None
        for _ in ("old definition", "new definition"):
            page = pond.query("q").fetch(cursor)
            for change in page:
                held[change.row[0]] += 1 if change.sign == "+" else -1
            cursor = page.cursor
        assert sorted((+held).elements()) == [3, 4]


def test_elements_of_an_undecided_reset_of_a_clock_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [{"ts": to_datetime(second * 1_000_000)} for second in (1, 2, 900)]
    with open_local(tmp_path) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts")
        pond.ingest("s", seconds)
        database = break_journal(pond, monkeypatch, "segment")
        with pytest.raises(MillpondError, match="STORE-603"):
            pond.execute("ALTER STREAM s RESET CLOCK TO TIMESTAMP '1970-01-01 00:00:02'")
        assert not database.is_decided
        monkeypatch.undo()
    with open_local(tmp_path) as pond:
        pond.catch_up()
        assert pond.ask("SELECT count(*) FROM s").rows() == [(2,)]
        assert pond.ask("SELECT count(*) FROM s$rejects").rows() == [(1,)]
        segments = components_of(pond).log.version.segments_by_id.values()
        # Files that this process has seen stay open when they are removed.
        assert all((tmp_path / segment.path).exists() for segment in segments)
