"""Constants that cannot become what they are used as: `delay > 'late'`, `TIMESTAMP 'soon'`.

DuckDB casts a string to the type of the column it is compared with. Without these checks the cast
would fail only when the first element arrives.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.cql.tree.places import span_of
from millpond.errors import MillpondError
from millpond.planner.check.typecheck import TypeCheck
from millpond.planner.resolve.scope import TYPE, SelectScope

#: Operators that compare two values; both values are cast to one type.
COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)


#: How constants of a type are written.
_HOW_TO_WRITE = {
    "TIMESTAMP": "Write it as 'YYYY-MM-DD HH:MM:SS', or say how to read it: "
    "strptime('31.12.2024', '%d.%m.%Y').",
    "DATE": "Write it as 'YYYY-MM-DD', or say how to read it: "
    "CAST(strptime('31.12.2024', '%d.%m.%Y') AS DATE).",
}


def check_constants(scopes: list[SelectScope], check: TypeCheck, text: str) -> None:
    """Refuse strings that cannot be cast to the type they are used as.

    Raises:
        MillpondError: CQL-205, at the constant.
    """
    found = [item for scope in scopes for item in _casts(scope)]
    flags = check.test_casts([(to_duckdb(literal), type_) for literal, type_ in found])
    for (literal, type_), is_castable in zip(found, flags, strict=True):
        if not is_castable:
            raise MillpondError(
                "CQL-205",
                f"'{literal.name}' is no {type_}",
                detail="A string is cast to the type of what it is compared with.",
                hint=_HOW_TO_WRITE.get(type_),
                text=text,
                span=span_of(literal),
            )
    instants = [literal for literal, type_ in found if type_ == "TIMESTAMP"]
    are_instants = check.test_zones([to_duckdb(literal) for literal in instants])
    for literal, is_meant in zip(instants, are_instants, strict=True):
        if not is_meant:
            raise MillpondError(
                "CQL-205",
                f"'{literal.name}' names a time zone, and a TIMESTAMP has none",
                detail="DuckDB would pass over the zone, and mean another instant.",
                hint="Write the instant in UTC.",
                text=text,
                span=span_of(literal),
            )


def _casts(scope: SelectScope) -> Iterator[tuple[exp.Expr, str]]:
    for node in scope.select.walk(
        prune=lambda n: isinstance(n, exp.Query) and n is not scope.select
    ):
        if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            if _is_string(node.this):
                yield node.this, to_duckdb(node.to)
        elif isinstance(node, COMPARISONS) or _is_choice_of_two(node):
            first, second = _operands(node)
            for column, literal in ((first, second), (second, first)):
                if _is_string(literal) and (type_ := _type(column)):
                    yield literal, type_
        elif isinstance(node, exp.In | exp.Between):
            operands = node.expressions or [node.args.get("low"), node.args.get("high")]
            if type_ := _type(node.this):
                yield from ((o, type_) for o in operands if _is_string(o))


def _is_choice_of_two(node: exp.Expr) -> bool:
    """Whether a CASE takes always the same of two values: so `approx_count` gives them one type."""
    ifs: list[exp.If] = node.args.get("ifs", []) if isinstance(node, exp.Case) else []
    return len(ifs) == 1 and isinstance(ifs[0].this, exp.Boolean)


def _operands(node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    """Return the two values that a node brings to one type."""
    if isinstance(node, exp.Case):
        return node.args["ifs"][0].args["true"], node.args.get("default") or exp.Null()
    return node.this, node.expression


def _type(node: exp.Expr) -> str | None:
    """Return the type of a stream's or relation's column; None for VARCHAR and other nodes."""
    type_ = node.meta.get(TYPE) if isinstance(node, exp.Column) else None
    return None if type_ == "VARCHAR" else type_


def _is_string(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)
