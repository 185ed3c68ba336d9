"""What a sink can be: its options, its key and its receiver, checked before there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.catalog.option import Scope
from millpond.catalog.options import OPTIONS, list_options
from millpond.cql.tree.statements import CreateSink
from millpond.errors import MillpondError
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.resolve.names import did_you_mean
from millpond.runtime.delta.options import table_path
from millpond.runtime.delta.packages import import_deltalake
from millpond.runtime.delta.table_log import first_line
from millpond.runtime.kafka.packages import import_kafka
from millpond.runtime.kafka.settings import read_config
from millpond.runtime.postgres.connect import (
    SERVER_OPTIONS,
    import_psycopg2,
    option_error,
    read_server,
)
from millpond.runtime.secrets_file import fill_in_secrets
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.sinks.delta import MORE_COLUMNS
from millpond.service.sinks.sender import DeliveryError
from millpond.service.sinks.webhook import read_key

#: The options that say where the key is by which deliveries are signed.
KEYS = ("key_env", "key_file")
#: The options that belong to one format; all others are every sink's.
OWN = {
    "http": ("url", *KEYS, "timeout"),
    "kafka": ("bootstrap", "topic", "cursor_topic", "config"),
    "postgres": (*SERVER_OPTIONS, "table", "cursor_table"),
    "delta": ("path",),
}
#: The formats whose receivers keep an answer and find its rows by a key; and whether each does so
#: always, or only where a key is given.
KEYED = {"postgres": True, "kafka": False}


#: Where sinks are created that clients may not create. `millpond run` would read the followed
#: sources of the store to their end, after which their streams have ended.
_ON_THE_MACHINE = (
    "Such sinks are created by who runs the server, while it does not run: in Python, or by "
    "millpond shell --store."
)


def default_options() -> dict[str, Any]:
    """The options of a sink that sets none."""
    found = {name: OPTIONS[name].default for name in list_options(Scope.SINK)}
    return {name: value for name, value in found.items() if value is not None}


def check_format(
    format: str, options: Mapping[str, Any], policy: AccessPolicy | None, text: str
) -> tuple[str, ...] | None:
    """Check the options of a format, also against the policy; return the allowed hosts.

    Raises:
        MillpondError: CQL-214, POND-414.
    """
    for other, own in OWN.items():
        for name in own:
            if other != format and name in options:
                raise MillpondError(
                    "CQL-214",
                    f"the option {name} is none of a sink USING {format}",
                    detail=f"It belongs to USING {other}.",
                    hint=f"There are {', '.join(OWN[format])}, and those of every sink.",
                    text=text,
                )
    if format == "kafka":
        _check_kafka(options, policy, text)
        return None
    if format == "postgres":
        _check_postgres(options, policy, text)
        return None
    if format == "delta":
        _check_delta(options, policy, text)
        return None
    return _check_webhook(options, policy, text)


def _check_kafka(options: Mapping[str, Any], policy: AccessPolicy | None, text: str) -> None:
    """Check the options of a sink to Kafka.

    Raises:
        MillpondError: CQL-214; DATA-502, the extra is not installed; POND-414 for clients: the
            brokers say which hosts are connected to.
    """
    if policy is not None:
        raise MillpondError(
            "POND-414",
            "clients may not have this server write to Kafka",
            detail="Kafka's brokers name the hosts that are connected to.",
            hint=_ON_THE_MACHINE,
            text=text,
        )
    for name in ("bootstrap", "topic"):
        if name not in options:
            raise MillpondError(
                "CQL-214",
                f"the sink has no {name}",
                hint="Write USING kafka (bootstrap 'host:9092', topic 'name').",
                text=text,
            )
    if options["topic"] == {**default_options(), **options}["cursor_topic"]:
        raise MillpondError(
            "CQL-214",
            "the changes and the cursors of a sink cannot be in one topic",
            hint="Name another topic.",
            text=text,
        )
    import_kafka()
    if "config" in options:
        read_config(options["config"])


def _check_postgres(options: Mapping[str, Any], policy: AccessPolicy | None, text: str) -> None:
    """Check the options of a sink to PostgreSQL.

    Raises:
        MillpondError: CQL-214; DATA-502, the extra is not installed; POND-414 for clients.
    """
    if policy is not None:
        raise MillpondError(
            "POND-414",
            "clients may not have this server write to PostgreSQL",
            detail="What logs in there is the operator's.",
            hint=_ON_THE_MACHINE,
            text=text,
        )
    read_server(options, "the sink")
    for name in ("table", "cursor_table"):
        table = options.get(name, OPTIONS[name].default)
        if table is None or "%" in table:
            raise option_error(
                "the sink has no table" if table is None else f'no table is named "{table}"',
                "Write USING postgres (..., table 'public.late'); the table has to be there.",
            )
    import_psycopg2()
    fill_in_secrets({k: v for k, v in options.items() if k == "password"})


def _check_delta(options: Mapping[str, Any], policy: AccessPolicy | None, text: str) -> None:
    """Check the options of a sink to a Delta table.

    Raises:
        MillpondError: CQL-214; DATA-502, the extra is not installed; POND-414 for clients.
    """
    if policy is not None:
        raise MillpondError(
            "POND-414",
            "clients may not have this server write Delta tables",
            detail="A table is written with the rights of who runs the server.",
            hint=_ON_THE_MACHINE,
            text=text,
        )
    if "path" not in options:
        raise option_error("the sink has no path", "Write USING delta (path '/data/alerts').")
    table_path(str(options["path"]), "the sink")
    import_deltalake()


def check_rows(statement: CreateSink, bound: BoundQuery | None) -> None:
    """Check that the changes of a sink's query can be rows of a Delta table.

    Raises:
        MillpondError: CQL-214.
    """
    if bound is None:
        raise statement.error(
            "CQL-214",
            "a Delta table takes the changes of one query",
            detail="Queries by tag or owner have columns of their own, and a table has one schema.",
            hint="Write FROM QUERY name.",
        )
    seen = {name.lower() for name in MORE_COLUMNS.names}
    for field in bound.output.fields:
        if field.name.lower() in seen:
            raise statement.error(
                "CQL-214",
                f'a Delta table cannot have another column "{field.name}"',
                detail="Names are compared without regard to case, and a sink adds "
                f"{', '.join(MORE_COLUMNS.names)}.",
                hint="Name the column otherwise: SELECT expression AS name.",
            )
        seen.add(field.name.lower())
    try:
        import_deltalake().Schema.from_arrow(bound.output.to_arrow())
    except Exception as error:
        raise statement.error(
            "CQL-214",
            "a Delta table cannot have the columns of the query",
            detail=first_line(error),
            hint="Cast the column: CAST(column AS VARCHAR).",
        ) from None


def check_key(statement: CreateSink, bound: BoundQuery | None) -> tuple[str, ...]:
    """The columns of a sink's KEY, as its query has them; none of a sink of changes.

    Args:
        statement: The sink's declaration.
        bound: Its query, if it is of one.

    Raises:
        MillpondError: CQL-202, the query has no such column; CQL-214, there is a key where none can
            be, or none where there has to be one.
    """
    if statement.format not in KEYED:
        if not statement.key:
            return ()
        raise statement.error(
            "CQL-214",
            f"KEY is none of a sink USING {statement.format}",
            detail="Such a sink delivers changes, and keeps no rows that have to be found again.",
            hint="Remove KEY (...).",
        )
    if not statement.key and not KEYED[statement.format]:
        return ()
    if any(name.lower() == "after" for name in statement.options):
        raise statement.error(
            "CQL-214",
            "a sink that keeps an answer cannot begin after a cursor",
            detail="It begins with the whole answer.",
            hint="Remove `after`.",
        )
    if not statement.key:
        raise statement.error(
            "CQL-214",
            "the sink has no key",
            detail="It keeps a table equal to the answer, and finds its rows by a key.",
            hint="Write FROM QUERY name KEY (column, ...).",
        )
    if bound is None or bound.to_stream is not None:
        raise statement.error(
            "CQL-214",
            "a sink with a key keeps the answer of one query",
            detail="Queries by tag or owner have several answers, a stream-valued query has none.",
            hint="Write FROM QUERY name, of a query without ISTREAM, DSTREAM and RSTREAM.",
        )
    names = {name.lower(): name for name in bound.output.names}
    for name in statement.key:
        if name.lower() not in names:
            raise statement.error(
                "CQL-202",
                f'no column "{name}" for the key',
                detail=f"The query's columns are {', '.join(bound.output.names)}.",
                hint=did_you_mean(name, list(bound.output.names)) or "Name one of these.",
            )
    return tuple(dict.fromkeys(names[name.lower()] for name in statement.key))


def _check_webhook(
    options: Mapping[str, Any], policy: AccessPolicy | None, text: str
) -> tuple[str, ...] | None:
    """Check URL and key against the policy, and that there is a key; return the allowed hosts.

    Raises:
        MillpondError: CQL-214, POND-414.
    """
    if "url" not in options:
        raise MillpondError(
            "CQL-214",
            "the sink has no url",
            hint="Write USING http (url 'https://...', key_env 'NAME').",
            text=text,
        )
    if sum(key in options for key in KEYS) != 1:
        raise MillpondError(
            "CQL-214",
            "the sink does not say where its key is",
            detail="Deliveries are signed with a key that is in the server's environment, or in "
            "a file.",
            hint="Give key_env 'NAME', or key_file '/path'.",
            text=text,
        )
    hosts = None if policy is None else policy.confine_sink(options, text)
    try:
        read_key(options)
    except DeliveryError as error:
        raise MillpondError(
            "CQL-214",
            "the sink's key cannot be used",
            detail=f"{error}.",
            hint="A key is 16 bytes or more, best random: openssl rand -hex 32.",
            text=text,
        ) from error
    return hosts
