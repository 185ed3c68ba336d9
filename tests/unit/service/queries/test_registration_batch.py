"""Batches of registrations: names, and slots and cores that queries of one batch share."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.conftest import components_of

from millpond.catalog.objects import QueryDef
from millpond.service.components import Components
from millpond.service.pond import Pond
from millpond.service.queries.registration_batch import RegistrationBatch


@pytest.fixture
def parts(pond: Pond) -> Components:
    for name in "st":
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts")
    pond.register("SELECT v FROM s WHERE v > 1", "first")
    return components_of(pond)


@pytest.fixture
def batch(parts: Components) -> RegistrationBatch:
    return RegistrationBatch(parts.log.next_id, 1_000)


def add(parts: Components, batch: RegistrationBatch, text: str, **options: Any) -> QueryDef:
    id, name = batch.assign_id(parts.log.version)
    definition = QueryDef(id, name, text, options)
    batch.add(parts.log.version, definition, parts.registrar.bind(text))
    return definition


def test_names_are_taken_once(parts: Components, batch: RegistrationBatch) -> None:
    version = parts.log.version
    for name in ("s", "First", "x$rejects", "X$REJECTS"):
        assert batch.is_taken(version, name)
    assert not batch.is_taken(version, "second")
    definition = QueryDef(99, "Second", "SELECT v FROM s")
    batch.add(version, definition, parts.registrar.bind(definition.text))
    assert batch.is_taken(version, "sECOND")


def test_a_given_name_is_one_that_nobody_has(pond: Pond, parts: Components) -> None:
    numbers = iter([70, 71])
    pond.register("SELECT v FROM s", "q70")
    batch = RegistrationBatch(lambda: next(numbers), 0)
    assert batch.assign_id(parts.log.version) == (71, "q71")


def test_equal_predicates_share_a_slot(parts: Components, batch: RegistrationBatch) -> None:
    for text in (
        "SELECT k FROM s WHERE 1 < v",
        "SELECT k FROM s WHERE v > 5 AND k = 2",
        "SELECT v FROM s [ROWS 2] WHERE k = 2 AND v > 5",
        "SELECT k FROM t WHERE v > 5 AND k = 2",
        "SELECT k FROM s",
    ):
        add(parts, batch, text)
    shared, first, second, other, none = [leaf.slot for leaf in batch.leaves]
    (known,) = parts.log.version.leaves(parts.registrar.find("first").id)
    assert shared == known.slot == 0
    assert first == second == 1
    assert other == 0  # the first of `t`
    assert none is None
    assert [(s.stream_id, s.slot) for s in batch.slots] == [
        (batch.leaves[1].stream_id, 1),
        (batch.leaves[3].stream_id, 0),
    ]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("SELECT k FROM s WHERE v > 5", {"active": False}),
        ("SELECT k FROM s WHERE v > 5", {"materialize": "none"}),
        ("SELECT raw FROM s$rejects WHERE reason = 'x'", {}),
    ],
)
def test_who_is_not_matched_has_no_slot(
    parts: Components, batch: RegistrationBatch, text: str, options: dict[str, Any]
) -> None:
    query = add(parts, batch, text, **options)
    assert [leaf.slot for leaf in batch.leaves] == [None]
    assert batch.slots == []
    assert batch.prepared[query.id].factors[0] is not None


def test_equal_joins_share_a_core(pond: Pond, parts: Components, batch: RegistrationBatch) -> None:
    join = "SELECT s.v FROM s [RANGE {} SECONDS], t WHERE s.k = t.k"
    add(parts, batch, join.format(3))
    add(parts, batch, join.format(9))
    add(parts, batch, "SELECT s.v FROM s, t WHERE s.v = t.v")
    add(parts, batch, "SELECT s.v FROM s [ROWS 3], t WHERE s.v = t.k")
    add(parts, batch, join.format(4), active=False)
    joins = batch.change_joins()
    assert [use.core_id for use in joins.uses] == [-1, -1, -2]
    assert len(joins.cores) == 2
    # A core that is there already is used.
    pond.register(join.format(5), "joined")
    core, _ = parts.log.version.joins.core_of(parts.registrar.find("joined").id) or (None, None)
    assert core is not None
    later = RegistrationBatch(parts.log.next_id, 0)
    add(parts, later, join.format(7))
    assert [use.core_id for use in later.change_joins().uses] == [core.id]
    assert later.change_joins(drop_uses=[5]).drop_uses == [5]


def test_instants_are_kept_once() -> None:
    batch = RegistrationBatch(lambda: 1, 0)
    one, again = batch.instant(10**15), batch.instant(10**14 * 10)
    assert one is again


# -- additions that were made before others registered ------------------------------------------


def test_additions_are_numbered_behind_what_came_meanwhile(
    pond: Pond, parts: Components, batch: RegistrationBatch
) -> None:
    before = parts.log.version
    for text in (
        "SELECT v FROM s WHERE v > 1",
        "SELECT v FROM s WHERE v > 7",
        "SELECT v FROM t WHERE v > 7",
        "SELECT v FROM s",
    ):
        add(parts, batch, text)
    batch.prepared.clear()
    assert batch.move(before, before)
    pond.register("SELECT v FROM s WHERE v > 8")
    s, t = (stream.id for stream in pond.streams())
    assert batch.move(before, parts.log.version)
    assert [(x.stream_id, x.slot) for x in batch.leaves] == [(s, 0), (s, 2), (t, 0), (s, None)]
    assert [(x.stream_id, x.slot) for x in batch.slots] == [(s, 2), (t, 0)]


def test_additions_share_the_slots_that_came_meanwhile(
    pond: Pond, parts: Components, batch: RegistrationBatch
) -> None:
    before = parts.log.version
    for value in (1, 7, 8, 9, 8):
        add(parts, batch, f"SELECT v FROM s WHERE v > {value}")
    add(parts, batch, "SELECT v FROM t WHERE v > 8")
    batch.prepared.clear()
    pond.register("SELECT v FROM s WHERE v > 20")
    pond.register("SELECT k FROM s WHERE v > 8")
    s, t = (stream.id for stream in pond.streams())
    assert batch.move(before, parts.log.version)
    # Others have 1 (v > 20) and 2 (v > 8) now; 0 was shared before.
    assert [(x.stream_id, x.slot) for x in batch.leaves] == [
        (s, 0), (s, 3), (s, 2), (s, 4), (s, 2), (t, 0)
    ]  # fmt: skip
    assert [(x.stream_id, x.slot) for x in batch.slots] == [(s, 3), (s, 4), (t, 0)]
    anew = RegistrationBatch(parts.log.next_id, 0)
    for value in (1, 7, 8, 9, 8):
        add(parts, anew, f"SELECT v FROM s WHERE v > {value}")
    add(parts, anew, "SELECT v FROM t WHERE v > 8")
    assert anew.slots == batch.slots
    assert [leaf.slot for leaf in anew.leaves] == [leaf.slot for leaf in batch.leaves]


@pytest.mark.parametrize(
    "meanwhile",
    [
        "DROP QUERY first",  # its slot is shared
        "CREATE QUERY TAKEN AS SELECT v FROM s",
        "CREATE QUERY x AS SELECT a.v FROM s [RANGE 1 DAY] a, t [RANGE 1 DAY] b WHERE a.k = b.k",
        "CREATE STREAM u (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts",
        "CREATE RELATION r (v INTEGER)",
        "ALTER STREAM s ADD COLUMN w INTEGER",
    ],
)
def test_additions_that_would_be_others_now_are_made_anew(
    pond: Pond, parts: Components, batch: RegistrationBatch, meanwhile: str
) -> None:
    before = parts.log.version
    add(parts, batch, "SELECT v FROM s WHERE v > 1")
    add(parts, batch, "SELECT v FROM s WHERE v > 7")
    add(parts, batch, "SELECT a.v FROM s [RANGE 3 MINUTE] a, t [RANGE 3 MINUTE] b WHERE a.k = b.k")
    batch.add(
        before, QueryDef(99, "taken", "SELECT v FROM s"), parts.registrar.bind("SELECT v FROM s")
    )
    batch.prepared.clear()
    pond.execute("CREATE QUERY other AS SELECT v FROM t WHERE v > 1")
    assert batch.move(before, parts.log.version)
    pond.execute(meanwhile)
    assert not batch.move(before, parts.log.version)
