"""Relations fed by changes: the stream of their records, and the query that reads it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.versions import version_of

from millpond.catalog.objects import RelationDef, SourceDef, StreamDef
from millpond.cql import parse_query, parse_statement
from millpond.errors import MillpondError
from millpond.service.definitions.change_fed_relations import change_source, is_change_source
from millpond.service.definitions.declarations import relation_definition, timestamp_column


def fed(text: str) -> tuple[StreamDef, RelationDef]:
    statement: Any = parse_statement(text)
    assert is_change_source(statement)
    relation = relation_definition(statement, 7, version_of())
    by = timestamp_column(statement, relation.schema)
    return change_source(statement, relation, 8, by)


PLANES = (
    'CREATE RELATION planes (tail STRING, "Model" STRING, seen TIMESTAMP, PRIMARY KEY (tail)) '
    "TIMESTAMP BY seen DELAY 5 SECONDS USING json OPTIONS (path '/data', op_column '{}')"
)


def test_records_are_a_stream_of_their_own() -> None:
    records, relation = fed(PLANES.format("op"))
    assert (records.id, records.name, records.timestamp_by) == (8, "planes$changes", "seen")
    assert records.schema.names == ("tail", "Model", "seen", "op")
    assert (records.delay, records.source) == (5_000_000, SourceDef("json", {"path": "/data"}))
    assert (relation.id, relation.source) == (7, None)
    assert relation.schema.names == ("tail", "Model", "seen")


def test_the_relation_is_what_the_last_record_of_each_key_says() -> None:
    _, relation = fed(PLANES.format("op"))
    assert relation.view is not None
    assert parse_query(relation.view) is not None
    assert "[PARTITION BY tail ROWS 1]" in relation.view
    assert relation.view.startswith("SELECT tail, ")
    assert "NOT IN ('d', 'delete', '-')" in relation.view
    _, without = fed(
        "CREATE RELATION r (k INTEGER, at DATE, PRIMARY KEY (k, at)) TIMESTAMP BY at USING csv"
        " OPTIONS (path 'x')"
    )
    assert "[PARTITION BY k, at ROWS 1]" in (without.view or "")
    assert "WHERE" not in (without.view or "")


def test_an_operation_may_stand_in_a_column_of_the_relation() -> None:
    records, _ = fed(PLANES.format("model"))
    assert records.schema.names == ("tail", "Model", "seen")


def test_records_may_be_pushed() -> None:
    records, _ = fed(
        "CREATE RELATION r (k INTEGER, PRIMARY KEY (k)) USING push OPTIONS (OP_COLUMN 'op')"
    )
    assert (records.source, records.timestamp_by) == (None, None)
    assert records.schema.names == ("k", "op")


def test_only_records_with_instants_or_operations_are_changes() -> None:
    plain: Any = parse_statement("CREATE RELATION r (k INTEGER) USING csv OPTIONS (path 'x')")
    assert not is_change_source(plain)
    assert not is_change_source(parse_statement("CREATE RELATION r (k INTEGER)"))  # type: ignore[arg-type]


def test_without_a_key_no_row_is_meant() -> None:
    with pytest.raises(MillpondError, match=r"CQL-223: relation .* has no primary key"):
        fed("CREATE RELATION r (k TIMESTAMP) TIMESTAMP BY k USING csv OPTIONS (path 'x')")


def test_a_record_that_deletes_ends_its_row(pond: Any) -> None:
    pond.execute(
        "CREATE RELATION r (k INTEGER, v STRING, PRIMARY KEY (k)) USING push"
        " OPTIONS (op_column 'op')"
    )
    for k, v, op in (
        (1, "a", "c"),
        (2, "b", None),
        (3, "c", "u"),
        (1, None, " Delete "),
        (2, "B", ""),
    ):
        pond.ingest("r$changes", [{"k": k, "v": v, "op": op}])
    assert sorted(pond.ask("SELECT k, v FROM r").rows()) == [(2, "B"), (3, "c")]
