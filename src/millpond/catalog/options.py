"""The one list of options and settings: name, values, default, scope and purpose of each.

A query's options are checked against this list. So are the engine's settings, wherever they come
from: `millpond.open`, a flag of the command line, a control table. The reference is generated from
the list. To add an option, add an entry here. A setting of the engine also becomes a parameter of
`millpond.open`; a test fails until it is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from millpond.model.names import LONGEST_NAME, find_fault_of_line


class Scope(Enum):
    """The kinds of things that have options."""

    QUERY = "a standing query"
    STREAM = "a derived stream"
    INPUT = "a stream that is not derived"
    SYSTEM = "the pond, by ALTER SYSTEM"
    ENGINE = "the engine: `millpond.open`, `millpond run` and `serve`, control tables"
    OPEN = "`millpond.open` alone"
    SERVER = "a server: `millpond serve`"
    SINK = "a sink, by CREATE SINK and ALTER SINK"


@dataclass(frozen=True)
class OptionValues:
    """The values that options of one kind can have.

    Attributes:
        check: Turns a value into the form that is stored. Raises ValueError for a wrong value, with
            a sentence if the list of values does not explain the error.
        schema: The same values in the words of JSON Schema, for clients over HTTP.
    """

    check: Callable[[Any], Any]
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        name: Its name, in lower case.
        scopes: The kinds of things that have the option.
        takes: Its values, in words.
        what: The option's purpose; empty where `takes` says it.
        values: Its values, as programs check and describe them.
        default: Its value if it is not given; None: see `unless_given`.
        unless_given: The default in words, where it is not one value.
        type: The type of its values as the command line reads them.
        entities: The control tables that have the option among their settings: the first words of
            their ids.
        is_settled: Whether the option is fixed once a query's changes have been computed.
        remark: A further remark for the reference.
    """

    name: str
    scopes: tuple[Scope, ...]
    takes: str
    what: str
    values: OptionValues
    default: Any = None
    unless_given: str = ""
    type: type = str
    entities: tuple[str, ...] = ()
    is_settled: bool = False
    remark: str = ""

    @property
    def text(self) -> str:
        """The option's values and its purpose."""
        return f"{self.takes}: {self.what}" if self.what else self.takes


def _words(*words: str) -> OptionValues:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value.lower() not in words:
            raise ValueError
        return value.lower()

    return OptionValues(check, {"enum": list(words)})


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # No column can hold a number beyond 64 bits.
    return is_number and -(2**63) <= value < 2**63


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
    from millpond.cql.parse.durations import duration_text, parse_duration, timedelta_text

    if isinstance(value, timedelta):
        value = timedelta_text(value)
    if not isinstance(value, str):
        raise ValueError("A number needs a unit of time" if _is_number(value) else "")
    return duration_text(parse_duration(value))


def _minute(value: Any) -> str:
    """A length of time above zero and up to a minute."""
    from millpond.cql.parse.durations import parse_duration

    text = _length(value)
    if not 0 < parse_duration(text) <= 60_000_000:
        raise ValueError
    return text


def _batch(value: Any) -> int:
    if _integer(value) > 10_000:
        raise ValueError
    return int(value)


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


def _length_or_auto(value: Any) -> str:
    is_auto = isinstance(value, str) and value.lower() == "auto"
    return "auto" if is_auto else _length(value)


def _length_or_unbounded(value: Any) -> str:
    is_unbounded = isinstance(value, str) and value.lower() == "unbounded"
    return "unbounded" if is_unbounded else _length(value)


def _memory(value: Any) -> str:
    """Print an amount of memory, in its largest unit that is a whole number of it."""
    match = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("A number needs a unit: KB, MB or GB" if _is_number(value) else "")
    bytes = int(float(match[1]) * _UNITS[match[2].upper()])
    if not 1_000 <= bytes < 2**62:
        raise ValueError("It is at least 1 KB")
    for unit, size in reversed(_UNITS.items()):
        if bytes % size == 0:
            return f"{bytes // size} {unit}"
    raise AssertionError(bytes)


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


def _memory_or_unbounded(value: Any) -> str:
    is_unbounded = isinstance(value, str) and value.lower() == "unbounded"
    return "unbounded" if is_unbounded else _memory(value)


def _anything(value: Any) -> Any:
    return value


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


_TEXT = {"type": "string"}
_TRUTH = OptionValues(_truth, {"type": "boolean"})
_POSITIVE = OptionValues(_positive, {"type": "number", "exclusiveMinimum": 0})
_WHOLE = OptionValues(_whole, {"type": "integer"})
_COUNT = OptionValues(_count, {"type": "integer", "minimum": 1})
_INTEGER = OptionValues(_integer, {"type": "integer", "minimum": 1})
_LENGTH = OptionValues(_length, _TEXT)
_LENGTH_OR_AUTO = OptionValues(_length_or_auto, _TEXT)
_LENGTH_OR_UNBOUNDED = OptionValues(_length_or_unbounded, _TEXT)
_AMOUNT = OptionValues(_memory, _TEXT)
_ANYTHING = OptionValues(_anything, {})
_OWNER = OptionValues(_owner, _TEXT)
_COMMENT = OptionValues(_comment, _TEXT)
_TAGS = OptionValues(_tags, {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]})

_EVERY = (
    Option(
        "materialize",
        (Scope.QUERY,),
        "'lazy' (match as data comes), 'none' (match at invocation), 'eager' (keep the current"
        " answer too), 'auto' (keep it if it is often asked for)",
        "",
        _words("lazy", "none", "eager", "auto"),
        "lazy",
        entities=("answer",),
        remark="See [standing queries](../guide/standing_queries.md).",
    ),
    Option(
        "active",
        (Scope.QUERY, Scope.STREAM, Scope.SINK),
        "true or false",
        "an inactive query keeps its definition and is not matched; an inactive sink waits",
        _TRUTH,
        True,
        remark="A derived stream that has stopped goes on by `active = true`, the one option it"
        " has; so does a sink that is dead.",
    ),
    Option(
        "overload",
        (Scope.INPUT,),
        "'block', 'shed random', 'shed chunks' or 'shed lightest'",
        "what gives way when more is pushed than can be done: the pushes, which are refused"
        " (POND-417, HTTP 429); or elements, whole pushes, or the elements that no query above a"
        " weight matches, which are counted and lost",
        _words("block", "shed random", "shed chunks", "shed lightest"),
        "block",
        remark="See [when it gets too much](../guide/pressure.md).",
    ),
    Option(
        "queue_memory",
        (Scope.SYSTEM,),
        "an amount of memory, as '256 MB'",
        "how many bytes of pushed rows may wait for their epoch",
        _AMOUNT,
        "256 MB",
        entities=("queue",),
        remark="A push that is larger is taken when nothing waits.",
    ),
    Option(
        "query_memory",
        (Scope.SYSTEM,),
        "an amount of memory, as '64 MB', or 'unbounded'",
        "how many bytes of elements a query of weight 1 is granted in its windows, one of weight 2"
        " twice as many",
        OptionValues(_memory_or_unbounded, _TEXT),
        "unbounded",
        remark="A query that would need more is reduced as far as it tolerates when it is"
        " registered or altered; a query that tolerates nothing stays exact.",
    ),
    Option(
        "tolerate",
        (Scope.QUERY,),
        "'nothing', or some of 'window 10 minutes, sample 5 %, error 2 % at 95 %'",
        "how far the query may be reduced when there is not enough memory or time: the shortest"
        " window, the smallest sample, the widest interval of an estimate",
        OptionValues(_tolerance, _TEXT),
        "nothing",
        is_settled=True,
        remark="See [what you tolerate](../guide/tolerate.md).",
    ),
    Option(
        "weight",
        (Scope.QUERY,),
        "a number > 0",
        "the query's share of the work when there is too little time for all queries",
        _POSITIVE,
        1,
        entities=("answer",),
        remark="Work for queries of greater weight is done first: matching, merging, kept answers.",
    ),
    Option(
        "max_rows",
        (Scope.QUERY,),
        "a whole number > 0",
        "the most rows an answer may have",
        _COUNT,
        1_000_000,
        entities=("answer",),
    ),
    Option(
        "max_seconds",
        (Scope.QUERY,),
        "a number > 0",
        "the longest time an evaluation may take, in seconds",
        _POSITIVE,
        30.0,
        entities=("answer",),
    ),
    Option(
        "changes",
        (Scope.QUERY,),
        "'from registration' or 'from beginning'",
        "which changes FETCH begins with",
        _words("from registration", "from beginning"),
        "from registration",
        is_settled=True,
        remark="It counts when the first change is asked for, and not after.",
    ),
    Option(
        "follow",
        (Scope.QUERY,),
        "true or false",
        "whether the query's changes are computed from now on, though nobody has asked for them",
        _TRUTH,
        False,
        remark="A query that is followed stays so: `false` changes nothing then.",
    ),
    Option(
        "strategy",
        (Scope.QUERY, Scope.ENGINE),
        "'aware', 'direct' or 'negative'",
        "how operators learn that rows have left",
        _words("aware", "direct", "negative"),
        "aware",
        entities=("derivation", "changes"),
        remark="It is for the query's changes, and does not alter them. By default it is that of"
        " the engine.",
    ),
    Option(
        "partitions",
        (Scope.QUERY,),
        "a whole number > 0",
        "into how many partitions by expiration time an operator puts its rows",
        _COUNT,
        unless_given="what costs least",
        remark="It is for the query's changes, with strategy 'aware'.",
    ),
    Option(
        "eager_expiration",
        (Scope.QUERY, Scope.ENGINE),
        "a length of time, as '10 seconds' or INTERVAL 10 SECONDS",
        "how long changes may wait that come from expiration alone",
        _LENGTH,
        "0 SECONDS",
        entities=("derivation", "changes"),
        remark="It is for the query's changes, and does not alter them"
        " ([expiration intervals](../guide/changes.md#expiration-intervals)). By default it is that"
        " of the engine.",
    ),
    Option(
        "lazy_expiration",
        (Scope.QUERY, Scope.ENGINE),
        "a length of time, or 'auto'",
        "how often expired rows are dropped from state that need not be read at once; 'auto' drops"
        " them when they are as many as the live rows",
        _LENGTH_OR_AUTO,
        "auto",
        entities=("derivation", "changes"),
        remark="It is for the query's changes, too.",
    ),
    Option(
        "keep_changes",
        (Scope.QUERY,),
        "a whole number > 0",
        "how many changes are kept to be read again",
        _COUNT,
        1_000_000,
        entities=("derivation",),
    ),
    Option(
        "seed",
        (Scope.QUERY,),
        "a whole number",
        "the seed of its samples",
        _WHOLE,
        unless_given="from the query's text",
        is_settled=True,
        remark="Queries with the same text have the same sample, whenever they are registered.",
    ),
    Option(
        "owner",
        (Scope.QUERY,),
        "a text",
        "whose query it is; lists, feeds and bulk changes choose queries by it",
        _OWNER,
        "",
    ),
    Option(
        "tags",
        (Scope.QUERY,),
        "words with commas between them, or a list of words",
        "what lists, feeds and bulk changes choose queries by; a tag has no upper case",
        _TAGS,
        "",
    ),
    Option(
        "comment",
        (Scope.QUERY,),
        "a text",
        "a remark for people",
        _COMMENT,
        "",
    ),
    Option(
        "routing",
        (Scope.ENGINE,),
        "'ticket', 'fixed', 'random' or 'worst'",
        "the eddies' routing policy; 'ticket' adapts to measured costs and selectivities",
        _words("ticket", "fixed", "random", "worst"),
        "ticket",
        entities=("eddies",),
    ),
    Option(
        "shards",
        (Scope.ENGINE,),
        "a whole number > 0",
        "into how many tasks the work on a shared join is divided: about the number of cores",
        _INTEGER,
        2,
        type=int,
        entities=("joins",),
    ),
    Option(
        "max_pairs",
        (Scope.ENGINE,),
        "a whole number > 0",
        "the most pairs one task may find in one batch; a query whose own join finds more is"
        " suspended",
        _INTEGER,
        50_000_000,
        type=int,
        entities=("joins",),
    ),
    Option(
        "max_cores",
        (Scope.ENGINE,),
        "a whole number > 0",
        "how many shared joins are kept up to date: those that most queries use; other joins are"
        " computed at invocation",
        _INTEGER,
        64,
        type=int,
        entities=("joins",),
    ),
    Option(
        "max_connections",
        (Scope.SERVER,),
        "a whole number > 0",
        "how many connections are kept at once; a new one takes the place of the longest idle one,"
        " and is answered 503 if none is idle",
        _INTEGER,
        unless_given="as many as leave 256 descriptors of the process, or half of them",
        type=int,
    ),
    Option(
        "keep_alive",
        (Scope.SERVER,),
        "a number > 0",
        "how many seconds a connection is kept between two requests",
        _POSITIVE,
        5.0,
        type=float,
    ),
    Option(
        "patience",
        (Scope.SERVER,),
        "a number > 0",
        "how many seconds a client may take for the headers of a request, and over how many its"
        " rate is measured",
        _POSITIVE,
        20.0,
        type=float,
    ),
    Option(
        "slowest_rate",
        (Scope.SERVER,),
        "a number > 0",
        "how many bytes a second a client at least sends of a body, and takes of an answer or a"
        " feed that waits for it; slower ones are cut off",
        _POSITIVE,
        1000.0,
        type=float,
    ),
    Option(
        "body_memory",
        (Scope.SERVER,),
        "an amount of memory, as '256 MB'",
        "how much of the bodies of all requests is held at once; beyond it, the body that has been"
        " coming longest gives way, or a request is answered 503",
        _AMOUNT,
        "256 MB",
    ),
    Option(
        "answer_memory",
        (Scope.SERVER,),
        "an amount of memory, as '256 MB'",
        "how much of all answers waits at once for clients to take it; beyond it, the connections"
        " whose answers have waited longest are closed",
        _AMOUNT,
        "256 MB",
    ),
    Option(
        "function_seconds",
        (Scope.OPEN,),
        "a number > 0",
        "how long one call of a user-defined function may take, in seconds, unless the function has"
        " a limit of its own",
        _POSITIVE,
        10.0,
    ),
    Option(
        "function_key",
        (Scope.OPEN,),
        "a path",
        "the file of the key that seals functions; the code of others is not run",
        _ANYTHING,
        unless_given="`MILLPOND_FUNCTION_KEY`, or `~/.config/millpond/function_key`",
    ),
    Option(
        "ahead",
        (Scope.OPEN,),
        "a length of time, or 'unbounded'",
        "how far ahead of the clock an element's timestamp may be, if its stream has no AHEAD"
        " clause; rows further ahead are rejected",
        _LENGTH_OR_UNBOUNDED,
        "1 DAY",
        remark="Bounded runs have no limit.",
    ),
    Option(
        "master",
        (Scope.OPEN,),
        "the URL of a Spark master",
        "where tasks run",
        _ANYTHING,
        unless_given="this machine",
    ),
    Option(
        "spark",
        (Scope.OPEN,),
        "a Spark session",
        "used instead of one of Millpond's own, and left running",
        _ANYTHING,
        unless_given="one of its own",
    ),
    Option(
        "bounded",
        (Scope.OPEN,),
        "true or false",
        "whether file sources are finite: they are read to their end before the first answer"
        " instead of being watched for more",
        _TRUTH,
        False,
    ),
    Option(
        "progress",
        (Scope.OPEN,),
        "a function",
        'called while sources are read, with `{"stream", "rows", "done"}`',
        _ANYTHING,
        unless_given="nobody is told",
    ),
    Option(
        "url",
        (Scope.SINK,),
        "an http or https URL without a user",
        "where batches are posted to",
        OptionValues(_url, {"type": "string", "maxLength": 2_000}),
        unless_given="it has to be given",
        remark="See [webhooks](../guide/webhooks.md).",
    ),
    Option(
        "key_env",
        (Scope.SINK,),
        "the name of an environment variable of the server",
        "it holds the key that batches are signed with",
        OptionValues(_variable, {"type": "string", "pattern": _VARIABLE}),
        unless_given="`key_file` says where the key is",
        remark="A client's begins with `MILLPOND_SINK_`.",
    ),
    Option(
        "key_file",
        (Scope.SINK,),
        "the path of a file of the server",
        "it holds the key that batches are signed with",
        OptionValues(_path, {"type": "string", "minLength": 1, "maxLength": 1_000}),
        unless_given="`key_env` says where the key is",
        remark="Not for clients.",
    ),
    Option(
        "bootstrap",
        (Scope.SINK,),
        "brokers of Kafka, `host:port, …`",
        "where a sink USING kafka begins to look for its topic",
        OptionValues(_path, {"type": "string", "minLength": 1, "maxLength": 1_000}),
        unless_given="it has to be given",
        remark="See [Kafka](../guide/kafka.md#changes-to-a-topic).",
    ),
    Option(
        "topic",
        (Scope.SINK,),
        "a topic's name",
        "where changes are written to",
        OptionValues(_topic, {"type": "string", "pattern": _TOPIC}),
        unless_given="it has to be given",
    ),
    Option(
        "cursor_topic",
        (Scope.SINK,),
        "a topic's name",
        "the compacted topic that says how far the sink has come; it is made if it is not there",
        OptionValues(_topic, {"type": "string", "pattern": _TOPIC}),
        "millpond_cursors",
    ),
    Option(
        "config",
        (Scope.SINK,),
        "the path of a file of the server",
        "it holds more settings of Kafka's client, such as what it needs to log in",
        OptionValues(_path, {"type": "string", "minLength": 1, "maxLength": 1_000}),
        unless_given="the client has no more settings",
    ),
    Option(
        "timeout",
        (Scope.SINK,),
        "a length of time up to a minute",
        "how long one attempt to deliver may take in all",
        OptionValues(_minute, {"type": "string"}),
        "10 SECONDS",
    ),
    Option(
        "attempts",
        (Scope.SINK,),
        "a whole number > 0",
        "after how many failures in a row the sink is dead; they are 1, 2, 4, … seconds apart, and"
        " ten minutes at most",
        _INTEGER,
        15,
    ),
    Option(
        "batch",
        (Scope.SINK,),
        "a whole number from 1 to 10,000",
        "the most changes of one delivery",
        OptionValues(_batch, {"type": "integer", "minimum": 1, "maximum": 10_000}),
        500,
    ),
)

#: Every option, by its name.
OPTIONS = {option.name: option for option in _EVERY}


def list_options(scope: Scope, entity: str | None = None) -> tuple[str, ...]:
    """The names of a scope's options, perhaps of those alone that a kind of entity has.

    >>> list_options(Scope.QUERY, "derivation")
    ('strategy', 'eager_expiration', 'lazy_expiration', 'keep_changes')
    """
    return tuple(
        option.name
        for option in _EVERY
        if scope in option.scopes and (entity is None or entity in option.entities)
    )
