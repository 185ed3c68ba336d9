"""The options of `USING kafka`, checked: an option that nobody reads is refused."""

from __future__ import annotations

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.planner.resolve.names import did_you_mean
from millpond.runtime.kafka.settings import FORMATS, REGISTRY_LOGIN, KafkaOptions, read_start

#: What a record has beside its value: each option names the column that takes it.
METADATA = (
    "key_column",
    "topic_column",
    "partition_column",
    "offset_column",
    "time_column",
    "headers_column",
)
#: The options whose values are one of a few words, the default first.
_CHOICES = {
    "format": ("", *FORMATS),
    "on_loss": ("stop", "continue"),
    "isolation": ("read_committed", "read_uncommitted"),
}
_OTHERS = ("bootstrap", "topic", "start", "max_records", "config", "schema", "registry", "sep")
OPTIONS = (*_OTHERS, *_CHOICES, *METADATA)

_MAX_RECORDS = 1_000_000


def kafka_options(definition: StreamDef) -> KafkaOptions:
    """Read the options of a stream's source.

    Raises:
        MillpondError: CQL-214, an option is missing, unknown, or has a value it cannot have.
    """
    source = definition.source
    assert source is not None
    given = source.options
    for name in given:
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS) or f"Options are {', '.join(sorted(OPTIONS))}."
            if _is_secret(name):
                hint = "What a client needs to log in stands in a file: config 'client.properties'."
            raise _error(definition, f'the option "{name}" is none of a Kafka source', hint)
    for name in ("bootstrap", "topic", "format"):
        if not given.get(name, "").strip(" ,"):
            using = "USING kafka OPTIONS (bootstrap 'host:9092', topic 'name', format 'json')"
            raise _error(definition, f"the Kafka source has no {name}", using)
    chosen = {name: given.get(name, words[0]).lower() for name, words in _CHOICES.items()}
    for name, words in _CHOICES.items():
        if chosen[name] not in words or not chosen[name]:
            hint = f"It is {' or '.join(repr(w) for w in words if w)}."
            raise _error(definition, f'the option {name} cannot be "{given[name]}"', hint)
    if "@" in given.get("registry", "").partition("://")[2].partition("/")[0]:
        hint = f"It stands in the file config, as {REGISTRY_LOGIN}=user:password."
        raise _error(definition, "a registry's address has no password in it", hint)
    columns = {name: _column(definition, name) for name in METADATA if name in given}
    if len({column.lower() for column in columns.values()}) < len(columns):
        raise _error(definition, "two parts of a record go to one column", "Name another column.")
    limit = given.get("max_records", str(_MAX_RECORDS))
    if not limit.isdecimal() or not 0 < int(limit) <= 100_000_000:
        raise _error(definition, f'max_records cannot be "{limit}"', "It is a number of records.")
    sep = given.get("sep", ",")
    if len(sep) != 1 or not sep.isascii() or sep in '"\r\n':
        raise _error(definition, f'sep cannot be "{sep}"', "It is one character of ASCII.")
    options = KafkaOptions(
        definition.name,
        given["bootstrap"],
        tuple(dict.fromkeys(t.strip() for t in given["topic"].split(",") if t.strip())),
        chosen["format"],
        given.get("start", "earliest").strip(),
        chosen["on_loss"],
        chosen["isolation"],
        int(limit),
        given.get("config"),
        given.get("schema"),
        given.get("registry"),
        sep,
        columns,
    )
    _check_columns(definition, options)
    read_start(options)
    options.client()
    return options


def _column(definition: StreamDef, option: str) -> str:
    assert definition.source is not None
    name = definition.source.options[option]
    field = definition.schema.find(name)
    if field is None or field.computed is not None:
        raise _error(
            definition,
            f'{option} names "{name}", which is no column that can be given',
            f"Columns are {', '.join(f.name for f in definition.schema.given)}.",
        )
    return field.name


def _check_columns(definition: StreamDef, options: KafkaOptions) -> None:
    """Refuse columns that no record can have.

    Raises:
        MillpondError: CQL-214.
    """
    payload = payload_names(definition, options)
    if options.format != "raw":
        return
    if unknown := [name for name in payload if name.lower() != "value"]:
        raise _error(
            definition,
            f'the column "{unknown[0]}" is none of a raw record',
            'A raw record has its value, in the column "value"; the options '
            f"{', '.join(METADATA)} name columns for what else it has.",
        )


def payload_names(definition: StreamDef, options: KafkaOptions) -> list[str]:
    """The columns that records' values have to give, in the order they are declared."""
    taken = {name.lower() for name in options.columns.values()}
    return [f.name for f in definition.schema.given if f.name.lower() not in taken]


def _is_secret(name: str) -> bool:
    return name.startswith(("sasl", "ssl", "security", "kafka.")) or "password" in name


def _error(definition: StreamDef, primary: str, hint: str) -> MillpondError:
    return MillpondError("CQL-214", f'{primary} (stream "{definition.name}")', hint=hint)
