"""Handles: what is kept of a query or a derived stream, to be invoked or followed at any time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import date, datetime
from operator import index
from typing import Any, TypeVar

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.model import time
from millpond.model.budget import Budget, parse_budget
from millpond.service.components import Components
from millpond.service.observe.explain import Explainer
from millpond.service.queries.options import check_stream_options
from millpond.service.results import Answer, Change, Changes

_D = TypeVar("_D", QueryDef, StreamDef)


class Followable(ABC):
    """Whatever has changes to be followed."""

    def __init__(
        self, components: Components, explainer: Explainer, definition: QueryDef | StreamDef
    ) -> None:
        self._components = components
        self._explainer = explainer
        self.id = definition.id
        self.name = definition.name

    @property
    @abstractmethod
    def definition(self) -> QueryDef | StreamDef:
        """The definition as the catalog has it now. Raises CQL-201 once it is dropped."""

    def _check_exists(self, found: _D | None, kind: str, hint: str) -> _D:
        if found is None:
            raise MillpondError("CQL-201", f'no {kind} "{self.name}" any more', hint=hint)
        return found

    def fetch(self, after: str | int | None = None, limit: int | None = None) -> Changes:
        """The changes after a cursor, or from the first on, as far as they are final."""
        self._components.await_inputs()
        return self._components.subscriptions.fetch(self.definition, after, limit)

    def subscribe(self, after: str | int | None = None, follow: bool = True) -> Iterator[Change]:
        """The changes after a cursor, one by one, and with `follow` those to come, for ever."""
        return self._components.subscriptions.subscribe(self.definition, after, follow)

    def page(self, after: str | int | None = None, limit: int | None = None) -> Changes:
        """As `fetch`, of what is there: nothing is waited for."""
        return self._components.subscriptions.fetch(self.definition, after, limit, wait=False)

    def has_more(self, position: int) -> bool:
        """Whether there is a change behind that number, or there can be none any more."""
        return self._components.subscriptions.has_more(self.id, position)

    def plan(self, level: str = "logical") -> str:
        """The plan as EXPLAIN shows it."""
        text = self._explainer.of(self.definition, level)
        assert text is not None
        return text

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `heard` called, from any thread, when there may be more; gives what ends that."""
        return self._components.subscriptions.listen(listener)


class Handle(Followable):
    """A standing query's handle. It stays good across restarts, by name."""

    @property
    def definition(self) -> QueryDef:
        """The query as the catalog has it now. Raises CQL-201 once it is unregistered."""
        found: QueryDef | None = self._components.log.version.queries.get(self.id)
        return self._check_exists(found, "query", "It was unregistered.")

    def invoke(
        self,
        at: int | str | date | None = None,
        budget: str | None = None,
        after: str | None = None,
    ) -> Answer:
        """The answer as of now, or at an instant: a timestamp as text, a datetime, or µs.

        Args:
            at: The instant.
            budget: What may be looked at, '20 ms' or '5000 probes': then the answer is the most
                promising part (`Answer.part`).
            after: The cursor of an earlier part (`Answer.part.cursor`), to go on behind it.

        Raises:
            MillpondError: CQL-103, the budget is none.
        """
        spent = None if budget is None else to_budget(budget, after)
        if spent is None and after is not None:
            raise MillpondError("CQL-103", "AFTER goes with BUDGET", hint="Give a budget too.")
        return self._components.invoke(self.definition, to_instant(at), spent, after)

    def unregister(self) -> None:
        """Drop the query."""
        self._components.registrar.unregister(self.definition)

    def alter(self, **options: Any) -> None:
        """Change options, for example `active=False`."""
        self._components.registrar.alter(self.definition, options)

    def describe(self) -> dict[str, Any]:
        """What the catalog knows of the query."""
        definition = self.definition
        output = self._components.registrar.bind(definition.text).output
        return {
            "id": definition.id,
            "name": definition.name,
            "cql": definition.text,
            "options": definition.options,
            "active": definition.active,
            "suspended": definition.suspended,
            "registered_at": time.format_instant(definition.registered_at),
            "columns": output.to_json(),
            "changes": self._components.subscriptions.progress(definition),
        }

    def __repr__(self) -> str:
        return f"<Handle {self.name}>"


class StreamHandle(Followable):
    """A derived stream's handle: its elements are followed as the changes of a query are."""

    @property
    def definition(self) -> StreamDef:
        """The stream as the catalog has it now. Raises CQL-201 once it is dropped."""
        return self._check_exists(
            self._components.log.version.streams.get(self.id), "stream", "It was dropped."
        )

    def alter(self, **options: Any) -> None:
        """`active=True`: a stream that has stopped goes on. Raises POND-406 if it cannot."""
        check_stream_options(options)
        self._components.subscriptions.resume(self.definition)

    def __repr__(self) -> str:
        return f"<StreamHandle {self.name}>"


def to_budget(text: str, after: str | None = None) -> Budget:
    """The budget a text says. Raises CQL-103."""
    try:
        if not isinstance(text, str) or not isinstance(after, str | None):
            raise ValueError("Write a text, for example '5000 probes'")
        return parse_budget(text)
    except ValueError as error:
        raise MillpondError(
            "CQL-103", f"{str(text)[:40]!r} is no budget", hint=f"{error}."
        ) from None


def to_instant(at: int | str | date | None) -> int | None:
    """An instant given as text, datetime, day or microseconds. Raises CQL-103 for all else."""
    if at is None or isinstance(at, int):
        return at
    try:
        if isinstance(at, datetime):
            return time.from_datetime(at)
        if isinstance(at, date):
            return time.from_datetime(datetime(at.year, at.month, at.day))
        return time.parse_instant(at) if isinstance(at, str) else index(at)
    except (ValueError, TypeError, OverflowError) as error:
        raise MillpondError(
            "CQL-103",
            f'"{at}" is not a timestamp',
            hint="Write it as 2013-01-31 12:00:00.",
        ) from error
