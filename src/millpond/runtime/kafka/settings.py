"""How topics are read, and the settings of a client of Kafka's.

Passwords are not among the options. They stand in a file of the operator's (`config`), in the form
Kafka's own tools read; only its path is kept.

A process that asks the brokers loads this for each stream, so it loads little itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.errors import MillpondError
from millpond.model import time
from millpond.model.secret_options import name_of_secret
from millpond.runtime.secrets_file import find_secret

FORMATS = ("json", "csv", "avro", "raw")
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

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> KafkaOptions:
        """The options, whose fields were written as JSON."""
        return cls(**{**given, "topics": tuple(given["topics"])})

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
