"""Quotas: what an owner has is counted, and no more is let in than the token allows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.api.rights.caller import Caller, Quotas, Role
from millpond.api.rights.quotas import OwnerQuotas, limit_kept, limit_rows
from millpond.catalog.objects import QueryDef
from millpond.errors import MillpondError


def query(id: int, **more: Any) -> QueryDef:
    return QueryDef(id, f"q{id}", "SELECT 1", **more)


def caller(**quotas: Any) -> Caller:
    return Caller("id", "ann", Role.WRITER, quotas=Quotas(**quotas))


class Pond:
    """A pond whose queries are all one owner's; some of them are followed."""

    def __init__(self, queries: Sequence[QueryDef], followed: Sequence[int] = ()) -> None:
        self.queries, self.followed, self.asked = queries, set(followed), 0

    def list_queries(self, selection: Any) -> Any:
        assert selection.owner == "ann"
        self.asked += 1
        return SimpleNamespace(queries=self.queries, total=len(self.queries))

    def followed_among(self, queries: Sequence[QueryDef]) -> list[QueryDef]:
        return [q for q in queries if q.id in self.followed]


def quotas_of(pond: Pond) -> OwnerQuotas:
    given: Any = pond
    return OwnerQuotas(given)


OWN = [query(1), query(2), query(3)]


def test_without_quotas_nothing_is_counted() -> None:
    pond = Pond(OWN, [1, 2])
    quotas = quotas_of(pond)
    quotas.check_counts(caller(), 1_000, 1_000)
    quotas.check_follow(caller(), OWN)
    assert isinstance(quotas.counted(caller()), nullcontext)
    assert pond.asked == 0


def test_queries_are_counted() -> None:
    quotas = quotas_of(Pond(OWN))
    quotas.check_counts(caller(queries=5), 2, 0)
    with pytest.raises(MillpondError, match="SERVE-714") as raised:
        quotas.check_counts(caller(queries=5), 3, 0)
    assert raised.value.detail == 'The owner "ann" has 3 queries; the token allows 5.'


def test_queries_that_will_be_followed_are_counted_too() -> None:
    quotas = quotas_of(Pond(OWN, [1, 2]))
    quotas.check_counts(caller(followed=3), 9, 1)
    quotas.check_counts(caller(followed=1), 9, 0)
    with pytest.raises(MillpondError, match='"followed" is used up'):
        quotas.check_counts(caller(followed=3), 9, 2)


def test_following_what_is_followed_already_takes_no_place() -> None:
    quotas = quotas_of(Pond(OWN, [1, 2]))
    quotas.check_follow(caller(followed=2), [query(1), query(2)])
    with pytest.raises(MillpondError, match="SERVE-714"):
        quotas.check_follow(caller(followed=2), [query(1), query(3)])
    with pytest.raises(MillpondError, match="SERVE-714"):
        quotas.check_follow(caller(followed=2), [query(3, options={"active": False})])
    quotas.check_follow(caller(followed=3), [query(1), query(3)])


def test_the_first_page_of_a_query_follows_it() -> None:
    pages: list[Any] = []

    def handle(of: QueryDef) -> Any:
        return SimpleNamespace(definition=of, page=lambda *given: pages.append(given))

    quotas = quotas_of(Pond(OWN, [1, 2]))
    quotas.begin_following(caller(), handle(OWN[2]))
    quotas.begin_following(caller(followed=2), handle(OWN[0]))
    assert pages == []
    with pytest.raises(MillpondError, match="SERVE-714"):
        quotas.begin_following(caller(followed=2), handle(OWN[2]))
    quotas.begin_following(caller(followed=3), handle(OWN[2]))
    assert pages == [(None, 0)]


def test_owners_are_counted_one_at_a_time() -> None:
    quotas = quotas_of(Pond(OWN))
    ann = quotas.counted(caller(queries=1))
    assert ann is quotas.counted(caller(followed=1))
    assert ann is not quotas.counted(Caller("id", "bob", Role.WRITER, quotas=Quotas(queries=1)))


def test_changes_are_kept_as_the_token_allows() -> None:
    assert limit_kept(caller(), {"keep_changes": 10**9}) == {"keep_changes": 10**9}
    small = caller(kept_changes=10)
    assert limit_kept(small, {"weight": 2}) == {"weight": 2, "keep_changes": 10}
    assert limit_kept(small, {"weight": 2}, given_only=True) == {"weight": 2}
    assert limit_kept(small, {"KEEP_CHANGES": 10}) == {"KEEP_CHANGES": 10}
    with pytest.raises(MillpondError, match='"kept_changes" is used up'):
        limit_kept(small, {"Keep_Changes": 11})


def test_an_answer_has_as_many_rows_as_the_token_allows() -> None:
    limit_rows(caller(), 10**9)
    limit_rows(caller(rows=3), 3)
    with pytest.raises(MillpondError, match="POND-405: the answer has 4 rows, and the token"):
        limit_rows(caller(rows=3), 4)
