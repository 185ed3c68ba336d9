"""The options of `CREATE RELATION … USING postgres`, checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millpond.catalog.objects import RelationDef
from millpond.errors import MillpondError
from millpond.model.schema import parts_of
from millpond.planner.resolve.names import did_you_mean
from millpond.runtime.postgres.connect import (
    SERVER_OPTIONS,
    DatabaseServer,
    option_error,
    read_server,
)

FORMAT = "postgres"
#: The options that a statement can have.
OPTIONS = (*SERVER_OPTIONS, "table")
#: What Millpond adds to them: the slot that is read, the table's number, its columns' form.
ADDED = ("slot", "oid", "form")


@dataclass(frozen=True)
class TableSource:
    """Where a relation's rows come from.

    Attributes:
        server: The database.
        table: The table's name, perhaps with its schema.
        slot: The replication slot that is read, which is also the publication's name; empty until
            there is one.
        oid: The table's number; 0 until it is known.
        form: The columns that are followed as they were when the relation was created; empty
            where that is not known.
        allows: Which addresses may be connected to; None: all.
    """

    server: DatabaseServer
    table: str
    slot: str
    oid: int
    form: str
    allows: Callable[[str, int], bool] | None


def is_replicated(relation: RelationDef) -> bool:
    """Whether a relation follows a table of PostgreSQL."""
    return relation.source is not None and relation.source.format == FORMAT


def read_source(
    relation: RelationDef, allows: Callable[[str, int], bool] | None = None
) -> TableSource:
    """Read where a relation's rows come from.

    Raises:
        MillpondError: CQL-214 for the options; CQL-223, the relation has no primary key; CQL-301
            for what is not available.
    """
    source = relation.source
    assert source is not None
    what = f'the source of "{relation.name}"'
    for name in source.options:
        if name not in (*OPTIONS, *ADDED):
            hint = did_you_mean(name, OPTIONS) or f"Options are {', '.join(OPTIONS)}."
            raise option_error(f'{what} cannot have the option "{name}"', hint)
    server = read_server(source.options, what)
    table = source.options.get("table", "")
    if not table.strip() or "%" in table:
        raise option_error(f"{what} has no table", "Write table 'public.planes'.")
    _check_relation(relation)
    return TableSource(
        server,
        table,
        source.options.get("slot", ""),
        int(source.options.get("oid", "0")),
        source.options.get("form", ""),
        allows,
    )


def _check_relation(relation: RelationDef) -> None:
    if relation.non_retroactive:
        raise MillpondError(
            "CQL-301",
            "NON RETROACTIVE relations that follow a table are not available yet",
            detail="A transaction may have been committed before elements that were answered.",
            hint="Declare it without NON RETROACTIVE.",
        )
    if not relation.primary_key:
        raise MillpondError(
            "CQL-223",
            f'relation "{relation.name}" follows a table and has no primary key',
            detail="A change says what became of the row of a key.",
            hint="Declare PRIMARY KEY (…): the columns of the table's primary key.",
        )
    for field in relation.schema.fields:
        if parts_of(field.type) is not None:
            raise MillpondError(
                "CQL-301",
                f'the column "{field.name}" cannot be followed as {field.declared}',
                detail="Arrays and composite values of PostgreSQL are texts of its own form.",
                hint="Declare it STRING, or a JSON column of the table JSON.",
            )
