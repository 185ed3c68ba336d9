"""The options of `USING kafka`, checked: an option that nobody reads is refused.

Passwords are not among them. They stand in a file of the operator's (`config`), in the form Kafka's
own tools read; only its path is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model import time
from millpond.model.secret_options import name_of_secret
from millpond.planner.resolve.names import did_you_mean
from millpond.runtime.secrets_file import find_secret

FORMATS = ("json", "csv", "avro", "raw")
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

#: What Millpond decides itself; the file `config` cannot set it.
_OURS = frozenset(
    (
        "bootstrap.servers",
        "group.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "auto.offset.reset",
        "isolation.level",
        "transactional.id",
        "enable.idempotence",
        "plugin.library.paths",
    )
)
#: Settings of `config` that are the schema registry's and not the client's; the name of its login,
#: whose value is `user:password`, is the one Confluent's tools have.
_OF_REGISTRY = "schema.registry."
REGISTRY_LOGIN = "schema.registry.basic.auth.user.info"
_MAX_RECORDS = 1_000_000


@dataclass(frozen=True)
class KafkaOptions:
    """How one stream reads its topics.

    Attributes:
        stream: The stream's name, for errors.
        bootstrap: The brokers to begin with, `host:port, …`.
        topics: The topics, each once.
        format: One of `FORMATS`.
        start: 'earliest', 'latest', an instant, or offsets as JSON.
        on_loss: Whether to 'stop' or 'continue' when records were deleted before they were read.
        isolation: Which records are read of transactions.
        max_records: How many records a batch has at most.
        config: The path of a file with more settings of the client, or None.
        schema, registry: For Avro: the path of the schema, or the registry's URL.
        sep: What separates values of CSV.
        columns: For what a record has beside its value (`METADATA`), the column that takes it.
    """

    stream: str
    bootstrap: str
    topics: tuple[str, ...]
    format: str
    start: str
    on_loss: str
    isolation: str
    max_records: int
    config: str | None
    schema: str | None
    registry: str | None
    sep: str
    columns: Mapping[str, str]

    def client(self) -> dict[str, str]:
        """The settings of a client: the brokers, and what the file `config` says now.

        Raises:
            MillpondError: CQL-214, the file cannot be read, or sets what Millpond decides.
        """
        return client_settings(self.bootstrap, self.config)

    def registry_login(self) -> tuple[str, str] | None:
        """User and password for the schema registry, which stand in `config`, too.

        Raises:
            MillpondError: CQL-214, as `client`.
        """
        given = read_config(self.config).get(REGISTRY_LOGIN) if self.config else None
        if given is None:
            return None
        user, _, password = given.partition(":")
        return user, password


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


def read_start(options: KafkaOptions) -> str | int | dict[str, dict[str, int]]:
    """Read where to start: 'earliest', 'latest', an instant, or offsets by topic and partition.

    Raises:
        MillpondError: CQL-214, it is none of these.
    """
    text = options.start
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.startswith("{"):
        try:
            offsets = {
                str(topic): {str(int(p)): int(offset) for p, offset in partitions.items()}
                for topic, partitions in json.loads(text).items()
            }
        except (ValueError, TypeError, AttributeError):
            offsets = {}
        negative = any(o < 0 for given in offsets.values() for o in given.values())
        if offsets and not negative and set(offsets) <= set(options.topics):
            return offsets
    else:
        try:
            return time.parse_instant(text)
        except (MillpondError, ValueError):
            pass
    raise MillpondError(
        "CQL-214",
        f'the Kafka source of "{options.stream}" cannot start at "{text[:100]}"',
        hint="""start is 'earliest', 'latest', an instant, or '{"topic": {"0": 17}}'.""",
    )


def client_settings(bootstrap: str, config: str | None) -> dict[str, str]:
    """The settings of a client, of a source or a sink: the brokers, and what `config` says now.

    Raises:
        MillpondError: CQL-214, as `read_config`.
    """
    given = read_config(config) if config else {}
    of_client = {k: v for k, v in given.items() if not k.startswith(_OF_REGISTRY)}
    return {"bootstrap.servers": bootstrap, "client.id": "millpond", **of_client}


def read_config(path: str) -> dict[str, str]:
    """Read a file of `name=value` lines, as Kafka's own tools take them; or `secret('name')`.

    Raises:
        MillpondError: CQL-214. It never shows a value of the file.
    """
    if (name := name_of_secret(path)) is not None:
        return _read_secret_config(path, name)
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise _config_error(path, str(reason)) from None
    settings = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise _config_error(path, f"line {number} is not name=value")
        _check_ours(path, name.strip())
        settings[name.strip()] = value.strip()
    return settings


def _read_secret_config(path: str, name: str) -> dict[str, str]:
    """Read the settings that stand in the file of secrets under a name."""
    secret = find_secret(name)
    if isinstance(secret, str):
        raise _config_error(path, "the secret is a text, and not an object of settings")
    for setting in secret:
        _check_ours(path, setting)
    return dict(secret)


def _check_ours(path: str, setting: str) -> None:
    if setting in _OURS:
        raise _config_error(path, f"{setting} is for Millpond to decide")


def _config_error(path: str, reason: str) -> MillpondError:
    return MillpondError(
        "CQL-214",
        f'the file "{path}" cannot be used as the config of a Kafka client',
        detail=f"{reason[:1].upper()}{reason[1:]}.",
        hint="It has a line name=value for each setting of the client (librdkafka's names).",
    )


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
