"""Shared joins in the database: read as they were written, after every change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from millpond.state.database.database import Database
from millpond.state.database.join_rows import read_joins, write_joins
from millpond.state.epoch.resolve_joins import ResolvedJoins, next_joins
from millpond.state.join_state import ArrangementRef, JoinCore, Joins, JoinUse, PairsRef

CORE = JoinCore(5, "key", b"\x00plan", (1, 2), 3, 2, (10, 20), 9, ((0, -5), (1, 7)))
BARE = JoinCore(6, "bare", b"", (1,))
USES = (
    JoinUse(21, 5, (0, 1), (None, 10), 0),
    JoinUse(22, 5, (1, 0), (4, None), 1),
    JoinUse(23, 6, (), (), 0),
)
PAIRS = (
    PairsRef(7, 5, 0, 1, 0, "pairs/a", 3, 10, 20, "sum", 8),
    PairsRef(8, 5, 0, 1, 1, "pairs/b", 3, -(2**62), 2**62, "sum", 8),
)
RUNS = (
    ArrangementRef(3, "k", 0, 2, "runs/3.0", 3, "sum", 8),
    ArrangementRef(3, "k", 1, 2, "runs/3.1", 0, "sum", 8),
)
ALL = ResolvedJoins(cores=(CORE, BARE), uses=USES, pairs=PAIRS, arrangements=RUNS)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(tmp_path / "pond.db")) as database:
        yield database


def shown(joins: Joins) -> tuple[object, ...]:
    return (
        dict(joins.cores),
        dict(joins.by_key),
        dict(joins.uses.items()),
        {id: dict(own.items()) for id, own in joins.members.items()},
        {id: files for id, files in joins.pairs_of.items() if files},
        dict(joins.runs_of.items()),
    )


def test_what_is_written_is_read(database: Database) -> None:
    assert shown(read_joins(database)) == shown(Joins())
    with database.transaction() as change:
        write_joins(change, ALL)
    assert shown(read_joins(database)) == shown(next_joins(Joins(), ALL))
    assert read_joins(database).cores[5] == CORE


def test_what_is_dropped_is_gone_and_what_is_put_anew_is_new(database: Database) -> None:
    with database.transaction() as change:
        write_joins(change, ALL)
    then = ResolvedJoins(
        cores=(JoinCore(5, "key", b"other", (1, 2), 4),),
        drop_cores=(6,),
        drop_uses=(USES[1], USES[2]),
        drop_pairs=(PAIRS[0],),
        drop_arrangements=(RUNS[1],),
    )
    with database.transaction() as change:
        write_joins(change, then)
    assert shown(read_joins(database)) == shown(next_joins(next_joins(Joins(), ALL), then))
    assert [file.id for file in read_joins(database).pairs(5)] == [8]
