"""What the constants of INSERT may call: what a query may call that reads nothing."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.cql.tree.places import span_of
from millpond.errors import MillpondError
from millpond.planner.check.checks import forbidden_call_error
from millpond.planner.check.typecheck import open_session
from millpond.planner.resolve.duckdb_tree import find_calls, find_tables, syntax_tree

#: What is sure to call nothing.
_PLAIN = (exp.Literal, exp.Null, exp.Boolean, exp.Neg)


def check_constants(values: Sequence[exp.Expression], text: str) -> None:
    """Refuses calls that a query may not make, and tables.

    Raises:
        MillpondError: CQL-201, CQL-212 or CQL-213, at the value.
    """
    asked = [value for value in values if not _is_plain(value)]
    if not asked:
        return
    with open_session() as session:
        for value in asked:
            try:
                tree = syntax_tree(session, f"SELECT {to_duckdb(value)}")
            except ValueError:
                continue  # its evaluation says what is wrong with it
            for call in find_calls(tree):
                if not call.is_allowed:
                    raise forbidden_call_error(call, value, text)
            for table in find_tables(tree):
                raise MillpondError(
                    "CQL-201", f'no stream or relation "{table}" can be read here'
                ).at(text, span_of(value))


def _is_plain(value: exp.Expression) -> bool:
    while isinstance(value, exp.Neg):
        value = value.this
    return isinstance(value, _PLAIN)
