"""The options of a standing query, and the values each takes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from millpond.catalog.objects import QueryDef
from millpond.cql.parse.durations import duration_text, parse_duration, timedelta_text
from millpond.engine.scalars.residual_query import Limits
from millpond.errors import MillpondError, Span
from millpond.planner.optimize.strategies import STRATEGIES
from millpond.planner.resolve.names import did_you_mean

#: What each option is for, as the reference shows it.
OPTIONS: dict[str, str] = {
    "materialize": "'lazy' (match as data comes), 'none' (match at invocation), 'eager' (keep the "
    "current answer too), 'auto' (keep it if it is often asked for)",
    "active": "true or false: an inactive query keeps its definition and is not matched",
    "weight": "a number > 0: the query's share when resources are short",
    "max_rows": "a whole number > 0: the largest answer",
    "max_seconds": "a number > 0: the longest evaluation of an answer",
    "changes": "'from registration' or 'from beginning': which changes FETCH begins with",
    "keep_changes": "a whole number > 0: how many changes are kept to be read again",
    "strategy": "'aware', 'direct' or 'negative': how operators learn that rows have left",
    "partitions": "a whole number > 0: into how many parts, by when they leave, rows are put",
    "eager_expiration": "a length of time, as '10 seconds' or INTERVAL 10 SECONDS: how long "
    "changes that time alone brings may wait to be computed",
    "lazy_expiration": "a length of time, or 'auto': how often rows that have expired are dropped "
    "from state that nobody needs to read at once; by 'auto', when they are as many as those alive",
    "seed": "a whole number: the seed of its samples",
}

#: What an option is that was not given. The seed is made of the query's text then.
DEFAULTS: dict[str, Any] = {
    "materialize": "lazy",
    "active": True,
    "weight": 1,
    "max_rows": Limits.rows,
    "max_seconds": Limits.seconds,
    "changes": "from registration",
    "keep_changes": 1_000_000,
    "strategy": "aware",
    "eager_expiration": "0 SECONDS",
    "lazy_expiration": "auto",
}

_MODES = ("lazy", "none", "eager", "auto")
_CHANGES = ("from registration", "from beginning")
_WORDS = ("materialize", "changes", "strategy")
_LENGTHS = ("eager_expiration", "lazy_expiration")


def option(query: QueryDef, name: str) -> Any:
    """A query's option, given or not."""
    return query.options.get(name, DEFAULTS[name])


def check_options(options: Mapping[str, Any], statement: str | None = None) -> dict[str, Any]:
    """The options with lower-case keys. Raises CQL-214."""
    checked: dict[str, Any] = {}
    for key, value in options.items():
        name = key.lower()
        if name not in OPTIONS:
            raise MillpondError(
                "CQL-214",
                f'no query option "{key}"',
                detail=f"There are: {', '.join(OPTIONS)}.",
                hint=did_you_mean(name, OPTIONS) or "Remove it.",
                text=statement,
                span=_place(key, statement),
            )
        checked[name] = parse_option("query option", name, value, statement, _place(key, statement))
    return checked


def parse_option(
    kind: str, name: str, value: Any, text: str | None = None, span: Span | None = None
) -> Any:
    """The value of an option, or of the setting that is its default, as it is kept.

    Raises:
        MillpondError: CQL-214, it cannot have that value.
    """
    try:
        return parse_value(name, value)
    except ValueError as reason:
        raise MillpondError(
            "CQL-214",
            f'the {kind} "{name}" cannot be {value!r}',
            detail=describe_values(name, reason),
            hint="Give one of these values.",
            text=text,
            span=span,
        ) from None


def parse_value(name: str, value: Any) -> Any:
    """A value of an option as it is kept: words in lower case, lengths of time in their own unit.

    Raises:
        ValueError: it is none of the option's values; with a sentence if there is more to say.

    >>> parse_value("lazy_expiration", "300 s"), parse_value("strategy", "Direct")
    ('5 MINUTES', 'direct')
    """
    if name in _LENGTHS:
        if name == "lazy_expiration" and isinstance(value, str) and value.lower() == "auto":
            return "auto"
        if isinstance(value, timedelta):
            value = timedelta_text(value)
        if not isinstance(value, str):
            raise ValueError("A number needs a unit of time" if _is_number(value) else "")
        return duration_text(parse_duration(value))
    if not _fits(name, value):
        raise ValueError
    return value.lower() if name in _WORDS else value


def refuse_unchangeable(query: QueryDef, given: Mapping[str, Any], statement: str | None) -> None:
    """Raises CQL-214 for what cannot change any more once a query's changes are made."""
    for name in ("changes", "seed"):
        if name in given and given[name] != query.options.get(name, DEFAULTS.get(name)):
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
        if key.lower() != "active" or value is not True:
            raise MillpondError(
                "CQL-214",
                f'the stream option "{key}" cannot be {value!r}'
                if key.lower() == "active"
                else f'no stream option "{key}"',
                detail="There is active = true: a derived stream that has stopped goes on.",
                hint="What reads a stream needs all of it; DROP what is not wanted any more.",
                text=statement,
                span=_place(key, statement),
            )
    return {key.lower(): value for key, value in options.items()}


def _fits(name: str, value: Any) -> bool:
    finite = _is_number(value) and -math.inf < value < math.inf
    match name:
        case "materialize":
            return isinstance(value, str) and value.lower() in _MODES
        case "changes":
            return isinstance(value, str) and value.lower() in _CHANGES
        case "strategy":
            return isinstance(value, str) and value.lower() in STRATEGIES
        case "active":
            return isinstance(value, bool)
        case "seed":
            return finite and int(value) == value
        case "max_rows" | "keep_changes" | "partitions":
            return finite and int(value) == value and value > 0
        case _:
            return finite and value > 0


def describe_values(name: str, reason: ValueError) -> str:
    """What an option takes, and what was wrong with a value it does not, for an error's detail."""
    return f"It takes {OPTIONS[name]}.{f' {reason}.' if str(reason) else ''}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _place(key: str, statement: str | None) -> Span | None:
    """Where an option stands in a statement's text: from its name to its value's end."""
    match = _setting(key).search(statement) if statement else None
    return Span(*match.span()) if match else None


def _setting(key: str) -> re.Pattern[str]:
    name = re.escape(key)
    length = r"INTERVAL\s+(?:'[^']*'|-?[\d.]+)(?:\s*\w+)?"
    value = rf"(?:{length}|'(?:[^']|'')*'|-?[\w.]+)"
    return re.compile(rf"""(?i)(?<![\w'"])["']?{name}["']?\s*=\s*{value}""")
