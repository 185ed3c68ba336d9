"""The eddy: whatever the policy, the same tuples; a good policy asks fewer modules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.eddy.eddy import Eddy, Ledger, Router
from millpond.engine.eddy.routing import POLICIES, Account, policy
from millpond.engine.predicates.safe_expressions import cannot_fail


@dataclass(frozen=True, eq=False)
class _Numbers:
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)


@dataclass
class _Above:
    """Keeps what is at or above a bound; `after` must have been visited before."""

    name: str
    bound: int
    after: str | None = None
    predicates: int = 1
    seen: int = 0

    def is_ready(self, morsel: _Numbers) -> bool:
        return True

    def process(self, morsel: _Numbers) -> _Numbers:
        self.seen += len(morsel)
        return _Numbers(morsel.values[morsel.values >= self.bound])


def _morsels(count: int, size: int = 100) -> Iterator[_Numbers]:
    for number in range(count):
        yield _Numbers(np.random.default_rng(number).integers(0, 100, size))


@given(st.sampled_from(sorted(POLICIES)), st.integers(0, 100))
def test_no_policy_changes_what_comes_out(name: str, seed: int) -> None:
    modules = [_Above("a", 10), _Above("b", 60), _Above("c", 30)]
    eddy: Eddy[_Numbers] = Eddy(policy(name, seed))
    found = np.concatenate([m.values for m in eddy.route(_morsels(5), modules)])
    every = np.concatenate([m.values for m in _morsels(5)])
    assert found.tolist() == every[every >= 60].tolist()
    assert eddy.ledger.routed == 500
    assert eddy.ledger.visits == sum(m.seen for m in modules)


def test_tickets_find_the_selective_module_and_the_worst_policy_avoids_it() -> None:
    visited = {}
    for name in POLICIES:
        modules = [_Above("wide", 5), _Above("wider", 1), _Above("narrow", 95)]
        ledger = Ledger()
        # Time is not what is compared here.
        ledger.count_visit = lambda n, came, left, ns, own=ledger: Ledger.count_visit(  # type: ignore
            own, n, came, left, came * 100.0
        )
        eddy: Eddy[_Numbers] = Eddy(policy(name, 3), ledger)
        list(eddy.route(_morsels(300), modules))
        visited[name] = ledger.visited_per_tuple
    assert visited["ticket"] < 1.25
    assert visited["ticket"] < visited["random"] < visited["worst"]
    assert visited["worst"] > 2.8


def test_routing_follows_change() -> None:
    router = Router(policy("ticket", 1))
    for selective in ("a", "b"):
        for _ in range(60):
            for name in router.route({"a": 1, "b": 1}):
                router.count_visit(name, 100, 10 if name == selective else 90, 1_000.0)
        assert router.policy.name == "ticket"
        best = max(router.ledger.accounts, key=lambda n: router.ledger.accounts[n].tickets)
        assert best == selective


def test_tickets_are_weighted_by_predicates_served_and_by_cost() -> None:
    plain = Account(100, 50, 10_000)
    assert Account(100, 50, 10_000, predicates=5).tickets == pytest.approx(5 * plain.tickets)
    assert Account(100, 50, 20_000).tickets == pytest.approx(plain.tickets / 2)
    assert Account(100, 2_000, 10_000).tickets > 0  # a SteM that gives back more than it got


def test_a_module_that_failed_in_vain_is_visited_last_for_a_while() -> None:
    router = Router(policy("ticket", 1))
    waits = []
    accounts = router.ledger.accounts
    for name in ("cast", "plain"):
        router.count_visit(name, 100, 10 if name == "cast" else 90, 1_000.0)
    for _ in range(3):
        assert accounts["cast"].tickets > accounts["plain"].tickets
        router.count_failure("cast", 100, 1_000.0)
        visits = 0
        while accounts["cast"].deterred:
            assert router.route({"cast": 1, "plain": 1}) == ("plain", "cast")
            for name in ("plain", "cast"):
                router.count_visit(name, 100, 10 if name == "cast" else 90, 1_000.0)
            visits += 1
        waits.append(visits)
    assert waits == [8, 16, 32]
    router.count_visit("cast", 100, 10, 1_000.0)
    assert accounts["cast"].failures == 0


def test_all_that_are_deterred_are_visited_as_set_up() -> None:
    router = Router(policy("ticket", 1))
    for _ in range(200):
        for name in ("a", "b"):
            router.count_failure(name, 10, 1_000.0)
        assert router.route({"a": 1, "b": 1}) == ("a", "b")


def test_what_is_expected_of_a_module_gives_way_to_what_it_does() -> None:
    ledger = Ledger()
    ledger.set_expected_cost("dear", 50_000.0)
    ledger.set_expected_cost("cheap", 500.0)
    router = Router(policy("ticket", 1), ledger)
    assert router.route({"dear": 1, "cheap": 1}) == ("cheap", "dear")
    router.count_visit("dear", 1_000, 0, 1_000.0)
    ledger.set_expected_cost("dear", 50_000.0)
    assert router.route({"cheap": 1, "dear": 1}) == ("dear", "cheap")


def test_there_is_no_other_policy() -> None:
    with pytest.raises(ValueError, match="no routing policy 'best'"):
        policy("best")


@pytest.mark.parametrize(
    ("sql", "safe"),
    [
        ("\"s\" LIKE 'a%'", True),
        ('LOWER("s") = \'a\' AND NOT "t" IS NULL', True),
        ("\"s\" IN ('a', 'b') OR \"s\" BETWEEN 'x' AND 'y'", True),
        ('"s" IN (1, 2)', False),
        ('"s" = 5', False),
        ('"s" = "t"', False),
        ('CAST("s" AS INTEGER) > 3', False),
        ('"a" + 1 > 3', False),
        ("f(\"s\") = 'x'", False),
        ("not sql at all (", False),
    ],
)
def test_what_cannot_fail(sql: str, safe: bool) -> None:
    assert cannot_fail(sql) is safe
