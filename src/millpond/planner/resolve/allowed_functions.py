"""Which functions a query may call.

An answer is a function of the windows and relations at an instant and nothing else (SEMANTICS,
section 3). So a function is allowed only where DuckDB itself calls it consistent, or where this
file names it; everything DuckDB may add later is refused until somebody looks at it. The check
reads DuckDB's own syntax tree of the SQL that will run, not ours: whatever a node of ours is
printed as, the function that would be called is the one that is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Words DuckDB reads as calls although they have no parentheses.
CALLS_WITHOUT_PARENTHESES = _words(
    """
    current_catalog current_date current_role current_schema current_time current_timestamp
    current_user localtime localtimestamp session_user user
    """
)

#: DuckDB calls these consistent, but they depend on when, where or in what order they are called.
_DEPENDENT = _words(
    """
    age ago approx_quantile approx_top_k can_cast_implicitly create_sort_key
    current_localtime current_localtimestamp error get_type hive_partition_component
    index_key invoke make_type parse_duckdb_log_message reservoir_quantile stats version
    write_log json_serialize_plan json_serialize_sql json_deserialize_sql add_parquet_key
    get_block_size in_search_path sleep_ms finalize combine
    """
)

#: Their arguments are of types no query has values of: states of aggregates, VARIANT.
_WITHOUT_ARGUMENTS = _words("combine_aggr variant_group_object")

#: Prefixes of families that speak of the session, the server or the catalog.
_DEPENDENT_PREFIXES = ("__internal", "current_", "pg_", "has_", "inet_", "duckdb_", "pragma_")

#: Macros whose definition was read and depends on its arguments only.
_MACROS = _words(
    """
    array_append array_pop_back array_pop_front array_prepend array_push_back
    array_push_front array_reverse array_to_string array_to_string_comma_default date_add
    days_in_month fdiv fmod geomean geometric_mean if json json_group_array
    json_group_object json_group_structure list_any_value list_append list_avg list_bit_and
    list_bit_or list_bit_xor list_bool_and list_bool_or list_count list_entropy list_first
    list_histogram list_kurtosis list_kurtosis_pop list_last list_mad list_max list_median
    list_min list_mode list_prepend list_product list_reverse list_sem list_skewness
    list_stddev_pop list_stddev_samp list_string_agg list_sum list_var_pop list_var_samp
    list_approx_count_distinct map_contains_entry map_contains_value md5_number_lower
    md5_number_upper nullif regexp_split_to_table split_part variant_group_array wavg
    weighted_avg pg_typeof pg_size_pretty generate_subscripts
    """
)

#: What the parser itself turns into calls.
_SYNTAX = frozenset({"unnest", "grouping", "grouping_id", "row", "count_star", "like_escape"})

#: The one-argument form of these measures from today.
_NEEDS_TWO_ARGUMENTS = frozenset({"age"})


@dataclass(frozen=True)
class FunctionNames:
    """DuckDB's functions by what binding wants to know of them; all lower case.

    Attributes:
        allowed: Those a query may call.
        known: All of them.
        aggregates: Those that give one value for many rows, macros over aggregates included.
        sets: Those that give many rows for one, macros over `unnest` included.
        tables: Those that stand in a FROM clause.
    """

    allowed: frozenset[str]
    known: frozenset[str]
    aggregates: frozenset[str]
    sets: frozenset[str]
    tables: frozenset[str]


@cache
def read_function_names() -> FunctionNames:
    """Reads the functions of the DuckDB in use, once."""
    with duckdb.connect(":memory:") as connection:
        rows = connection.execute(
            "SELECT lower(function_name), function_type, bool_and(stability = 'CONSISTENT') "
            "FROM duckdb_functions() GROUP BY ALL"
        ).fetchall()
        definitions = connection.execute(
            "SELECT lower(function_name), macro_definition FROM duckdb_functions() "
            "WHERE function_type = 'macro'"
        ).fetchall()
        called_by_macro = {
            name: {call.name for call in find_calls(syntax_tree(connection, f"SELECT {body}"))}
            for name, body in definitions
            if name in _MACROS
        }
    steady = {n for n, kind, ok in rows if kind in ("scalar", "aggregate", "window") and ok}
    unsteady = {n for n, kind, ok in rows if kind in ("scalar", "aggregate", "window") and not ok}
    allowed = {
        n
        for n in steady - unsteady - _DEPENDENT - _WITHOUT_ARGUMENTS
        if not n.startswith(_DEPENDENT_PREFIXES) or n == "__between"
    }
    macros = {n for n, kind, _ in rows if kind == "macro"}
    every = {n for n, _, _ in rows}
    return FunctionNames(
        allowed=frozenset(allowed | (macros & _MACROS) | _SYNTAX),
        known=frozenset(every | _SYNTAX | CALLS_WITHOUT_PARENTHESES),
        aggregates=_with_macros({n for n, kind, _ in rows if kind == "aggregate"}, called_by_macro),
        sets=_with_macros({"unnest"}, called_by_macro),
        tables=frozenset(n for n, kind, _ in rows if kind in ("table", "table_macro")),
    )


def _with_macros(names: set[str], called_by_macro: Mapping[str, set[str]]) -> frozenset[str]:
    """Some functions, and the macros that call one of them, directly or in a macro they call."""
    while found := {m for m, calls in called_by_macro.items() if calls & names} - names:
        names = names | found
    return frozenset(names)


@dataclass(frozen=True)
class FunctionCall:
    """A call in DuckDB's syntax tree: its name, and whether it stands in a FROM clause."""

    name: str
    arguments: int
    in_from: bool = False

    @property
    def is_allowed(self) -> bool:
        """Whether its answer depends on nothing but its arguments."""
        if self.in_from:
            return False
        if self.name in _NEEDS_TWO_ARGUMENTS:
            return self.arguments >= 2
        return self.name in read_function_names().allowed

    @property
    def is_known(self) -> bool:
        return self.name in read_function_names().known


def find_calls(tree: Any) -> Iterator[FunctionCall]:
    """Every call in DuckDB's syntax tree, as `json_serialize_sql` gives it."""
    for node in _nodes(tree):
        match node.get("class"), node.get("type"):
            case (("FUNCTION" | "WINDOW"), _):
                name = str(node.get("function_name", "")).lower()
                arguments = node.get("arguments", node.get("children")) or []
                yield FunctionCall(name, len(arguments))
            case "COLUMN_REF", _:
                names = node.get("column_names") or []
                if len(names) == 1 and names[0].lower() in CALLS_WITHOUT_PARENTHESES:
                    yield FunctionCall(names[0].lower(), 0)
            case _, "TABLE_FUNCTION":
                function = node.get("function") or {}
                yield FunctionCall(str(function.get("function_name", "")).lower(), 0, in_from=True)


def find_tables(tree: Any) -> Iterator[str]:
    """The name of every table in DuckDB's syntax tree."""
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE":
            path = [node.get("catalog_name"), node.get("schema_name"), node.get("table_name")]
            yield ".".join(p for p in path if p)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every node of DuckDB's syntax tree."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, dict):
            yield node
            stack.extend(v for v in node.values() if isinstance(v, dict | list))


def syntax_tree(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """DuckDB's syntax tree of one SELECT.

    Raises:
        ValueError: it is not one SELECT that DuckDB can parse; the text is DuckDB's reason.
    """
    row = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    assert row is not None
    tree: dict[str, Any] = json.loads(row[0])
    if tree.get("error"):
        raise ValueError(str(tree.get("error_message", "not a query")))
    if len(tree.get("statements", [])) != 1:
        raise ValueError("not one query")
    return tree
