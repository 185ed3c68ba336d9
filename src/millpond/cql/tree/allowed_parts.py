"""The kinds of nodes a query's tree may be made of, and the arguments each may have.

The lists say what CQL has, not what it lacks: syntax that a later sqlglot reads is no part of CQL
until it is listed here.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.cql.tree.nodes import (
    BY_ATTRIBUTES,
    PERIOD,
    PREFERENCE,
    STREAM_SAMPLE,
    WINDOW,
    Period,
    PeriodBound,
    Preference,
    RelationToStream,
    StreamWindow,
    SummaryEstimate,
)

_BINARY = ("this", "expression")
#: Clauses that may follow a whole query.
ORDERED = ("order", "limit", "offset")


def _args(*names: str) -> frozenset[str]:
    return frozenset(names)


#: The kinds of nodes a query may have, and the arguments each may have.
PARTS: dict[type[exp.Expr], frozenset[str]] = {
    # queries
    exp.Select: _args(
        "with_", "distinct", "expressions", "from_", "joins", "where", "group", "having",
        "qualify", "windows", PERIOD, PREFERENCE, *ORDERED,
    ),
    exp.Subquery: _args("this", "alias", WINDOW, STREAM_SAMPLE, *ORDERED),
    **dict.fromkeys(
        (exp.Union, exp.Intersect, exp.Except),
        _args("with_", "this", "expression", "distinct", BY_ATTRIBUTES, *ORDERED),
    ),
    exp.With: _args("expressions"),
    exp.CTE: _args("this", "alias"),
    exp.From: _args("this"),
    exp.Join: _args("this", "on", "using", "side", "kind", "method"),
    exp.Table: _args("this", "alias", WINDOW, STREAM_SAMPLE),
    exp.TableAlias: _args("this", "columns"),
    exp.Where: _args("this"),
    exp.Group: _args("expressions", "all", "rollup", "cube", "grouping_sets"),
    exp.Rollup: _args("expressions"),
    exp.Cube: _args("expressions"),
    exp.GroupingSets: _args("expressions"),
    exp.Having: _args("this"),
    exp.Qualify: _args("this"),
    exp.Order: _args("this", "expressions"),
    exp.Ordered: _args("this", "desc", "nulls_first"),
    exp.Limit: _args("expression"),
    exp.Offset: _args("expression"),
    exp.Distinct: _args("expressions", "on"),
    exp.Alias: _args("this", "alias"),
    RelationToStream: _args("this", "kind"),
    StreamWindow: _args("kind", "size", "slide", "rows", "by", "where"),
    Period: _args("begin", "end"),
    PeriodBound: _args("instant", "offset"),
    Preference: _args("order", "this", "fade", "budget"),
    SummaryEstimate: _args("this", "kind", "expressions"),
    # names and constants
    exp.Column: _args("this", "table", "db", "catalog"),
    exp.Dot: _args("this", "expression"),
    exp.Identifier: _args("this", "quoted"),
    exp.Star: _args(),
    exp.Literal: _args("this", "is_string"),
    exp.Boolean: _args("this"),
    exp.Null: _args(),
    exp.Interval: _args("this", "unit", "fraction_in_string"),
    exp.Var: _args("this"),
    exp.Array: _args("expressions", "bracket_notation"),
    exp.DataType: _args("this", "expressions", "nested"),
    exp.DataTypeParam: _args("this"),
    exp.ColumnDef: _args("this", "kind"),
    # operators
    exp.Paren: _args("this"),
    exp.Tuple: _args("expressions"),
    **dict.fromkeys(
        (
            exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ,
            exp.NullSafeNEQ, exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod, exp.Pow,
            exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseLeftShift, exp.BitwiseRightShift,
            exp.Escape,
        ),
        _args(*_BINARY),
    ),
    exp.Is: _args(*_BINARY, "negate"),
    exp.Div: _args(*_BINARY, "typed", "safe"),
    exp.DPipe: _args(*_BINARY, "safe"),
    exp.Like: _args(*_BINARY, "negate"),
    exp.ILike: _args(*_BINARY, "negate"),
    exp.Not: _args("this"),
    exp.Neg: _args("this"),
    exp.BitwiseNot: _args("this"),
    exp.Between: _args("this", "low", "high"),
    exp.In: _args("this", "expressions", "query"),
    exp.Exists: _args("this"),
    exp.Any: _args("this"),
    exp.All: _args("this"),
    exp.Case: _args("this", "ifs", "default"),
    exp.If: _args("this", "true"),
    exp.Cast: _args("this", "to", "safe"),
    exp.TryCast: _args("this", "to", "safe", "requires_string"),
    exp.AtTimeZone: _args("this", "zone"),
    # functions
    exp.Anonymous: _args("this", "expressions"),
    exp.AnonymousAggFunc: _args("this", "expressions"),
    exp.Count: _args("this", "expressions", "big_int"),
    exp.Sum: _args("this"),
    exp.Avg: _args("this"),
    exp.Min: _args("this", "expressions"),
    exp.Max: _args("this", "expressions"),
    exp.Coalesce: _args("this", "expressions"),
    exp.Extract: _args("this", "expression"),
    exp.CurrentDate: _args(),
    exp.CurrentTime: _args(),
    exp.CurrentTimestamp: _args(),
    exp.Localtime: _args(),
    exp.Localtimestamp: _args(),
    exp.Filter: _args("this", "expression"),
    exp.WithinGroup: _args("this", "expression"),
    exp.IgnoreNulls: _args("this"),
    exp.RespectNulls: _args("this"),
    exp.Window: _args("this", "partition_by", "order", "spec", "alias", "over"),
    exp.WindowSpec: _args("kind", "start", "start_side", "end", "end_side", "exclude"),
}  # fmt: skip

#: Types a value may be cast to.
TYPES = {
    exp.DType[name]
    for name in (
        "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "INT128", "UTINYINT", "USMALLINT",
        "UINT", "UBIGINT", "UINT128", "FLOAT", "DOUBLE", "DECIMAL", "TEXT", "DATE", "TIME",
        "TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMPTZ", "TIMESTAMP_S", "TIMESTAMP_MS",
        "TIMESTAMP_NS", "INTERVAL", "UUID", "VARBINARY", "JSON",
    )
}  # fmt: skip

#: Types of values with parts, which are types themselves.
NESTED_TYPES = {exp.DType.ARRAY, exp.DType.STRUCT}

#: Kinds that form long chains through their left operands: a loop prints them, not recursion.
CHAINS = (exp.Binary, exp.SetOperation)

#: The comparisons that ANY and ALL may follow.
COMPARISONS = {exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE}

#: Kinds that may print brackets where the text had none.
BRACKETED = {exp.Paren, exp.Subquery, exp.Cast, exp.Anonymous}

#: The (method, side, kind) of every join.
JOINS = {
    ("", "", ""), ("", "", "INNER"), ("", "", "CROSS"), ("", "", "SEMI"), ("", "", "ANTI"),
    *(("", side, kind) for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")),
    *(("NATURAL", side, kind) for side in ("", "LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")),
    ("NATURAL", "", "INNER"),
    ("ASOF", "", ""), ("ASOF", "", "INNER"), ("ASOF", "LEFT", ""), ("ASOF", "LEFT", "OUTER"),
}  # fmt: skip
