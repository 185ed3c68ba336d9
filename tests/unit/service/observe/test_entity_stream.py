"""`system$entities`: the control tables are a stream, which is written while somebody reads it."""

from __future__ import annotations

import json

import pytest
from tests.unit.service.conftest import SECOND, components_of, rows

from millpond.errors import MillpondError
from millpond.service.observe.entity_stream import is_read
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock


def create(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.ingest("s", rows(1, 2, 3))
    pond.catch_up()


def count_looks(pond: Pond) -> int:
    """How often the pond looked before it was asked: each look has one element of each entity."""
    text = "SELECT count(*) FROM system$entities [RANGE 1 MINUTE] WHERE id = 'queue:inbox'"
    ((count,),) = pond.ask(text).rows()
    return int(count) - 1


@pytest.fixture
def pond(pond: Pond) -> Pond:
    """A pond that looks only when a test has it look: a slow machine's ten seconds pass early."""
    pond._observer.stop()
    return pond


def test_a_question_finds_every_entity_as_it_is_now(pond: Pond) -> None:
    create(pond)
    text = 'SELECT id, kind, "of", "rows", bytes, figures FROM system$entities [RANGE 1 MINUTE]'
    found = {row[0]: row[1:] for row in pond.ask(text).rows()}
    every = {entity.id: entity for entity in pond.entities.every()}
    assert found.keys() == every.keys()
    for id, (kind, of, _, _, figures) in found.items():
        assert (kind, of) == (every[id].kind, every[id].of)
        assert json.loads(figures).keys() == every[id].figures.keys()
    held = found["segments:s"]
    assert held[2] == 3
    assert held[3] == every["segments:s"].figures["bytes"]


def test_nothing_is_written_while_nobody_reads(pond: Pond) -> None:
    create(pond)
    pond._observer._looked_at -= 3600
    pond._observer.work()
    assert components_of(pond).log.version.segments(-2) == ()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE QUERY q AS SELECT id FROM system$entities [RANGE 1 MINUTE]",
        "CREATE STREAM d AS SELECT id, bytes FROM system$entities",
    ],
)
def test_it_is_written_every_so_often_while_somebody_reads(pond: Pond, statement: str) -> None:
    create(pond)
    assert not is_read(components_of(pond).log.version)
    pond.execute(statement)
    assert is_read(components_of(pond).log.version)
    for _ in range(2):
        pond._observer._looked_at -= 10
        pond._observer.work()
        pond.catch_up()  # what reads has operators by now, which are entities, too
    pond._observer._looked_at += 3600
    pond._observer.work()  # it is not time yet
    assert count_looks(pond) == 2


def test_it_is_followed(pond: Pond, clock: ManualClock) -> None:
    create(pond)
    query = pond.register(
        "SELECT \"rows\" FROM system$entities [RANGE 5 SECONDS] WHERE id = 'segments:s'", "q"
    )
    pond._observer.look()
    clock.set(1_003 * SECOND)
    pond.ingest("s", rows(4))
    pond.catch_up()
    pond._observer.look()
    clock.set(1_020 * SECOND)
    assert [(sign, held) for _, _, sign, held in query.fetch().rows()] == [
        ("+", 3), ("+", 4), ("-", 3), ("-", 4),
    ]  # fmt: skip


def test_how_often_is_a_setting(pond: Pond) -> None:
    assert pond.entities.one("observer:all").settings == {"entities_every": "10 SECONDS"}
    pond.entities.set("observer:all", {"entities_every": "0 SECONDS"})
    assert 0.05 < pond._observer.wait_seconds() <= 0.1
    with pytest.raises(MillpondError, match="CQL-214"):
        pond.execute("ALTER SYSTEM SET (entities_every = 'often')")


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO system$entities VALUES (1)", "DROP STREAM system$entities"],
)
def test_it_is_only_read(pond: Pond, statement: str) -> None:
    with pytest.raises(MillpondError, match=r"CQL-2(08|16)"):
        pond.execute(statement)
