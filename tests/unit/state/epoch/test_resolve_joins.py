"""Changes of shared joins: numbers filled in, and what goes with what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from millpond.state.epoch.resolve_joins import (
    ResolvedJoins,
    StaleJoin,
    next_joins,
    resolve_joins,
)
from millpond.state.join_state import ArrangementRef, JoinChange, JoinCore, Joins, JoinUse, PairsRef

CORE = JoinCore(0, "key", b"plan", (1, 2))
PAIRS = PairsRef(0, 5, 0, 1, 0, "pairs/a", 3, 10, 20, "sum", 8)
RUN = ArrangementRef(7, "k", 0, 1, "runs/7", 3, "sum", 8)


def resolve(
    joins: Joins,
    next_id: int = 5,
    dropped: Iterable[int] = (),
    gone: Iterable[int] = (),
    segments: Iterable[int] = (7,),
    **change: Any,
) -> ResolvedJoins:
    return resolve_joins(
        JoinChange(**change), joins, next_id, dropped, set(gone), dict.fromkeys(segments)
    )


def use(query: int, core: int = -1) -> JoinUse:
    return JoinUse(query, core, (0, 1), (None, 10))


@pytest.fixture
def joins() -> Joins:
    """A core of two uses, with a file of pairs and a run."""
    made = resolve(Joins(), cores=[CORE], uses=[use(21), use(22)])
    with_uses = next_joins(Joins(), made)
    return next_joins(with_uses, resolve(with_uses, 6, pairs=[PAIRS], arrangements=[RUN]))


def test_new_cores_and_uses_are_numbered(joins: Joins) -> None:
    assert [core.id for core in joins.cores.values()] == [5]
    assert joins.core_of_key("key") == joins.cores[5]
    assert joins.cores[5].next_use == 2
    assert dict(joins.users(5).items()) == {0: 21, 1: 22}
    assert [file.id for file in joins.pairs(5)] == [6]
    assert joins.runs(7) == (RUN,)


def test_a_use_of_one_of_several_new_cores() -> None:
    other = replace(CORE, key="other")
    found = resolve(Joins(), cores=[CORE, other], uses=[use(21, -2), use(22, -1)])
    assert [(u.query_id, u.core_id, u.number) for u in found.uses] == [(21, 6, 0), (22, 5, 0)]
    assert found.next_id == 7


def test_a_core_stays_as_long_as_it_has_a_use(joins: Joins) -> None:
    found = resolve(joins, dropped=[21])
    assert found.drop_cores == ()
    assert dict(next_joins(joins, found).users(5).items()) == {1: 22}


def test_a_core_goes_with_its_last_use_and_takes_its_pairs_along(joins: Joins) -> None:
    found = resolve(joins, drop_uses=[21], dropped=[22, 99])
    assert found.drop_cores == (5,)
    assert found.unreferenced == ("pairs/a",)
    left = next_joins(joins, found)
    assert (dict(left.cores), dict(left.by_key), left.pairs(5)) == ({}, {}, ())
    assert left.core_of(21) is None
    assert left.runs(7) == (RUN,)


def test_a_core_that_is_used_anew_at_once_stays(joins: Joins) -> None:
    found = resolve(joins, drop_uses=[21, 22], uses=[use(23, 5)])
    assert found.drop_cores == ()
    assert [u.number for u in found.uses] == [2]
    assert dict(next_joins(joins, found).users(5).items()) == {2: 23}


def test_a_query_has_one_use(joins: Joins) -> None:
    left = next_joins(joins, resolve(joins, uses=[use(21, 5)]))
    assert dict(left.users(5).items()) == {1: 22, 2: 21}


def test_runs_go_with_their_segments(joins: Joins) -> None:
    found = resolve(joins, gone=[7])
    assert found.unreferenced == ("runs/7",)
    assert next_joins(joins, found).runs(7) == ()


def test_files_that_come_too_late_are_left_over(joins: Joins) -> None:
    late = replace(PAIRS, core_id=4, path="pairs/late")
    run = replace(RUN, segment_id=8, path="runs/8")
    found = resolve(joins, pairs=[late], arrangements=[run, replace(RUN, path="runs/7b")], gone=[7])
    assert set(found.unreferenced) == {"pairs/late", "runs/8", "runs/7b", "runs/7"}
    assert (found.pairs, found.arrangements) == ((), ())


def test_files_of_pairs_lie_by_their_oldest_element(joins: Joins) -> None:
    older = replace(PAIRS, min_oldest=5, path="pairs/b")
    left = next_joins(joins, resolve(joins, 9, pairs=[older]))
    assert [file.path for file in left.pairs(5)] == ["pairs/b", "pairs/a"]
    folded = resolve(left, 10, drop_pairs=left.pairs(5), pairs=[replace(PAIRS, path="pairs/c")])
    assert [file.path for file in next_joins(left, folded).pairs(5)] == ["pairs/c"]
    assert set(folded.unreferenced) == {"pairs/a", "pairs/b"}


def test_what_refers_to_a_core_that_is_gone_is_stale(joins: Joins) -> None:
    with pytest.raises(StaleJoin, match="join 4"):
        resolve(joins, cores=[replace(CORE, id=4)])
    with pytest.raises(StaleJoin, match="join 4"):
        resolve(joins, uses=[use(23, 4)])


def test_no_change_is_none(joins: Joins) -> None:
    assert resolve(joins).is_nothing
    assert next_joins(joins, resolve(joins)) is joins
