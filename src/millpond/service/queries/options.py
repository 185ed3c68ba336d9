"""The options of a standing query, and the engine's settings, checked against the catalogue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from millpond.catalog.objects import REDUCED, QueryDef
from millpond.catalog.option import Scope
from millpond.catalog.option_values import SECRET
from millpond.catalog.options import OPTIONS, list_options
from millpond.catalog.tolerance import (
    NO_REDUCTION,
    NO_TOLERANCE,
    Reduction,
    Tolerance,
    parse_reduction,
    parse_tolerance,
)
from millpond.errors import MillpondError, Span
from millpond.planner.resolve.names import did_you_mean


def tolerance_of(options: Mapping[str, Any]) -> Tolerance:
    """What a query with these options tolerates."""
    text = options.get("tolerate")
    return NO_TOLERANCE if text is None else parse_tolerance(text)


def static_reduction(options: Mapping[str, Any]) -> Reduction:
    """How far a query with these options was reduced when it was registered or altered."""
    text = options.get(REDUCED)
    return NO_REDUCTION if text is None else parse_reduction(text)


def option(query: QueryDef, name: str) -> Any:
    """A query's option, given or not."""
    return query.options.get(name, OPTIONS[name].default)


def check_options(options: Mapping[str, Any], statement: str | None = None) -> dict[str, Any]:
    """The options with lower-case keys. Raises CQL-214."""
    return _check_all("query option", (Scope.QUERY,), options, statement)


def check_settings(settings: Mapping[str, Any], scope: Scope = Scope.ENGINE) -> dict[str, Any]:
    """The settings of a scope as they are kept. Raises CQL-214."""
    names = list_options(scope)
    for name in settings:
        if name not in names:
            raise MillpondError(
                "CQL-214",
                f'no setting "{name}"',
                detail=f"There are: {', '.join(names)}.",
                hint=did_you_mean(name, names) or "Remove it.",
            )
    return {name: _parse_option("setting", name, value) for name, value in settings.items()}


def _parse_option(
    kind: str, name: str, value: Any, text: str | None = None, span: Span | None = None
) -> Any:
    """The value of an option, or of a setting of the engine, as it is kept.

    Raises:
        MillpondError: CQL-214, it cannot have that value.
    """
    try:
        return OPTIONS[name].values.check(value)
    except ValueError as reason:
        # A value that should have named a secret may be one, and the statement around it shows it.
        shown = repr(value)
        if OPTIONS[name].values is SECRET:
            shown, text, span = "written out", f"{name} secret('name')", Span(0, len(name))
        raise MillpondError(
            "CQL-214",
            f'the {kind} "{name}" cannot be {shown}',
            detail=f"It takes {OPTIONS[name].text}.{f' {reason}.' if str(reason) else ''}",
            hint="Give one of these values.",
            text=text,
            span=span,
        ) from None


def refuse_unchangeable(query: QueryDef, given: Mapping[str, Any], statement: str | None) -> None:
    """Raises CQL-214 for what cannot change any more once a query's changes are made."""
    for name in given:
        if OPTIONS[name].is_settled and given[name] != option(query, name):
            raise MillpondError(
                "CQL-214",
                f'the query option "{name}" is settled for query "{query.name}"',
                detail="Its changes are made since somebody asked for them, and never revised.",
                hint="Register the query under another name, with this option.",
                text=statement,
                span=_place(name, statement),
            )


def check_stream_options(
    options: Mapping[str, Any], statement: str | None = None
) -> dict[str, Any]:
    """What a derived stream can be told: to go on. Raises CQL-214."""
    for key, value in options.items():
        is_option = key.lower() in list_options(Scope.STREAM)
        if not is_option or value is not True:
            raise MillpondError(
                "CQL-214",
                f'the stream option "{key}" cannot be {value!r}'
                if is_option
                else f'no stream option "{key}"',
                detail="There is active = true: a derived stream that has stopped goes on.",
                hint="What reads a stream needs all of it; DROP what is not wanted any more.",
                text=statement,
                span=_place(key, statement),
            )
    return {key.lower(): value for key, value in options.items()}


def check_input_options(options: Mapping[str, Any], statement: str | None = None) -> dict[str, Any]:
    """The options of a stream that is not derived, as they are kept. Raises CQL-214."""
    return _check_all("stream option", (Scope.INPUT,), options, statement)


def check_altered_options(
    options: Mapping[str, Any], statement: str | None = None
) -> dict[str, Any]:
    """The options and clauses of a stream that ALTER STREAM sets, as kept. Raises CQL-214."""
    return _check_all("stream option", (Scope.INPUT, Scope.CLAUSE), options, statement)


def check_system_settings(
    settings: Mapping[str, Any], statement: str | None = None
) -> dict[str, Any]:
    """The settings of ALTER SYSTEM, as they are kept. Raises CQL-214."""
    return _check_all("setting of the system", (Scope.SYSTEM,), settings, statement)


def check_sink_options(options: Mapping[str, Any], statement: str | None = None) -> dict[str, Any]:
    """The options of a sink, as they are kept. Raises CQL-214."""
    return _check_all("sink option", (Scope.SINK,), options, statement)


def _hint_at_clause(option: str) -> str | None:
    """Say where a clause, or an option of a source, stands that somebody writes in WITH."""
    if option in list_options(Scope.CLAUSE):
        return f"Write it as a clause: {option.upper().replace('_', ' ')} ..."
    if option in ("connector", "format") or option.startswith(("kafka", "value_", "key_", "topic")):
        return "Write what is read behind USING: USING kafka OPTIONS (subscribe 'topic', ...)."
    return None


def _check_all(
    kind: str, scopes: tuple[Scope, ...], given: Mapping[str, Any], statement: str | None
) -> dict[str, Any]:
    if not given:
        return {}
    names = [name for scope in scopes for name in list_options(scope)]
    checked: dict[str, Any] = {}
    for key, value in given.items():
        name = key.lower()
        if name not in names:
            raise MillpondError(
                "CQL-214",
                f'no {kind} "{key}"',
                detail=f"There {'is' if len(names) == 1 else 'are'}: {', '.join(names)}.",
                hint=(_hint_at_clause(name) if Scope.INPUT in scopes else None)
                or did_you_mean(name, names)
                or "Remove it.",
                text=statement,
                span=_place(key, statement),
            )
        checked[name] = _parse_option(kind, name, value, statement, _place(key, statement))
    return checked


def _place(key: str, statement: str | None) -> Span | None:
    """Where an option stands in a statement's text: from its name to its value's end."""
    match = _setting(key).search(statement) if statement else None
    return Span(*match.span()) if match else None


def _setting(key: str) -> re.Pattern[str]:
    name = re.escape(key)
    length = r"INTERVAL\s+(?:'[^']*'|-?[\d.]+)(?:\s*\w+)?"
    value = rf"(?:{length}|'(?:[^']|'')*'|-?[\w.]+)"
    return re.compile(rf"""(?i)(?<![\w'"])["']?{name}["']?\s*=?\s*{value}""")
