"""Handles of queries and derived streams as their callers have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millpond.api.rights.caller import Role
from millpond.api.rights.quotas import OwnerQuotas, is_to_follow, limit_kept, limit_rows
from millpond.api.rights.rights import Rights
from millpond.api.surface import ServedHandle, ServedStream
from millpond.catalog.objects import QueryDef
from millpond.service.results import Answer, Change, Changes


class GuardedHandle:
    """A standing query of the caller's."""

    def __init__(self, handle: ServedHandle, rights: Rights, quotas: OwnerQuotas) -> None:
        self._handle = handle
        self._rights = rights
        self._quotas = quotas

    @property
    def id(self) -> int:
        return self._handle.id

    @property
    def name(self) -> str:
        return self._handle.name

    @property
    def definition(self) -> QueryDef:
        """The query as it is now. Raises CQL-201 once it is gone, or another owner's."""
        definition = self._handle.definition
        self._rights.check_query(definition)
        return definition

    def invoke(self, at: Any = None, budget: str | None = None, after: str | None = None) -> Answer:
        answer = self._handle.invoke(at, budget, after)
        limit_rows(self._rights.caller, len(answer.table))
        return answer

    def fetch(self, after: str | int | None = None, limit: int | None = None) -> Changes:
        self._begin_following()
        return self._handle.fetch(after, limit)

    def page(self, after: str | int | None = None, limit: int | None = None) -> Changes:
        self._begin_following()
        return self._handle.page(after, limit)

    def subscribe(self, after: str | int | None = None, follow: bool = True) -> Iterator[Change]:
        self._begin_following()
        return self._handle.subscribe(after, follow)

    def has_more(self, position: int) -> bool:
        return self._handle.has_more(position)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._handle.listen(listener)

    def describe(self) -> dict[str, Any]:
        return self._handle.describe()

    def plan(self, level: str = "logical") -> str:
        self._rights.check_level(level)
        self._rights.check_plan(self.definition.text)
        return self._handle.plan(level)

    def alter(self, **options: Any) -> None:
        self._rights.need(Role.WRITER, "altering a query")
        self._rights.check_owner_option(options)
        caller = self._rights.caller
        with self._quotas.counted(caller):
            if is_to_follow(options):
                self._quotas.check_follow(caller, [self.definition])
            self._handle.alter(**limit_kept(caller, options, given_only=True))

    def unregister(self) -> None:
        self._rights.need(Role.WRITER, "dropping a query")
        self._handle.unregister()

    def _begin_following(self) -> None:
        """Check that the query is still the caller's, and may be followed."""
        self._rights.check_query(self._handle.definition)
        self._quotas.begin_following(self._rights.caller, self._handle)


class GuardedStream:
    """A derived stream the caller is granted."""

    def __init__(self, handle: ServedStream, rights: Rights) -> None:
        self._handle = handle
        self._rights = rights

    @property
    def name(self) -> str:
        return self._handle.name

    def fetch(self, after: str | int | None = None, limit: int | None = None) -> Changes:
        return self._handle.fetch(after, limit)

    def page(self, after: str | int | None = None, limit: int | None = None) -> Changes:
        return self._handle.page(after, limit)

    def subscribe(self, after: str | int | None = None, follow: bool = True) -> Iterator[Change]:
        return self._handle.subscribe(after, follow)

    def has_more(self, position: int) -> bool:
        return self._handle.has_more(position)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._handle.listen(listener)

    def plan(self, level: str = "logical") -> str:
        self._rights.check_level(level)
        return self._handle.plan(level)

    def alter(self, **options: Any) -> Any:
        self._rights.need(Role.ADMIN, "a stream is everybody's, and changing it")
        return self._handle.alter(**options)
