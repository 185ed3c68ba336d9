"""Relations fed by a change source: a database's table, known from the log of its changes.

    CREATE RELATION planes (tail STRING, model STRING, seen TIMESTAMP, PRIMARY KEY (tail))
      TIMESTAMP BY seen USING json OPTIONS (path '…', op_column 'op')

Each record of the source is about the row of one key, at the instant in its TIMESTAMP BY column:
from then on the record is the row, or, if the operation column says so, the row is deleted. So the
records are a stream, `planes$changes`, and the relation has the last record of each key: it is a
derived relation over `[PARTITION BY tail ROWS 1]`. Exactly once, order of arrival, heartbeats and
rejects are the stream's; past instants and changes follow from the window. `USING push` stands for
records that clients push to that stream.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.cql.print.printer import print_name
from millpond.cql.tree.statements import CreateRelation
from millpond.model.schema import Field, Schema

#: The option that names the column an operation stands in.
OP_COLUMN = "op_column"
#: What an operation column says of a row that is gone, in any case; all else writes the row.
DELETES = ("d", "delete", "-")


#: The source of change records that clients push.
PUSHED = "push"


def is_change_source(statement: CreateRelation) -> bool:
    """Whether a relation is fed by records of its changes."""
    source = statement.source
    has_operations = source is not None and OP_COLUMN in {k.lower() for k in source.options}
    return statement.timestamp_by is not None or has_operations


def changes_name(relation: str) -> str:
    """The name of the stream of a relation's change records."""
    return f"{relation}$changes"


def change_source(
    statement: CreateRelation, relation: RelationDef, stream_id: int, timestamp_by: str | None
) -> tuple[StreamDef, RelationDef]:
    """The stream of a change source's records, and the relation over it.

    Raises:
        MillpondError: CQL-223, the relation has no primary key.
    """
    if not relation.primary_key:
        raise statement.error(
            "CQL-223",
            f'relation "{relation.name}" is fed by changes and has no primary key',
            detail="A change says what became of the row of a key.",
            hint="Declare PRIMARY KEY (…).",
        )
    if any(field.required for field in relation.schema.fields):
        raise statement.error(
            "CQL-223",
            f'relation "{relation.name}" is fed by changes and has a column that is NOT NULL',
            detail="The record of a row that goes may hold its key alone.",
            hint="Leave out NOT NULL; columns of the PRIMARY KEY are never NULL.",
        )
    source, fields, kept = relation.source, list(relation.schema.fields), ""
    if source is not None:
        options = {k: v for k, v in source.options.items() if k != OP_COLUMN}
        column = source.options.get(OP_COLUMN)
        source = None if source.format == PUSHED else replace(source, options=options)
        if column is not None:
            if relation.schema.find(column) is None:
                fields.append(Field(column, "VARCHAR"))
            deletes = ", ".join(f"'{word}'" for word in DELETES)
            said = f"lower(trim(CAST({print_name(column)} AS STRING)))"
            kept = f" WHERE coalesce({said}, '') NOT IN ({deletes})"
    stream = StreamDef(
        stream_id,
        changes_name(relation.name),
        Schema(tuple(fields)),
        timestamp_by,
        statement.delay,
        statement.idle_after,
        source=source,
        text=statement.text,
        ahead=statement.ahead,
    )
    columns = ", ".join(map(print_name, relation.schema.names))
    keys = ", ".join(map(print_name, relation.primary_key))
    records = f"{print_name(stream.name)} [PARTITION BY {keys} ROWS 1]"
    return stream, replace(relation, source=None, view=f"SELECT {columns} FROM {records}{kept}")
