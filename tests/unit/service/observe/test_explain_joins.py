"""What EXPLAIN says of shared joins: who shares what, how much is stored, and how tuples go."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.conftest import components_of

from millpond.engine.eddy.eddy import Ledger
from millpond.engine.eddy.routing import Account
from millpond.service.components import Components
from millpond.service.observe.explain_joins import JoinFacts, account_text, eddy_facts
from millpond.service.pond import Pond

JOIN = "SELECT a.v, b.v FROM a [RANGE 9 SECONDS], b WHERE a.k = b.k"


@pytest.fixture
def parts(pond: Pond) -> Components:
    for name in "abc":
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts")
    pond.register(JOIN, "q")
    pond.register("SELECT v FROM a", "alone")
    for name in "ab":
        pond.ingest(name, [{"ts": f"1970-01-01 00:00:0{n}", "k": 1, "v": n} for n in (1, 2)])
    pond.wait_until_matched()
    return components_of(pond)


def facts(parts: Components, name: str) -> dict[str, Any] | None:
    query = parts.registrar.find(name)
    bound = parts.registrar.bind(query.text)
    return JoinFacts(parts.joins).of_query(parts.log.version, query.id, bound)


def test_a_join_says_what_is_stored(parts: Components) -> None:
    shown = facts(parts, "q")
    assert shown is not None
    assert (shown["streams"], shown["shared by"]) == ("a, b", "q")
    assert (shown["pairs stored"], shown["up to date"]) == (4, True)
    assert shown["answer"] == "columns of the pairs"
    assert "left to invocation" not in shown
    assert facts(parts, "alone") is None


def test_it_is_behind_until_what_is_new_was_joined(pond: Pond, parts: Components) -> None:
    parts.maintenance.stop()
    # Of a query that came later nothing is stored yet.
    pond.register(JOIN.replace("9", "5"), "later")
    shown = [facts(parts, name) or {} for name in ("q", "later")]
    assert [(own["shared by"], own["up to date"]) for own in shown] == [
        ("q, later", True),
        ("q, later", False),
    ]
    pond.ingest("a", [{"ts": "1970-01-01 00:00:03", "k": 1, "v": 3}])
    behind = facts(parts, "q")
    assert behind is not None
    assert (behind["pairs stored"], behind["up to date"]) == (4, False)


def test_stems_say_how_many_joins_use_them(pond: Pond, parts: Components) -> None:
    pond.register("SELECT a.v FROM a, c WHERE a.k = c.k", "other")
    shown = facts(parts, "q")
    assert shown is not None
    used = {
        stream: next(s["used by joins"] for s in shown["SteMs"] if f"SteM on {stream}" in s)
        for stream in "ab"
    }
    assert used == {"a": 2, "b": 1}
    together = list(JoinFacts(parts.joins).of_all(parts.log.version))
    assert "join of a, b: 1 query, 4 pairs stored" in together
    assert "join of a, c: 1 query, 0 pairs stored" in together
    assert any(x.startswith("SteM on a by ") and x.endswith(": 2 joins") for x in together)


def test_of_many_sharers_the_first_are_named(pond: Pond, parts: Components) -> None:
    for number in range(11):
        pond.register(JOIN.replace("9", f"{number + 1}"), f"n{number}")
    shown = facts(parts, "q")
    assert shown is not None
    assert shown["shared by"] == "q, n0, n1, n2, n3, n4, n5, n6, n7, n8 …"


def test_what_is_left_to_invocation_says_why(parts: Components) -> None:
    (core,) = parts.log.version.joins.cores.values()
    parts.joins.failed[core.id] = "it cannot be evaluated"
    shown = facts(parts, "q")
    assert shown is not None
    assert shown["left to invocation"] == "it cannot be evaluated"


def test_an_account_is_in_words() -> None:
    account = Account(came=98, left=24, ns=98_000, predicates=2)
    assert account_text(account) == ("25.0% come back, 2 predicates, 1,000 ns a tuple, 1.5 tickets")
    waiting = account_text(Account(predicates=1, deterred=8))
    assert "1 predicate, " in waiting
    assert waiting.endswith("0 tickets, failed early and waits for 8 visits")


def test_an_eddy_without_visits_says_nothing() -> None:
    assert eddy_facts(None) == eddy_facts(Ledger()) == {}
