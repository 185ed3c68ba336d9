"""No allowed function makes much of little, but those the catalogue says so of.

Every signature DuckDB knows of every allowed scalar is called with small and large numbers, short
and long texts, lists and the rest; what comes out is held against what went in.
"""

from __future__ import annotations

import itertools
import random

import duckdb
import pytest

from millpond.model.functions import ALLOWED, FUNCTIONS, Growth, Kind

#: How many times as large as its arguments a value may be; each counts as so many bytes at least.
TIMES, LEAST = 64, 200
#: Rows a signature is called with.
ROWS = 350

TEXTS = ["''", "'abc'", "repeat('ab', 250)", "'100000'", "'[1, 2]'", "'a'", "'%s'"]
LISTS = ["[1, 2, 3]", "range(500)", "list_transform(range(500), lambda i: 1)"]
TEXT_LISTS = ["['a', 'b']", "list_transform(range(300), lambda i: repeat('ab', 20))"]
OF_TYPE = {
    "VARCHAR": TEXTS,
    "JSON": ["'[1, 2]'", '\'{"a": {"b": [1, 2, 3]}}\''],
    "BLOB": ["encode(repeat('ab', 250))", "encode('a')"],
    "BIT": ["CAST('101' AS BIT)", "CAST(repeat('10', 100) AS BIT)"],
    "TINYINT": ["0", "3", "100"],
    "SMALLINT": ["0", "3", "30000"],
    **{
        key: ["0", "3", "100000"]
        for key in ("INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "UINTEGER", "UHUGEINT")
    },
    **{key: ["0.5", "3", "100000", "0.00001"] for key in ("DOUBLE", "FLOAT", "DECIMAL")},
    "BOOLEAN": ["true", "false"],
    "DATE": ["DATE '2020-01-01'", "DATE '1000-01-01'"],
    "TIME": ["TIME '10:00:00'"],
    "TIMESTAMP": ["TIMESTAMP '2020-01-01 10:00:00'", "TIMESTAMP '1000-01-01 10:00:00'"],
    "INTERVAL": ["INTERVAL 1 DAY", "INTERVAL 30000 DAYS"],
    "UUID": ["CAST('00000000-0000-4000-8000-000000000000' AS UUID)"],
    **dict.fromkeys(("ANY[]", "T[]", "BIGINT[]"), LISTS),
    "VARCHAR[]": TEXT_LISTS,
    **{key: ["100000", "'abc'", "repeat('ab', 250)"] for key in ("ANY", "T")},
}


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": "1", "memory_limit": "512MB"})


def signatures(connection: duckdb.DuckDBPyConnection) -> dict[str, list[list[str]]]:
    """The argument types of each function's forms."""
    found: dict[str, list[list[str]]] = {}
    for name, types, varargs in connection.execute(
        "SELECT lower(function_name), parameter_types, varargs FROM duckdb_functions()"
        " WHERE function_type IN ('scalar', 'macro') ORDER BY ALL"
    ).fetchall():
        kinds = [kind or "ANY" for kind in types or []] + ([varargs] * 2 if varargs else [])
        found.setdefault(name, []).append(kinds)
    return found


def explosions(
    connection: duckdb.DuckDBPyConnection, name: str, types: list[str]
) -> list[tuple[object, ...]]:
    """The arguments of which a call makes too much."""
    choices = [OF_TYPE[kind] for kind in types]
    every = list(itertools.islice(itertools.product(*choices), 20_000))
    chosen = random.Random(name).sample(every, min(ROWS, len(every)))
    called = f'"{name}"' if name.isidentifier() else None
    bad: list[tuple[object, ...]] = []
    # Arguments of one type may be of several (ANY), so each row is a SELECT of its own.
    for arguments in chosen:
        values = ", ".join(arguments)
        if called is None and len(arguments) != 2:
            continue
        call = f"{called}({values})" if called else f"({arguments[0]}) {name} ({arguments[1]})"
        sizes = " + ".join(f"greatest(length(CAST({a} AS VARCHAR)), {LEAST})" for a in arguments)
        try:
            row = connection.execute(
                f"SELECT length(CAST({call} AS VARCHAR)) > {TIMES} * ({sizes or LEAST})"
            ).fetchone()
        except duckdb.Error:
            continue
        if row is not None and row[0]:
            bad.append(arguments)
    return bad


UNMARKED = [
    name
    for name in ALLOWED
    if FUNCTIONS[name].kind is Kind.SCALAR and FUNCTIONS[name].growth is Growth.NONE
]


@pytest.mark.slow
def test_what_is_not_marked_makes_little(connection: duckdb.DuckDBPyConnection) -> None:
    forms = signatures(connection)
    tried = 0
    for name in UNMARKED:
        for types in forms.get(name, []):
            if all(kind in OF_TYPE for kind in types):
                tried += 1
                assert not explosions(connection, name, types), (name, types)
    assert tried > 300


def test_the_measure_finds_what_is_marked(connection: duckdb.DuckDBPyConnection) -> None:
    forms = signatures(connection)
    for name in ("repeat", "lpad", "range", "replace", "bitstring"):
        tried = [t for t in forms[name] if all(kind in OF_TYPE for kind in t)]
        assert any(explosions(connection, name, types) for types in tried), name


def test_whatever_takes_a_lambda_is_marked(connection: duckdb.DuckDBPyConnection) -> None:
    for name, forms in signatures(connection).items():
        if name in ALLOWED and any("LAMBDA" in types for types in forms):
            assert FUNCTIONS[name].growth is Growth.FREE, name
