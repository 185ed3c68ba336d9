"""Decoys: queries beside the query under test, to show that they change none of its answers.

They have the predicates that grouped filters serve, on each column, and windows of every kind. So
the query under test shares its Query SteM, its segments and its tables with all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, islice

from millpond.cql.tree.statements import CreateRelation, CreateStream
from millpond.model.schema import ListOf, StructOf, parts_of

_CONSTANTS: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("true", "false"),
    "VARCHAR": ("'a'", "'b'", "''"),
    "BLOB": ("'a'::BLOB", "''::BLOB"),
    "TIMESTAMP": ("TIMESTAMP '1970-01-01 00:00:03'", "TIMESTAMP '1970-01-01 00:00:10'"),
    "TIMESTAMPTZ": ("TIMESTAMPTZ '1970-01-01 00:00:03+00'", "'1970-01-01 02:00:10+02'"),
    "DATE": ("DATE '2024-02-29'",),
    "JSON": ("'1'", "'{}'"),
}
_NUMBERS = ("1", "2", "10")
_NESTED: dict[type, tuple[str, ...]] = {ListOf: ("[]", "NULL"), StructOf: ("NULL",)}
_COMPARISONS = ("=", "<>", ">", "<=")
_WINDOWS = ("", " [RANGE 3 SECONDS]", " [ROWS 2]", " [NOW]")


def decoys(
    declared: CreateStream | CreateRelation, columns: Sequence[tuple[str, str]], count: int
) -> list[tuple[str, str]]:
    """Make `count` queries on a stream or relation, as names and CQL; always the same queries."""
    windows = _WINDOWS if isinstance(declared, CreateStream) else ("",)
    kinds = cycle(_queries(declared.name, columns, windows))
    return [
        (f"decoy_{declared.name}_{number}", cql) for number, cql in enumerate(islice(kinds, count))
    ]


def _queries(
    name: str, columns: Sequence[tuple[str, str]], windows: Sequence[str]
) -> Iterator[str]:
    """Make every kind of decoy, column by column in turn, so that a few decoys use every column."""
    turn = cycle(windows)
    for round_ in range(4):
        for column, kind in columns:
            constants = _NESTED.get(type(parts_of(kind))) or _CONSTANTS.get(kind, _NUMBERS)
            constant = constants[round_ % len(constants)]
            compared = f"{column} {_COMPARISONS[round_]} {constant}"
            yield f"SELECT * FROM {name}{next(turn)} WHERE {compared}"
        column = columns[round_ % len(columns)][0]
        yield f"SELECT * FROM {name}{next(turn)} WHERE {column} IS NULL OR {compared}"
        yield f"SELECT count(*) AS n FROM {name}{next(turn)}"
