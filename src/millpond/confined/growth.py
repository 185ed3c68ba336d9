"""Whether the values some SQL makes may be much larger than what it reads.

DuckDB's memory limit does not count what a function makes of one vector of rows, and nothing
interrupts it there: `len(range(100000000))` takes gigabytes and most of a minute under a limit of
256 MB and 3 seconds. So SQL that may do such a thing is known before it is bound (binding computes
constants) and is evaluated elsewhere (`processes.py`).

What counts is a product: each call multiplies the size of its arguments by some factor, and values
go from call to call in ways that nobody follows here (aliases, subqueries, lambdas). The product of
all factors of a query bounds them all. Logarithms to the base 2 of the factors are added up.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import duckdb

from millpond.model.functions import FUNCTIONS, Growth, find_function

#: The greatest growth that is evaluated in place: values 64 times as large as what is read.
_IN_PLACE = 6.0
#: What an aggregate counts that gathers the values of many rows.
_GATHERED = 3.0
#: A text longer than this is not remembered.
_REMEMBERED = 1 << 16

#: Nothing grows in SQL that has none of these words.
_SUSPECT = re.compile(
    r"\|\||\[|\b("
    + "|".join(
        sorted(
            re.escape(name)
            for name, function in FUNCTIONS.items()
            if function.growth is not Growth.NONE and name.isidentifier()
        )
    )
    + r")\b",
    re.IGNORECASE,
)
#: Where the constants stand that say how much larger a value becomes, in calls which are common.
_LENGTHS = {"lpad": 1, "rpad": 1, "repeat": 1}
_TEXTS = {"replace": 2, "regexp_replace": 2, "array_to_string": 1, "concat_ws": 0}


def can_expand(sql: str) -> bool:
    """Whether the SQL may make values that are much larger than what it reads.

    Args:
        sql: A SELECT, or an expression, as DuckDB will be given it.

    >>> can_expand("SELECT a || b FROM t"), can_expand("len(range(a))")
    (False, True)
    """
    if _SUSPECT.search(sql) is None:
        return False
    return (_remember if len(sql) <= _REMEMBERED else _decide)(sql)


def _decide(sql: str) -> bool:
    tree = _parse(sql) or _parse(f"SELECT ({sql}\n)")
    # What cannot be parsed may be anything; its error is the same from everywhere.
    return tree is None or _measure_growth(tree) > _IN_PLACE


_remember = lru_cache(maxsize=8192)(_decide)


def _measure_growth(tree: dict[str, Any]) -> float:
    growth = 0.0
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(v for v in node if isinstance(v, dict | list))
            continue
        if _is_join_of_texts(node):
            parts = list(_list_joined(node))
            growth += math.log2(len(parts))
            stack.extend(parts)
            continue
        growth += _factor_of(node)
        if growth > _IN_PLACE:
            return math.inf
        stack.extend(v for v in node.values() if isinstance(v, dict | list))
    return growth


def _factor_of(node: dict[str, Any]) -> float:
    """The logarithm of how much larger than its arguments a node's value may be."""
    if node.get("class") not in ("FUNCTION", "WINDOW"):
        return 0.0
    children = _arguments(node)
    name = str(node.get("function_name", "")).lower()
    function = find_function(name)
    match function.growth if function is not None else Growth.NONE:
        case Growth.NONE:
            return 0.0
        case Growth.SUM:
            return math.log2(max(len(children), 1)) + _constant_factor(name, children, 0.0)
        case Growth.ROWS:
            return _GATHERED
        case Growth.FREE:
            return _constant_factor(name, children, math.inf)


def _constant_factor(name: str, children: list[dict[str, Any]], otherwise: float) -> float:
    """The growth of a call that a constant among its arguments says."""
    if (place := _LENGTHS.get(name)) is not None and place < len(children):
        value = _constant(children[place])
        # A pad of several letters is no longer than the length asked for.
        return math.log2(1 + max(value, 0)) if isinstance(value, int) else math.inf
    if (place := _TEXTS.get(name)) is not None and place < len(children):
        value = _constant(children[place])
        return math.log2(1 + len(value)) if isinstance(value, str) else math.inf
    return otherwise


def _arguments(node: dict[str, Any]) -> list[dict[str, Any]]:
    if (children := node.get("children")) is not None:
        return list(children)
    return [argument["expression"] for argument in node.get("arguments") or []]


def _constant(node: dict[str, Any]) -> int | str | None:
    """The value of a whole number or a text that stands in the SQL as such."""
    literal = node.get("literal") or {}
    match node.get("class"), literal.get("kind"):
        case "CONSTANT", "INTEGER":
            return int(literal["text"])
        case "CONSTANT", "STRING":
            return str(literal["text"])
    return None


def _is_join_of_texts(node: dict[str, Any]) -> bool:
    return node.get("class") == "FUNCTION" and node.get("function_name") == "||"


def _list_joined(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a chain of `||` joins: `a || b || c` has three times the size, not four."""
    stack = [node]
    while stack:
        part = stack.pop()
        if _is_join_of_texts(part):
            stack.extend(_arguments(part))
        else:
            yield part


_local = threading.local()


def _parse(sql: str) -> dict[str, Any] | None:
    """DuckDB's syntax tree; nothing is bound or computed for it."""
    connection = getattr(_local, "connection", None)
    if connection is None:
        connection = _local.connection = duckdb.connect(
            ":memory:", config={"enable_external_access": "false", "threads": "1"}
        )
    try:
        row = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    except duckdb.Error:
        return None
    assert row is not None
    tree: dict[str, Any] = json.loads(row[0])
    return None if tree.get("error") else tree
