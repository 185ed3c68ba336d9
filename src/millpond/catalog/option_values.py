"""The values that options can have: how each kind is described, checked and written.

A kind of value is described three times in one place: in words for messages and the reference, by a
function for programs, and as JSON Schema for clients over HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from millpond.model.durations import duration_text, parse_duration
from millpond.model.names import LONGEST_NAME, find_fault_of_line
from millpond.model.secret_options import name_of_secret
from millpond.model.time import timedelta_text


@dataclass(frozen=True)
class OptionValues:
    """The values that options of one kind can have.

    Attributes:
        takes: The values in words, as messages and the reference have them.
        check: Turns a value into the form that is stored. Raises ValueError for a wrong value, with
            a sentence if the list of values does not explain the error.
        schema: The same values in the words of JSON Schema, for clients over HTTP.
    """

    takes: str
    check: Callable[[Any], Any]
    schema: Mapping[str, Any]


def one_of(*words: str, takes: str = "") -> OptionValues:
    """One of some words, in any case, kept in lower case; `takes` where they need explaining."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value.lower() not in words:
            raise ValueError
        return value.lower()

    *some, last = (f"'{word}'" for word in words)
    return OptionValues(takes or f"{', '.join(some)} or {last}", check, {"enum": list(words)})


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    # No column can hold a number beyond 64 bits.
    if not -(2**63) <= value < 2**63:
        raise ValueError("Numbers are below 2^63, which is about 9.2e18")
    return True


def _truth(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _positive(value: Any) -> Any:
    if not _is_number(value) or value <= 0:
        raise ValueError
    return value


def _whole(value: Any) -> Any:
    if not _is_number(value) or int(value) != value:
        raise ValueError
    return value


def _count(value: Any) -> Any:
    return _positive(_whole(value))


def _integer(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def _length(value: Any) -> str:
    """Print a length of time, given as text or as a `timedelta`, in its longest unit."""
    if isinstance(value, timedelta):
        value = timedelta_text(value)
    if not isinstance(value, str):
        raise ValueError("A number needs a unit of time" if _is_number(value) else "")
    return duration_text(parse_duration(value))


def _minute(value: Any) -> str:
    """A length of time above zero and up to a minute."""
    text = _length(value)
    if not 0 < parse_duration(text) <= 60_000_000:
        raise ValueError
    return text


def _batch(value: Any) -> int:
    if _integer(value) > 10_000:
        raise ValueError
    return int(value)


def _tasks(value: Any) -> int:
    if _integer(value) > 1_000:
        raise ValueError
    return int(value)


def _cursor(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > 100_000:
        raise ValueError
    return value


_VARIABLE = "[A-Za-z_][A-Za-z0-9_]{0,199}"


def _variable(value: Any) -> str:
    if not isinstance(value, str) or re.fullmatch(_VARIABLE, value) is None:
        raise ValueError
    return value


_TOPIC = "^[A-Za-z0-9._-]{1,249}$"


def _topic(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(_TOPIC[1:-1], value):
        raise ValueError
    return value


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value or len(value) > 1_000:
        raise ValueError
    return value


def _url(value: Any) -> str:
    """A URL of http or https with a host and nothing that is secret or not sent."""
    if not isinstance(value, str) or len(value) > 2_000 or not value.isascii():
        raise ValueError
    if any(c <= " " or c in '"<>\\^`{|}\x7f' for c in value):
        raise ValueError
    parts = urlsplit(value)
    is_there = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    if not is_there or "@" in parts.netloc or parts.fragment:
        raise ValueError
    return value


def _secret(value: Any) -> str:
    if not isinstance(value, str) or name_of_secret(value) is None:
        raise ValueError
    return value


def _port(value: Any) -> int:
    """A port's number; as text, too, as options of sources are written."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,5}", value):
        value = int(value)
    if _integer(value) > 65_535:
        raise ValueError
    return int(value)


def _memory(value: Any) -> str:
    """Print an amount of memory, in its largest unit that is a whole number of it."""
    match = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("A number needs a unit: KB, MB or GB" if _is_number(value) else "")
    bytes = int(float(match[1]) * _UNITS[match[2].upper()])
    if not 1_000 <= bytes < 4 * 10**18:
        raise ValueError("It is at least 1 KB" if bytes < 1_000 else "It is less than 4 million TB")
    for unit, size in reversed(_UNITS.items()):
        if bytes % size == 0:
            return f"{bytes // size} {unit}"
    raise AssertionError(bytes)


def _or(word: str, check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A check of values that may be this one word instead."""

    def check_or(value: Any) -> Any:
        return word if isinstance(value, str) and value.lower() == word else check(value)

    return check_or


def _positive_length(value: Any) -> str:
    """A length of time above zero."""
    text = _length(value)
    if not parse_duration(text):
        raise ValueError("It is more than nothing")
    return text


_ROWS = re.compile(r"(?i)0*([1-9][0-9]{0,17})\s+ROWS?")


def _retained(value: Any) -> str:
    """How much a stream keeps: everything, a number of rows, or a length of time."""
    if isinstance(value, str):
        if value.strip().lower() == "everything":
            return "everything"
        if (rows := _ROWS.fullmatch(value.strip())) is not None:
            return f"{rows[1]} rows"
    return _positive_length(value)


_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_MEMORY = re.compile(r"(?i)(\d+(?:\.\d+)?)\s*([KMGT]?B)")


def parse_memory(text: str) -> int:
    """The bytes of an amount that an option of memory holds.

    >>> parse_memory("256 MB")
    256000000
    """
    number, unit = text.split()
    return int(number) * _UNITS[unit]


def _tolerance(value: Any) -> str:
    from millpond.catalog.tolerance import parse_tolerance

    if not isinstance(value, str):
        raise ValueError
    return str(parse_tolerance(value))


#: The most characters of a comment.
_COMMENT_LENGTH = 10_000


def _owner(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    if fault := find_fault_of_line(value):
        raise ValueError(fault.rstrip("."))
    return value.strip()


def _comment(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _COMMENT_LENGTH:
        raise ValueError
    if fault := find_fault_of_line(value.translate({10: " ", 9: " "}), _COMMENT_LENGTH):
        raise ValueError(fault.rstrip("."))
    return value


def _tags(value: Any) -> str:
    """Write tags, given as text or as a list, as one text in lower case and alphabetical order."""
    if isinstance(value, list | tuple):
        if not all(isinstance(tag, str) and "," not in tag for tag in value):
            raise ValueError("A tag is text without a comma")
        value = ",".join(value)
    if not isinstance(value, str):
        raise ValueError
    tags = sorted({tag.strip().lower() for tag in value.split(",")} - {""})
    if any(len(tag) > LONGEST_NAME for tag in tags) or len(tags) > 100:
        raise ValueError("At most 100 tags of 200 characters each")
    if fault := next(filter(None, map(find_fault_of_line, tags)), None):
        raise ValueError(fault.rstrip("."))
    return ", ".join(tags)


def anything(takes: str) -> OptionValues:
    """Whatever is given, for settings that only Python can give."""
    return OptionValues(takes, lambda value: value, {})


def path(takes: str) -> OptionValues:
    """A text of one to 1,000 characters that the server's system takes."""
    return OptionValues(takes, _path, {"type": "string", "minLength": 1, "maxLength": 1_000})


_TEXT = {"type": "string"}
TRUTH = OptionValues("true or false", _truth, {"type": "boolean"})
POSITIVE = OptionValues("a number > 0", _positive, {"type": "number", "exclusiveMinimum": 0})
WHOLE = OptionValues("a whole number", _whole, {"type": "integer"})
#: A whole number from CQL or JSON, where 1e6 is one.
COUNT = OptionValues("a whole number > 0", _count, {"type": "integer", "minimum": 1})
#: A whole number that Python counts with: 2.0 is none.
INTEGER = OptionValues("a whole number > 0", _integer, {"type": "integer", "minimum": 1})
BATCH = OptionValues(
    "a whole number from 1 to 10,000", _batch, {"type": "integer", "minimum": 1, "maximum": 10_000}
)
#: How many tasks something is divided into: each takes memory before it does anything.
TASKS = OptionValues(
    "a whole number from 1 to 1,000", _tasks, {"type": "integer", "minimum": 1, "maximum": 1_000}
)
LENGTH = OptionValues("a length of time, as '10 seconds' or INTERVAL 10 SECONDS", _length, _TEXT)
LENGTH_OR_AUTO = OptionValues("a length of time, or 'auto'", _or("auto", _length), _TEXT)
LENGTH_OR_UNBOUNDED = OptionValues(
    "a length of time, or 'unbounded'", _or("unbounded", _length), _TEXT
)
LENGTH_OR_NEVER = OptionValues(
    "a length of time, or 'never'", _or("never", _positive_length), _TEXT
)
RETAINED = OptionValues(
    "a length of time, a number of rows as '1000 rows', or 'everything'", _retained, _TEXT
)
UP_TO_A_MINUTE = OptionValues("a length of time up to a minute", _minute, _TEXT)
MEMORY = OptionValues("an amount of memory, as '256 MB'", _memory, _TEXT)
MEMORY_OR_UNBOUNDED = OptionValues(
    "an amount of memory, as '64 MB', or 'unbounded'", _or("unbounded", _memory), _TEXT
)
TOLERANCE = OptionValues(
    "'nothing', or some of 'window 10 minutes, sample 5 %, error 2 % at 95 %, false positives 1 %'",
    _tolerance,
    _TEXT,
)
OWNER = OptionValues("a text", _owner, _TEXT)
COMMENT = OptionValues("a text", _comment, _TEXT)
TAGS = OptionValues(
    "words with commas between them, or a list of words",
    _tags,
    {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
)
URL = OptionValues(
    "an http or https URL without a user", _url, {"type": "string", "maxLength": 2_000}
)
VARIABLE = OptionValues(
    "the name of an environment variable of the server",
    _variable,
    {"type": "string", "pattern": _VARIABLE},
)
TOPIC = OptionValues("a topic's name", _topic, {"type": "string", "pattern": _TOPIC})
FEED_CURSOR = OptionValues(
    "a feed's cursor", _cursor, {"type": "string", "minLength": 1, "maxLength": 100_000}
)
#: What is never kept, shown or logged: only where it is.
SECRET = OptionValues("secret('name'), the name of a secret in the server's file", _secret, _TEXT)
PORT = OptionValues("a port's number", _port, {"type": "integer", "minimum": 1, "maximum": 65_535})
