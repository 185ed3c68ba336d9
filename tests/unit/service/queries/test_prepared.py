"""Prepared queries: what options say, whose matches are used, and seeds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.conftest import OpenPond, components_of

from millpond.catalog.objects import QueryDef
from millpond.errors import MillpondError
from millpond.service.components import Components
from millpond.service.pond import Pond
from millpond.service.queries import prepared
from millpond.service.queries.prepared import (
    PreparedQueries,
    PreparedQuery,
    check_answerable,
    default_seed,
    prepare_again,
    prepare_once,
    seed_of,
    stream_of,
)


@pytest.fixture
def parts(pond: Pond) -> Components:
    for name in "st":
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts")
    return components_of(pond)


def once(parts: Components, text: str) -> PreparedQuery:
    return prepare_once(parts.log.version, parts.registrar.bind(text))


def test_options_say_what_may_be_used(pond: Pond, parts: Components) -> None:
    options = {"max_rows": 7, "max_seconds": 2, "seed": 5, "materialize": "eager"}
    query = pond.register("SELECT v FROM s", "q", **options).definition
    prepared = parts.registrar.prepare(query)
    assert (prepared.limits.rows, prepared.limits.seconds) == (7, 2.0)
    assert (prepared.seed, prepared.kept, prepared.name, prepared.id) == (5, True, "q", query.id)
    plain = parts.registrar.prepare(pond.register("SELECT v FROM s", "plain").definition)
    assert (plain.kept, plain.factors, plain.slots) == (False, (None,), (None,))
    assert plain.limits.rows > 7


def test_after_a_restart_it_is_prepared_as_it_was(
    pond: Pond, parts: Components, open_pond: OpenPond
) -> None:
    text = "SELECT s.v FROM s, t [RANGE 9 SECONDS] WHERE s.k = t.k AND s.v > 3 AND t.v IN (1, 2)"
    before = parts.registrar.prepare(pond.register(text, "q").definition)
    again = open_pond()
    parts = components_of(again)
    definition = again.query("q").definition
    after = prepare_again(parts.log.version, definition, parts.registrar.bind(text))
    assert after.slots == before.slots != (None, None)
    assert [f and f.key for f in after.factors] == [f and f.key for f in before.factors]
    assert after.join is not None
    assert before.join is not None
    assert after.join.key == before.join.key


def test_who_asks_once_uses_the_matches_of_an_equal_predicate(
    pond: Pond, parts: Components
) -> None:
    query = pond.register("SELECT k FROM s WHERE v > 3 AND k = 1", "q").definition
    (leaf,) = parts.log.version.leaves(query.id)
    assert once(parts, "SELECT v FROM s [ROWS 5] WHERE k = 1 AND v > 3").slots == (leaf.slot,)
    other = once(parts, "SELECT v FROM s WHERE k = 1 AND v > 4")
    assert (other.slots, other.name, other.kept) == ((None,), None, False)
    assert other.factors[0] is not None


def test_a_stream_is_not_asked_once(parts: Components) -> None:
    with pytest.raises(MillpondError, match="CQL-216: a stream-valued query") as failure:
        once(parts, "ISTREAM(SELECT v FROM s)")
    span = failure.value.span
    assert span is not None
    assert (failure.value.text or "")[span.start : span.end] == "ISTREAM"


def test_a_seed_is_of_the_text_and_only_for_samples(parts: Components) -> None:
    def bound(text: str):  # type: ignore[no-untyped-def]
        return parts.registrar.bind(text)

    assert seed_of(bound("SELECT v FROM s")) == 0
    one = seed_of(bound("SELECT v FROM s SAMPLE(10)"))
    assert one == default_seed(bound("SELECT v FROM s SAMPLE(10)")) != 0
    assert one == seed_of(bound("select v\n from s sample(10)"))
    assert one != seed_of(bound("SELECT v FROM s SAMPLE(20)"))


def test_what_was_dropped_meanwhile_is_said(pond: Pond, parts: Components) -> None:
    bound = parts.registrar.bind("SELECT v FROM s")
    assert stream_of(parts.log.version, bound.streams[0]).name == "s"
    pond.execute("DROP STREAM s")
    with pytest.raises(MillpondError, match='CQL-201: no stream "s" any more'):
        prepare_once(parts.log.version, bound)


def test_few_queries_are_kept_prepared(monkeypatch: pytest.MonkeyPatch, parts: Components) -> None:
    monkeypatch.setattr(prepared, "MOST_PREPARED", 2)
    query = once(parts, "SELECT v FROM s")
    kept = PreparedQueries()
    for id in (1, 2, 1, 3):
        kept.keep(id, query)
    assert [id for id in (1, 2, 3) if kept.find(id) is not None] == [1, 3]
    kept.forget(1)
    kept.forget(1)
    assert kept.find(1) is None


@pytest.mark.parametrize(
    ("state", "said"),
    [({"suspended": "It failed."}, "is suspended"), ({"options": {"active": False}}, "inactive")],
)
def test_what_is_not_active_is_not_answered(state: dict[str, Any], said: str) -> None:
    check_answerable(QueryDef(1, "q", "SELECT 1"))
    with pytest.raises(MillpondError, match=f"POND-402.*{said}") as raised:
        check_answerable(QueryDef(1, "q", "SELECT 1", **state))
    assert "ALTER QUERY q SET (active = true)" in (raised.value.hint or "")
