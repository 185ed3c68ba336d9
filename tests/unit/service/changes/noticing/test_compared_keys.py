"""What plans' joins compare is looked at: once, again when there is much more, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import plan_query
from tests.unit.service.versions import segment, stream, version_of

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model.constraints import FOREIGN_KEY, UNIQUE, Constraint
from millpond.model.schema import Field, Schema
from millpond.service.changes.noticing.compared_keys import KeyObserver
from millpond.state.version import SegmentRef, StreamClock, StreamState, Version

SCHEMA = Schema((Field("ts", "TIMESTAMP"), Field("Id", "BIGINT"), Field("n", "BIGINT")))
PARTS, ORDERS = (replace(stream(i, n), schema=SCHEMA) for i, n in ((1, "parts"), (2, "Orders")))
JOIN = "SELECT p.n FROM parts [RANGE 1 DAY] p, orders [RANGE 1 DAY] o WHERE "


@pytest.fixture(scope="module")
def pond() -> OraclePond:
    pond = OraclePond()
    for name in ("parts", "Orders"):
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, Id BIGINT, n BIGINT) TIMESTAMP BY ts")
    return pond


class Opened:
    """Opens segments whose elements are one a second: Id is its number, n this over 50."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.error: MillpondError | None = None

    def segment(self, ref: SegmentRef) -> Any:
        self.opened.append(ref.stream_id)
        if self.error is not None:
            raise self.error
        numbers = np.arange(ref.min_ts, ref.min_ts + ref.rows)
        table = {"__ts": numbers, "__seq": numbers, "Id": numbers % 100, "n": numbers // 100}
        return SimpleNamespace(table=pa.table(table))


def version(rows: int) -> Version:
    """Both streams with so many elements each, in two segments."""
    states, half = {}, rows // 2
    for id in (1, 2):
        held = tuple(
            segment(id, low, low + half - 1, id=10 * id + n, rows=half)
            for n, low in enumerate((0, half))
        )
        states[id] = StreamState(data=held, clock=StreamClock(next_seq=rows))
    return version_of(PARTS, ORDERS, states=states)


def own(_: Version, found: StreamDef) -> Sequence[Constraint]:
    return [Constraint("u", UNIQUE, ("Id", "n"))]


def test_references_are_looked_at_when_there_is_enough_and_again_when_much_more(
    pond: OraclePond,
) -> None:
    files: Any = Opened()
    observer = KeyObserver(files)
    nodes = list(plan_query(pond.world, JOIN + "p.id = o.id AND p.n = o.n").nodes())
    assert observer.list_references(version(2_000), PARTS, own) == ()
    assert observer.learn(nodes)
    assert not observer.learn(nodes)
    assert observer.list_references(version(998), PARTS, own) == ()
    assert files.opened == []
    (found,) = observer.list_references(version(2_000), PARTS, own)
    assert (found.kind, found.columns, found.references) == (FOREIGN_KEY, ("Id", "n"), "Orders")
    assert (found.rows, found.observed) == (0, True)
    assert found.name == "observed foreign key (Id, n) references Orders"
    assert files.opened == [1, 1, 2, 2]
    observer.list_references(version(7_998), PARTS, own)
    assert len(files.opened) == 4
    observer.list_references(version(8_000), PARTS, own)
    assert len(files.opened) == 8


def test_keys_of_several_columns_are_looked_at_unless_fewer_are_unique(pond: OraclePond) -> None:
    files: Any = Opened()
    observer = KeyObserver(files)
    observer.learn(plan_query(pond.world, JOIN + "p.id = o.id AND p.n = o.n").nodes())
    (key,) = observer.list_keys(version(2_000), ORDERS, ())
    assert (key.kind, key.columns, key.name) == (UNIQUE, ("Id", "n"), "observed unique (Id, n)")
    assert observer.list_keys(version(2_000), ORDERS, [Constraint("u", UNIQUE, ("id",))]) == ()
    assert observer.list_keys(version(2_000), ORDERS, [Constraint("u", UNIQUE, ("ID", "N"))]) == ()


def test_clusters_of_what_groupings_group_by_are_looked_at(pond: OraclePond) -> None:
    files: Any = Opened()
    observer = KeyObserver(files)
    for text in ("SELECT n, count(*) FROM orders GROUP BY n", "SELECT count(*) FROM orders"):
        assert not observer.learn(plan_query(pond.world, text).nodes())
    # No group leaves memory while rows leave a window.
    kept = "SELECT n, id, count(*) FROM orders [RANGE 1 DAY] GROUP BY n, id"
    assert not observer.learn(plan_query(pond.world, kept).nodes())
    nodes = list(plan_query(pond.world, kept.replace(" [RANGE 1 DAY]", "")).nodes())
    assert observer.learn(nodes)
    assert not observer.learn(nodes)
    found = observer.list_keys(version(2_000), ORDERS, ())
    assert [one.name for one in found] == ["observed unique (Id, n)"]


def test_what_is_not_compared_or_declared_or_cannot_be_read_is_not_observed(
    pond: OraclePond,
) -> None:
    files: Any = Opened()
    observer = KeyObserver(files)
    assert not observer.learn(plan_query(pond.world, JOIN + "p.id < o.id").nodes())
    assert observer.learn(plan_query(pond.world, JOIN + "p.id = o.id").nodes())
    assert observer.list_keys(version(2_000), PARTS, ()) == ()
    assert observer.list_references(version(2_000), PARTS, own) == ()  # Id alone is not unique
    assert files.opened == []
    observer.learn(plan_query(pond.world, JOIN + "p.id = o.id AND p.n = o.n").nodes())
    files.error = MillpondError("STORE-602", "torn")
    assert observer.list_references(version(2_000), PARTS, own) == ()
    assert files.opened == [1]
