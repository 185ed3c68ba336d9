"""Handles: clients invoke and follow a query, or follow a derived stream, through its handle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.budget import Budget, parse_budget
from millpond.model.time import Time, to_instant
from millpond.service.components import Components
from millpond.service.observe.explain import Explainer
from millpond.service.observe.query_descriptions import describe_query
from millpond.service.queries.options import check_stream_options
from millpond.service.queries.registration_request import write_constants
from millpond.service.results import Answer, Change, Changes
from millpond.service.series import Series, Step, instants_between, join_answers

_D = TypeVar("_D", QueryDef, StreamDef)


class Followable(ABC):
    """A query or a derived stream, whose changes a client can follow."""

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
        """Return the final changes after a cursor, or from the first change on.

        It first waits for rows that statements inserted, and for the ends of bounded sources.
        """
        self._components.inputs.wait()
        return self._components.subscriptions.fetch(self.definition, after, limit)

    def subscribe(self, after: str | int | None = None, follow: bool = True) -> Iterator[Change]:
        """Yield the changes after a cursor one by one; with `follow`, go on for ever."""
        return self._components.subscriptions.subscribe(self.definition, after, follow)

    def page(self, after: str | int | None = None, limit: int | None = None) -> Changes:
        """Return the final changes after a cursor that are there now, without waiting."""
        return self._components.subscriptions.fetch(self.definition, after, limit, wait=False)

    def has_more(self, position: int) -> bool:
        """Whether there is a change after that number, or none can come any more."""
        return self._components.subscriptions.has_more(self.id, position)

    def plan(self, level: str = "logical") -> str:
        """Return the plan as EXPLAIN shows it at a level."""
        text = self._explainer.explain_object(self.definition, level)
        assert text is not None
        return text

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` from any thread when there may be new changes.

        Returns:
            A function that ends this.
        """
        return self._components.subscriptions.listen(listener)


class Handle(Followable):
    """A standing query's handle."""

    @property
    def definition(self) -> QueryDef:
        """The query as the catalog has it now. Raises CQL-201 once it is unregistered."""
        found: QueryDef | None = self._components.log.version.queries.get(self.id)
        return self._check_exists(found, "query", "It was unregistered.")

    def invoke(
        self,
        at: Time | None = None,
        budget: str | None = None,
        after: str | None = None,
    ) -> Answer:
        """Answer the query as of now, or as of an instant; with a budget, a part of it.

        Args:
            at: The instant: text, a datetime, a date, µs, or a time of NumPy or pandas.
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

    def series(self, start: Time, end: Time, step: Step) -> Series:
        """Answer the query at instants that are `step` apart, as one table.

        Each instant is answered by itself, as `invoke` does; those not final may show rows that
        came meanwhile.

        Args:
            start: The first instant, as `invoke` takes it.
            end: The last one, if a whole number of steps leads there.
            step: A length of time, also of NumPy and pandas, or `'30 minutes'`, or microseconds.

        Raises:
            MillpondError: CQL-103 for anything else, and for more than 10,000 instants.
        """
        instants = instants_between(start, end, step)
        return join_answers(instants, [self.invoke(at) for at in instants])

    def unregister(self) -> None:
        """Unregister the query."""
        self._components.registrar.unregister(self.definition)
        self._components.inner_streams.drop_unread()

    def alter(self, **options: Any) -> None:
        """Change options, `active=False`, or values of parameters, `params={"most": 10}`.

        With other values the query is another one from then on, as with CREATE OR REPLACE QUERY;
        parameters that are not given keep theirs. Followed changes go on behind a mark.

        Raises:
            MillpondError: CQL-214, an option is none; CQL-103, the query has no such parameter, or
                a value is none; POND-401, its changes cannot go on as the other query's.
        """
        registrar = self._components.registrar
        if "params" in options:
            constants = write_constants(options.pop("params"))
            self._components.redefinitions.alter_parameters(self.definition, constants, options)
            self._components.inner_streams.drop_unread()
        else:
            registrar.alter(self.definition, options)

    def describe(self) -> dict[str, Any]:
        """Return the query's definition, its columns, and how far its changes are computed."""
        return describe_query(self._components, self.definition)

    def __repr__(self) -> str:
        found = self._components.log.version.queries.get(self.id)
        if found is None:
            return f"<Handle {self.name}: unregistered>"
        if found.suspended is not None:
            state = "suspended"
        else:
            state = "active" if found.active else "inactive"
        followed = self._components.log.version.change_log(self.id) is not None
        return f"<Handle {self.name}: {state}{', followed' * followed}, {found.text}>"


class StreamHandle(Followable):
    """A derived stream's handle: a client follows its elements as it follows changes."""

    @property
    def definition(self) -> StreamDef:
        """The stream as the catalog has it now. Raises CQL-201 once it is dropped."""
        return self._check_exists(
            self._components.log.version.streams.get(self.id), "stream", "It was dropped."
        )

    def alter(self, **options: Any) -> None:
        """Start a stream again that has stopped: `active=True`. Raises POND-406 if it cannot."""
        check_stream_options(options)
        self._components.subscriptions.resume(self.definition)

    def __repr__(self) -> str:
        found = self._components.log.version.streams.get(self.id)
        text = "dropped" if found is None or found.derived is None else found.derived.text
        return f"<StreamHandle {self.name}: {text}>"


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
