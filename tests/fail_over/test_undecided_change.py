"""A change that failed, whose record is in the journal all the same: it is there after a start."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.conftest import components_of

from millpond.errors import MillpondError
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
