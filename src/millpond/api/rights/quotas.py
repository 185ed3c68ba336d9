"""Quotas: how much of the pond one owner may have, and one answer of a token may hold."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from millpond.api.rights.caller import Caller
from millpond.api.surface import ServedHandle, ServedPond
from millpond.catalog.objects import QueryDef
from millpond.errors import MillpondError
from millpond.service.queries.query_selection import QuerySelection


class OwnerQuotas:
    """Counts what owners have; safe to use from any thread."""

    def __init__(self, pond: ServedPond) -> None:
        self._pond = pond
        #: By owner, held while queries are counted and made: two requests do not share one place.
        self._counting: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)

    def check_follow(self, caller: Caller, queries: Sequence[QueryDef]) -> None:
        """Raise SERVE-714 if following these too, once active, is more than the owner's quota."""
        most = caller.quotas.followed
        if most is None:
            return
        own = self._pond.list_queries(QuerySelection(owner=caller.owner)).queries
        already = {query.id for query in self._pond.followed_among(own)}
        wanted = {query.id for query in queries} - already
        if wanted and len(already) + len(wanted) > most:
            raise _quota_error(caller, f"follows {len(already):,} queries", most, "followed")

    def check_counts(self, caller: Caller, queries: int, follows: int) -> None:
        """Raise SERVE-714 if so many queries more, so many of them followed, are too many."""
        most = caller.quotas.queries
        if most is None and caller.quotas.followed is None:
            return
        own = self._pond.list_queries(QuerySelection(owner=caller.owner))
        if most is not None and own.total + queries > most:
            raise _quota_error(caller, f"has {own.total:,} queries", most, "queries")
        followed = caller.quotas.followed
        if follows and followed is not None:
            already = len(self._pond.followed_among(own.queries))
            if already + follows > followed:
                raise _quota_error(caller, f"follows {already:,} queries", followed, "followed")

    def counted(self, caller: Caller) -> AbstractContextManager[object]:
        """Hold this while an owner's queries are counted and then made or followed."""
        is_counted = caller.quotas.queries is not None or caller.quotas.followed is not None
        return self._counting[caller.owner] if is_counted else nullcontext()

    def begin_following(self, caller: Caller, handle: ServedHandle) -> None:
        """Have a query's changes computed, if the owner's quota has a place for it."""
        if caller.quotas.followed is None:
            return
        with self.counted(caller):
            query = handle.definition
            if not self._pond.followed_among([query]):
                self.check_follow(caller, [query])
                handle.page(None, 0)


def is_to_follow(options: Mapping[str, Any]) -> bool:
    """Whether options have a query's changes computed, in whatever case `follow` is written.

    >>> is_to_follow({"Follow": True}), is_to_follow({"follow": False}), is_to_follow({})
    (True, False, False)
    """
    return any(value for name, value in options.items() if name.lower() == "follow")


def limit_kept(caller: Caller, options: dict[str, Any], given_only: bool = False) -> dict[str, Any]:
    """Options with no more kept changes than the token allows."""
    most = caller.quotas.kept_changes
    if most is None:
        return options
    named = {name.lower(): value for name, value in options.items()}
    given = named.get("keep_changes")
    if given is None:
        return options if given_only else {**options, "keep_changes": int(most)}
    if isinstance(given, int | float) and given > most:
        raise _quota_error(caller, f"would keep {given:,} changes of a query", most, "kept_changes")
    return options


def limit_rows(caller: Caller, rows: int) -> None:
    """Raise POND-405 if an answer has more rows than the token allows."""
    most = caller.quotas.rows
    if most is not None and rows > most:
        raise MillpondError(
            "POND-405",
            f"the answer has {rows:,} rows, and the token allows {most:,}",
            hint="Narrow the query, or invoke it with a budget.",
        )


def _quota_error(caller: Caller, has: str, most: float, quota: str) -> MillpondError:
    return MillpondError(
        "SERVE-714",
        f'the quota "{quota}" is used up',
        detail=f'The owner "{caller.owner}" {has}; the token allows {most:,}.',
        hint="Drop what is not wanted any more, or ask the operator for more.",
    )
