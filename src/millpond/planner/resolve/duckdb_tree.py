"""DuckDB's own syntax tree of the SQL that will run: the calls it makes, the tables it reads.

The functions a query calls are checked in this tree and not in sqlglot's. So the checked function
is always the function DuckDB would call, whatever SQL a node of sqlglot's tree is printed as.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from millpond.model.functions import FUNCTIONS, Refusal, find_function


@dataclass(frozen=True)
class FunctionCall:
    """A call in DuckDB's syntax tree: its name, and whether it stands in a FROM clause."""

    name: str
    arguments: int
    in_from: bool = False

    @property
    def is_allowed(self) -> bool:
        """Whether the function's result depends on nothing but its arguments."""
        function = find_function(self.name)
        return not self.in_from and function is not None and function.is_allowed(self.arguments)

    @property
    def refusal(self) -> Refusal | None:
        """Say why a query may not make the call; None if no function has the name."""
        function = find_function(self.name)
        if function is None:
            return None
        return Refusal.OUTSIDE if self.in_from else function.refusal


def find_calls(tree: Any) -> Iterator[FunctionCall]:
    """Find every call in DuckDB's syntax tree, as `json_serialize_sql` gives it."""
    for node in _nodes(tree):
        match node.get("class"), node.get("type"):
            case (("FUNCTION" | "WINDOW"), _):
                name = str(node.get("function_name", "")).lower()
                arguments = node.get("arguments", node.get("children")) or []
                yield FunctionCall(name, len(arguments))
            case "COLUMN_REF", _:
                names = node.get("column_names") or []
                if len(names) == 1 and is_word_called(names[0]):
                    yield FunctionCall(names[0].lower(), 0)
            case _, "TABLE_FUNCTION":
                function = node.get("function") or {}
                yield FunctionCall(str(function.get("function_name", "")).lower(), 0, in_from=True)


def is_word_called(name: str) -> bool:
    """Whether a plain name, if no column has it, is a call without parentheses."""
    function = FUNCTIONS.get(name.lower())
    return function is not None and function.is_word


def find_tables(tree: Any) -> Iterator[str]:
    """Find the name of every table in DuckDB's syntax tree."""
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE":
            path = [node.get("catalog_name"), node.get("schema_name"), node.get("table_name")]
            yield ".".join(p for p in path if p)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """List every node of DuckDB's syntax tree."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, dict):
            yield node
            stack.extend(v for v in node.values() if isinstance(v, dict | list))


def syntax_tree(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """Make DuckDB's syntax tree of one SELECT.

    Raises:
        ValueError: `sql` is not one SELECT that DuckDB can parse; the text is DuckDB's reason.
    """
    row = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    assert row is not None
    tree: dict[str, Any] = json.loads(row[0])
    if tree.get("error"):
        raise ValueError(str(tree.get("error_message", "not a query")))
    if len(tree.get("statements", [])) != 1:
        raise ValueError("not one query")
    return tree
