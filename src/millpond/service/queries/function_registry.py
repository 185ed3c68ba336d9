"""User-defined functions of a pond: defines, stores and drops them.

A function is part of the catalog, with its code as cloudpickle writes it; workers read it from the
store's folder `functions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from millpond.catalog.objects import FunctionDef, QueryDef
from millpond.catalog.options import OPTIONS
from millpond.engine.scalars.user_functions import (
    UNTRUSTED,
    Usage,
    functions,
    name_content,
    save,
)
from millpond.errors import MillpondError
from millpond.planner.bind.templates import Binder
from millpond.planner.resolve.names import did_you_mean
from millpond.service.queries.current_names import CurrentNames
from millpond.service.queries.dependencies import (
    NamedText,
    list_derived_texts,
    list_query_texts,
)
from millpond.service.queries.function_code import (
    check_arity,
    check_name,
    check_seconds,
    read_type,
    refused_error,
    write_code,
)
from millpond.service.queries.registration import Registrar
from millpond.service.results import count_text
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.epoch_log import EpochLog
from millpond.state.file_share import publish_scratch
from millpond.state.function_key import FunctionKey
from millpond.state.version import Version


class FunctionRegistry:
    """Defines and drops functions; safe to use from any thread."""

    def __init__(
        self,
        store: Path,
        log: EpochLog,
        registrar: Registrar,
        seconds: float | None = None,
        key: FunctionKey | None = None,
    ) -> None:
        self._folder = store / "functions"
        self._log = log
        self._registrar = registrar
        self._seconds = OPTIONS["function_seconds"].default if seconds is None else seconds
        check_seconds(self._seconds)
        self._key = key or FunctionKey()
        self._before = functions.usage()
        self._trusted: set[str] = set()
        for file in self._folder.glob("*"):  # copies for workers, made anew
            file.unlink()
        for definition in log.version.functions.values():
            self._make_known(definition)

    def hold_untrusted(self) -> None:
        """Suspend the queries that call functions no key of the user's has sealed, and activate
        those that were suspended for it and call none any more."""
        version = self._log.version
        held: dict[int, FunctionDef] = {}
        for definition in version.functions.values():
            if definition.name not in self._trusted:
                for user in self.users(definition):
                    query = version.find(user.name)
                    if isinstance(query, QueryDef) and user.is_bound:
                        held[query.id] = definition
        for query in version.queries.values():
            if query.id in held:
                self._registrar.suspend(query, f'Its function "{held[query.id].name}" {UNTRUSTED}.')
            elif (
                query.suspended is not None
                and UNTRUSTED in query.suspended
                and self._registrar.bind_or_suspend(query) is not None
            ):
                self._registrar.alter(query, {"active": True})

    def define(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[str],
        returns: str,
        cost: float | None = None,
        max_seconds: float | None = None,
    ) -> FunctionDef:
        """Define a function, or define it anew.

        Raises:
            MillpondError: CQL-221 for what cannot be defined or sealed, CQL-208 for a name SQL has,
                POND-401 when an active query uses the function of that name.
        """
        check_name(name)
        check_arity(name, function, arguments)
        types = tuple(read_type(name, t) for t in arguments)
        result = read_type(name, returns)
        if cost is not None and not 0 <= cost < math.inf:
            raise refused_error(name, f"its cost cannot be {cost!r}", "Give a number ≥ 0, or none.")
        seconds = self._seconds if max_seconds is None else max_seconds
        check_seconds(seconds)
        code = write_code(name, function)
        definition = FunctionDef(
            self._log.next_id(), name.lower(), "", types, result, cost, seconds, code
        )
        definition = replace(definition, inside=name_content(definition))
        with self._registrar.lock:
            found = self._log.version.functions.get(definition.name)
            is_same = found is not None and found.inside == definition.inside
            if found is not None and is_same:
                if found.name in self._trusted:
                    return found
                definition = replace(definition, id=found.id)
            elif found is not None:
                self._check_replaceable(found, definition)
            definition = self._key.seal(definition)
            self._make_known(definition)
            self._log.commit(EpochChange(kind="function", add_functions=[definition]))
            if is_same:
                self.hold_untrusted()
            self._registrar.resume_bound()
        return definition

    def drop(self, name: str) -> None:
        """Drop a function.

        Raises:
            MillpondError: CQL-212 when there is none, POND-401 while a query uses it.
        """
        with self._registrar.lock:
            definition = self._log.version.functions.get(name.lower())
            if definition is None:
                raise MillpondError(
                    "CQL-212",
                    f'no user-defined function "{name}"',
                    hint=did_you_mean(name, self._log.version.functions)
                    or "SHOW FUNCTIONS lists them.",
                )
            users = self.users(definition)
            if users:
                raise _in_use_error(definition, users, "DROP them first.")
            self._log.commit(EpochChange(kind="function", drop_functions=[definition]))

    def users(self, definition: FunctionDef) -> list[NamedText]:
        """What calls a function: standing queries, active or not, and what is derived."""
        version = self._log.version
        every = [*list_query_texts(version), *list_derived_texts(version)]
        # Most of them do not even speak of it, and need not be bound; views may speak for them.
        spoken = [u for u in every if definition.name in u.text.lower()]
        views = {u.name.lower() for u in spoken if u.kind == "relation"}
        found = []
        for user in every:
            text = user.text.lower()
            if definition.name in text or any(view in text for view in views):
                try:
                    bound = self._registrar.bind_registered(user.text, user.text_epoch)
                    calls = definition.name in bound.functions
                except Exception:  # it does not bind any more: to be named counts
                    calls = definition.name in text
                    user = replace(user, is_bound=False)
                if calls:
                    found.append(user)
                    if user.kind == "relation":
                        views.add(user.name.lower())
        return found

    def usage(self, definition: FunctionDef) -> Usage:
        """What its calls have cost since the pond was opened."""
        spent = functions.usage().get(definition.inside, Usage())
        return spent.minus(self._before.get(definition.inside, Usage()))

    def describe(self) -> list[dict[str, Any]]:
        """Every function with its signature and what it has cost."""
        return [
            {
                "name": definition.name,
                "arguments": list(definition.arguments),
                "returns": definition.returns,
                "cost": definition.cost,
                "max_seconds": definition.max_seconds,
                "trusted": definition.name in self._trusted,
                **vars(self.usage(definition)),
            }
            for definition in sort_by_name(self._log.version)
        ]

    def costs(self, names: Sequence[str]) -> dict[str, str]:
        """What the calls of functions have cost, for EXPLAIN."""
        known = self._log.version.functions
        return {name: _cost(self.usage(known[name])) for name in names if name in known}

    def _make_known(self, definition: FunctionDef) -> None:
        """Make a function callable, here and in workers; without its code if it is not sealed."""
        is_whole = name_content(definition) == definition.inside
        if is_whole and self._key.is_sealed(definition):
            self._trusted.add(definition.name)
        else:
            self._trusted.discard(definition.name)
            definition = replace(definition, code=b"")
        publish_scratch(save(definition, self._folder))
        functions.add(definition)

    def _check_replaceable(self, found: FunctionDef, definition: FunctionDef) -> None:
        """Raise POND-401 if an active query uses it, or a query does not bind to the new one."""
        users = self.users(found)
        if active := [user for user in users if user.active]:
            raise _in_use_error(
                found, active, "DROP or deactivate them first, or use another name."
            )
        anew = Binder(_NamesWith(self._log, definition))
        for user in users:
            if not user.is_bound:
                continue
            try:
                epoch, version = user.text_epoch, self._log.version
                anew.bind(user.text, None if epoch is None else version.seen_by(epoch))
            except MillpondError as error:
                raise MillpondError(
                    "POND-401",
                    f'function "{found.name}" is in use with another signature',
                    detail=f'Query "{user.name}" calls {found.signature}: {error.primary}.',
                    hint="Keep its signature, or drop the query first.",
                ) from error


class _NamesWith(CurrentNames):
    """The catalog as it would be after a function is defined again."""

    def __init__(self, log: EpochLog, definition: FunctionDef) -> None:
        super().__init__(log)
        self._definition = definition

    def function(self, name: str) -> FunctionDef | None:
        return self._definition if name == self._definition.name else super().function(name)


def _cost(usage: Usage) -> str:
    if not usage.rows:
        return "not called yet"
    each = usage.seconds / usage.rows * 1e6
    calls, rows = count_text(usage.calls, "call"), count_text(usage.rows, "row")
    return f"{calls}, {rows}, {usage.seconds:.3g} s, {each:.3g} µs a row"


def sort_by_name(version: Version) -> list[FunctionDef]:
    """The functions by name."""
    return [version.functions[name] for name in sorted(version.functions)]


def _in_use_error(definition: FunctionDef, users: list[NamedText], hint: str) -> MillpondError:
    names = [user.name for user in users]
    shown = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    call = "calls" if len(users) == 1 else "call"
    kinds = {user.kind for user in users}
    who = count_text(len(users), "standing query", "standing queries")
    if kinds != {"query"}:
        who = count_text(len(users), "query or derived name", "queries and derived names")
    return MillpondError(
        "POND-401",
        f'function "{definition.name}" is in use',
        detail=f"{who} {call} it: {shown}.",
        hint=hint,
    )
