"""What derivations read, however far below, and what has to be kept for them."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import SECOND, components_of, rows

from millpond.catalog.objects import StreamDef
from millpond.model.time import BEGINNING, END
from millpond.service.changes.derivation import Derivation
from millpond.service.changes.derivation_reads import (
    find_needed_since,
    find_oldest_epoch_needed,
    find_reach_below,
    find_sources,
    list_read,
)
from millpond.service.components import Components
from millpond.service.pond import Pond

WINDOWED = "SELECT v FROM s [RANGE 10 SECONDS]"


@pytest.fixture
def parts(pond: Pond) -> Components:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE RELATION r (v INTEGER)"
    )
    return components_of(pond)


def follow(pond: Pond, parts: Components, text: str, name: str, **options: object) -> Derivation:
    log = parts.new_derivations.follow(pond.register(text, name, **options).definition)
    return parts.derivations.of(parts.log.version, log)


def test_a_stream_is_needed_as_far_as_plans_reach(pond: Pond, parts: Components) -> None:
    def needed(name: str) -> int:
        version = parts.log.version
        stream = version.find(name)
        assert isinstance(stream, StreamDef)
        return find_needed_since(parts.derivations, version, stream)

    assert needed("s") == END
    pond.ingest("s", rows(10, 30, 50))
    follow(pond, parts, WINDOWED, "q", changes="from beginning")
    assert needed("s") <= BEGINNING
    pond.query("q").fetch()
    assert needed("t") == END
    # The position is just before 50, and what is older than ten seconds then has left.
    assert 39 * SECOND <= needed("s") <= 40 * SECOND
    follow(pond, parts, "SELECT max(v) AS m FROM s", "all", changes="from beginning")
    assert needed("s") == BEGINNING


def test_relations_keep_the_epochs_that_somebody_reads(pond: Pond, parts: Components) -> None:
    relation = next(iter(parts.log.version.relations))

    def find_oldest() -> int:
        return find_oldest_epoch_needed(parts.derivations, parts.log.version, relation)

    assert find_oldest() == parts.log.version.epoch
    told = follow(pond, parts, "SELECT s.v FROM s, r WHERE s.v = r.v", "q")
    read = parts.log.version.clock(told.id).relations_epoch
    pond.execute("CREATE STREAM later (v INTEGER)")
    assert find_oldest() <= read < parts.log.version.epoch


def test_what_lies_below_a_derived_stream_is_found(pond: Pond, parts: Components) -> None:
    pond.execute(
        f"CREATE STREAM one AS ISTREAM({WINDOWED}); CREATE STREAM two AS SELECT v + 1 AS v FROM one"
    )
    version, derivations = parts.log.version, parts.derivations
    two = derivations.find("two")
    assert [s.name for s in list_read(derivations, version, two)] == ["one"]
    assert [s.name for s in find_sources(derivations, version, two)] == ["s"]
    one = derivations.find("one")
    ((below, since),) = find_reach_below(derivations, version, one, 60 * SECOND)
    assert below.name == "s"
    assert since is not None
    assert 49 * SECOND <= since <= 50 * SECOND + 1
