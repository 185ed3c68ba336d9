"""Names and columns of tables; what is asked of a server: `tests/postgres`."""

from __future__ import annotations

import pytest

from millpond.catalog.objects import RelationDef, SourceDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.runtime.postgres.source_options import is_replicated, read_source
from millpond.runtime.postgres.tables import match_columns, quote

GIVEN = {"host": "h", "database": "d", "user": "u", "table": "public.planes"}


def relation(**options: str) -> RelationDef:
    schema = Schema((Field("tail", "VARCHAR"), Field("seats", "INTEGER")))
    source = SourceDef("postgres", {**GIVEN, **options})
    return RelationDef(7, "planes", schema, ("tail",), source=source)


def test_columns_are_found_by_their_name_or_else_in_any_case() -> None:
    found = match_columns(["Tail", "tail", "Seats"], ["tail", "seats"])
    assert found == {"tail": "tail", "seats": "Seats"}
    for missing in ("nope", "TAIL"):  # the second could be either of two
        with pytest.raises(ValueError, match=missing):
            match_columns(["Tail", "tail"], [missing])


def test_names_are_quoted() -> None:
    assert quote('a"b.C d') == '"a""b"."C d"'


def test_what_a_source_says() -> None:
    source = read_source(relation(slot="s", oid="16384"))
    assert (source.table, source.slot, source.oid) == ("public.planes", "s", 16_384)
    assert is_replicated(relation())


@pytest.mark.parametrize("given", [{"table": " "}, {"table": "a%s"}, {"tabel": "x"}, {"port": "x"}])
def test_what_no_source_says(given: dict[str, str]) -> None:
    with pytest.raises(MillpondError) as refused:
        read_source(relation(**given))
    assert refused.value.code == "CQL-214"
