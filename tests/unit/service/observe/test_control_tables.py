"""Control tables: every entity has a place in them, and what is set of one takes effect."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.unit.service.conftest import components_of, rows

from millpond.engine.promising import step
from millpond.errors import MillpondError
from millpond.runtime import look_task
from millpond.service.components import Components
from millpond.service.observe.control_tables import Entities
from millpond.service.pond import Pond


@pytest.fixture
def parts(pond: Pond) -> Components:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE RELATION r (v INTEGER);"
        "INSERT INTO r VALUES (1), (2);"
        "CREATE STREAM d AS SELECT v FROM s WHERE v > 1"
    )
    pond.register("SELECT v FROM s [ROWS 2] WHERE v > 0", "q", materialize="eager")
    pond.ingest("s", rows(1, 2, 3))
    pond.query("q").fetch()
    pond.wait_until_matched()
    pond.query("q").invoke()
    return components_of(pond)


@pytest.fixture
def entities(parts: Components) -> Entities:
    return Entities(parts)


def figures(entities: Entities, id: str) -> dict[str, Any]:
    return entities.one(id).figures


def test_entities_are_in_order_and_have_ids_of_their_own(entities: Entities) -> None:
    every = entities.every()
    ids = [entity.id for entity in every]
    assert len(set(ids)) == len(ids)
    kinds = [entity.kind for entity in every]
    assert kinds == sorted(kinds, key=["queue", "operator", "synopsis"].index)
    for kind in set(kinds):
        own = [entity.id for entity in every if entity.kind == kind]
        assert own == sorted(own)


def test_regions_that_wait_are_shown_and_are_no_more_than_may_wait(
    pond: Pond, parts: Components, entities: Entities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "MOST_WAITING", 20)
    pond.execute(
        "CREATE STREAM w (ts TIMESTAMP, item INTEGER) TIMESTAMP BY ts;"
        "CREATE SUMMARY wi ON w (item) WITH GRANULARITY 64 SECONDS AND COLLAPSE (2, 2)"
    )
    pond.register(
        "SELECT item FROM w WITH PREFERENCE DESC SUMMARY(wi).ESTIMATE.COUNT(item)"
        " BUDGET '0.1 probes'", "part", changes="from beginning",
    )  # fmt: skip
    pond.query("part").fetch()
    assert "waiting regions" not in figures(entities, "derivation:part")
    for start in (0, 2):
        ts = pa.array([start * 1_000_000 + n for n in range(100)], pa.timestamp("us"))
        pond.ingest("w", pa.table({"ts": ts, "item": pa.array(range(100), pa.int32())}))
    pond.execute("HEARTBEAT w AT TIMESTAMP '1970-01-01 00:00:09'")
    pond.catch_up()
    found = figures(entities, "derivation:part")
    assert found["elements"] == 20
    assert found["waiting regions"] == 20
    assert 20 * 80 <= found["waiting bytes"] < 8_000


def test_what_a_followed_part_may_look_at_is_shown_with_what_a_worker_holds_of_it(
    pond: Pond, parts: Components, entities: Entities
) -> None:
    """The bytes are those of the runs and arrival numbers there are; old elements leave them."""
    for name in ("u", "w"):
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, item INTEGER) TIMESTAMP BY ts")
    pond.execute("CREATE SUMMARY wi ON w (item) WITH GRANULARITY 8 SECONDS AND COLLAPSE (1, 1)")
    pond.register(
        "SELECT u.item FROM u [RANGE 9 SECONDS], w [RANGE 9 SECONDS] WHERE u.item = w.item"
        " WITH PREFERENCE DESC SUMMARY(wi).ESTIMATE.COUNT(w.item) BUDGET '9 probes'",
        "part", changes="from beginning", follow=True,
    )  # fmt: skip
    for start, count in ((0, 70), (4, 50), (400, 30)):
        for name in ("u", "w"):
            ts = pa.array([start * 1_000_000 + n for n in range(count)], pa.timestamp("us"))
            pond.ingest(name, pa.table({"ts": ts, "item": pa.array(range(count), pa.int32())}))
        pond.catch_up()
        if start == 4:
            assert figures(entities, "derivation:part")["elements reached"] == 240
    for name in ("u", "w"):
        pond.execute(f"HEARTBEAT {name} AT TIMESTAMP '1970-01-01 00:06:41'")
    pond.catch_up()
    found = figures(entities, "derivation:part")
    assert found["elements reached"] == 60
    version = parts.log.version
    there = {s.path for n in "uw" for s in version.segments(version.find(n).id)}
    views = [v for v in look_task._views._kept.values() if v.file.path in there and v._runs]
    held = {
        v.file.path: v.__dict__["_arrivals"].nbytes
        + sum(r.keys.nbytes + r.order.nbytes + r.place.nbytes for r in v._runs.values())
        for v in views
    }
    last = [s.path for n in "uw" for s in version.segments(version.find(n).id) if s.rows == 30]
    assert found["index bytes"] == sum(held[path] for path in last)


def test_figures_are_those_of_the_version(
    pond: Pond, parts: Components, entities: Entities
) -> None:
    assert figures(entities, "segments:s")["rows"] == 3
    assert figures(entities, "relation:r")["rows"] == 2
    assert figures(entities, "query stem:s")["predicates"] == 1
    assert figures(entities, "derivation:q")["elements"] == 1  # the element at 3 is not final
    assert figures(entities, "derivation:d")["elements"] == 0
    # Of d, of q, and of the log that windows of rows over s share.
    assert figures(entities, "changes:all") == {"derivations": 3}
    assert figures(entities, "answer:q")["rows"] == 2
    assert "segments:s$rejects" not in {entity.id for entity in entities.every()}
    pond.ingest("s", [{"ts": "never"}])
    assert figures(entities, "segments:s$rejects")["rows"] == 1


def test_a_setting_of_a_query_is_its_option(
    pond: Pond, parts: Components, entities: Entities
) -> None:
    entity = entities.set("derivation:q", {"keep_changes": 7, "strategy": "negative"})
    assert (entity.settings["keep_changes"], entity.settings["strategy"]) == (7, "negative")
    assert pond.query("q").definition.options["keep_changes"] == 7
    log = parts.log.version.change_log(pond.query("q").definition.id)
    assert log is not None
    assert log.retain_rows == 7
    # A derived stream has no query whose options these were.
    assert entities.one("derivation:d").settings == {}


def test_a_setting_of_the_engine_is_for_all(
    pond: Pond, parts: Components, entities: Entities
) -> None:
    entities.set("eddies:all", {"routing": "fixed"})
    assert (parts.joins.settings.routing, parts.stems.routing) == ("fixed", "fixed")
    entities.set("joins:all", {"shards": 5})
    assert (parts.joins.settings.shards, parts.joins.settings.routing) == (5, "fixed")
    entity = entities.set("changes:all", {"eager_expiration": "5 seconds"})
    assert entity.settings["eager_expiration"] == "5 SECONDS"
    assert parts.derivations.settings.eager_expiration == 5_000_000
    assert entities.one("derivation:q").settings["eager_expiration"] == "5 SECONDS"


def test_nothing_is_set_when_one_of_several_is_wrong(parts: Components, entities: Entities) -> None:
    before = parts.joins.settings
    with pytest.raises(MillpondError, match="CQL-214"):
        entities.set("joins:all", {"shards": 5, "max_pairs": 0})
    with pytest.raises(MillpondError, match='CQL-214: no setting "weight"'):
        entities.set("joins:all", {"shards": 5, "weight": 1})
    assert parts.joins.settings is before
    entity = entities.one("joins:all")
    assert entities.set("joins:all", {}) == entity


def test_an_id_there_is_not_is_told_what_was_meant(entities: Entities) -> None:
    with pytest.raises(MillpondError, match='CQL-201: no entity "segment:s"') as failure:
        entities.one("segment:s")
    assert failure.value.hint == 'Did you mean "segments:s"?'
