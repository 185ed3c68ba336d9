"""The catalogue of SQL functions against DuckDB's own: neither has what the other does not."""

from __future__ import annotations

import re
from collections import defaultdict

import duckdb
import pytest

from millpond.model import functions
from millpond.model.functions import ALLOWED, FUNCTIONS, Kind, Refusal, find_function
from millpond.planner.dataflow.aggregate_calls import find_recognizers
from millpond.planner.resolve.duckdb_tree import find_calls, syntax_tree

#: What DuckDB's parser makes of syntax, so that no function has the name.
SYNTAX = {
    *("grouping", "grouping_id", "row", "unnest"),
    *("percentile_cont", "percentile_disc"),
    *("current_time", "current_timestamp", "localtime", "localtimestamp"),
    "approx_count",  # Millpond's own
}


@pytest.fixture(scope="module")
def theirs() -> dict[str, set[str]]:
    """DuckDB's functions: name -> types."""
    found: dict[str, set[str]] = defaultdict(set)
    with duckdb.connect() as connection:
        for name, kind in connection.execute(
            "SELECT DISTINCT lower(function_name), function_type FROM duckdb_functions()"
        ).fetchall():
            found[name].add(kind)
    return dict(found)


def test_every_function_of_duckdb_was_looked_at(theirs: dict[str, set[str]]) -> None:
    assert len(theirs) > 1000
    assert [name for name in sorted(theirs) if find_function(name) is None] == []


def test_every_function_of_the_catalogue_exists(theirs: dict[str, set[str]]) -> None:
    assert set(FUNCTIONS) - SYNTAX - set(theirs) == set()
    assert set(FUNCTIONS) >= SYNTAX


def test_no_function_is_there_twice() -> None:
    names = [function.name for function in functions._list_all()]
    assert len(names) == len(set(names))


def test_aggregates_and_window_functions_are_duckdbs(theirs: dict[str, set[str]]) -> None:
    for name, kinds in theirs.items():
        function = find_function(name)
        assert function is not None
        if kinds & {"aggregate", "window"}:
            kind = Kind.AGGREGATE if "aggregate" in kinds else Kind.WINDOW
            assert function.kind is kind, name
        elif "scalar" in kinds:
            assert function.kind is Kind.SCALAR, name
        elif "macro" not in kinds and name != "unnest":
            assert function.refusal is not None, name


def test_a_macro_is_of_the_kind_of_what_it_calls_and_calls_what_is_allowed() -> None:
    with duckdb.connect() as connection:
        macros = connection.execute(
            "SELECT lower(function_name), macro_definition FROM duckdb_functions()"
            " WHERE function_type = 'macro'"
        ).fetchall()
        checked = 0
        for name, definition in macros:
            function = find_function(name)
            assert function is not None
            if function.refusal is not None:
                continue
            calls = [*find_calls(syntax_tree(connection, f"SELECT {definition}"))]
            # It is called for keys that are NULL only, to say so.
            refused = {call.name for call in calls if not call.is_allowed} - {"error"}
            assert refused == set(), name
            kinds = {found.kind for c in calls if (found := find_function(c.name)) is not None}
            kinds &= {Kind.AGGREGATE, Kind.SET}
            assert kinds == {function.kind} - {Kind.SCALAR}, name
            checked += 1
    assert checked > 50


def test_what_duckdb_calls_volatile_is_never_allowed() -> None:
    with duckdb.connect() as connection:
        rows = connection.execute(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() "
            "WHERE function_type IN ('scalar', 'aggregate', 'window') AND stability <> 'CONSISTENT'"
        ).fetchall()
    assert len(rows) > 10
    assert not {name for (name,) in rows} & set(ALLOWED)


def test_synonyms_are_duckdbs() -> None:
    with duckdb.connect() as connection:
        rows = connection.execute(
            "SELECT DISTINCT lower(function_name), lower(alias_of) FROM duckdb_functions()"
            " WHERE function_type = 'aggregate' AND alias_of IS NOT NULL"
        ).fetchall()
    theirs = dict(rows)
    ours = {n: f.synonym_of for n, f in FUNCTIONS.items() if f.synonym_of is not None}
    assert ours.items() >= theirs.items()
    macros = {"geometric_mean": "geomean", "wavg": "weighted_avg"}
    ordered = {"percentile_cont": "quantile_cont", "percentile_disc": "quantile_disc"}
    assert ours == theirs | macros | ordered
    for name, of in macros.items():
        with duckdb.connect() as connection:
            row = connection.execute(
                "SELECT macro_definition FROM duckdb_functions() WHERE function_name = ?", [name]
            ).fetchone()
        assert row is not None
        assert re.match(rf"{of}\(", row[0])


#: Arguments an aggregate can be called on; whichever DuckDB takes first.
ARGUMENTS = ("", "x", "b", "x, x", "s", "s, s", "x, 0.5", "x, 3", "x, b", "x, x, 3", "d", "x, 0, 9")


def test_aggregates_of_nothing_are_duckdbs() -> None:
    checked = 0
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t (x INTEGER, b BOOLEAN, s VARCHAR, d DECIMAL(9, 2), ts TIMESTAMP)"
        )
        for name, function in FUNCTIONS.items():
            if function.kind is not Kind.AGGREGATE or name.startswith("percentile"):
                continue
            for arguments in ARGUMENTS:
                try:
                    row = connection.execute(
                        f"SELECT a IS NOT DISTINCT FROM {function.of_nothing}, a"
                        f" FROM (SELECT {name}({arguments}) AS a FROM t)"
                    ).fetchone()
                except duckdb.Error:
                    continue
                assert row is not None
                assert row[0], (name, row)
                checked += 1
                break
    assert checked > 75


def test_what_is_followed_is_allowed_and_no_synonym() -> None:
    followed = find_recognizers()
    assert len(followed) > 10
    for name in followed:
        function = FUNCTIONS[name]
        assert (function.kind, function.refusal) == (Kind.AGGREGATE, None), name
        assert function.synonym_of is None, name


def test_the_rules() -> None:
    assert find_function("COLLATE_DE") == functions.Function("collate_de", Kind.SCALAR)
    inside = find_function("__internal_something_new")
    assert inside is not None
    assert inside.refusal is Refusal.INSIDE
    assert find_function("nobody_looked_at_it") is None
    age = find_function("age")
    assert age is not None
    assert not age.is_allowed(1)
    assert age.is_allowed(2)
