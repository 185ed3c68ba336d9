"""What the constants of INSERT may call: what a query may, and the clock and chance.

A constant is computed once, and is what it was computed as for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.model.functions import Refusal
from millpond.planner.check.checks import forbidden_call_error
from millpond.planner.check.typecheck import open_session
from millpond.planner.resolve.duckdb_tree import find_calls, syntax_tree

#: Nodes that call no function.
_PLAIN = (exp.Literal, exp.Null, exp.Boolean, exp.Neg)
#: What an answer may not depend on, and a value that is kept may.
_ONCE = (Refusal.CLOCK, Refusal.CHANCE)


def check_constants(values: Sequence[exp.Expression], text: str) -> None:
    """Refuse calls that a query may not make.

    Raises:
        MillpondError: CQL-212 or CQL-213, at the call.
    """
    asked = [value for value in values if not _is_plain(value)]
    if not asked:
        return
    with open_session() as session:
        for value in asked:
            try:
                tree = syntax_tree(session, f"SELECT {to_duckdb(value)}")
            except ValueError:
                continue  # evaluating the constant reports the error
            for call in find_calls(tree):
                if not call.is_allowed and call.refusal not in _ONCE:
                    raise forbidden_call_error(call, value, text)


def _is_plain(value: exp.Expression) -> bool:
    while isinstance(value, exp.Neg):
        value = value.this
    return isinstance(value, _PLAIN)
