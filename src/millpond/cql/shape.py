"""What a query's tree may be made of.

sqlglot reads far more than CQL has. After reading, a tree is walked once: a node of a kind that
is not listed here, or an argument that its kind may not have, is no part of the language and is
refused at its place. What passes prints back to a text that reads the same.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millpond.cql.nodes import (
    BY_ATTRIBUTES,
    PERIOD,
    STREAM_SAMPLE,
    WINDOW,
    Period,
    PeriodBound,
    RelationToStream,
    StreamWindow,
)
from millpond.cql.places import span_of
from millpond.cql.tokens import is_name
from millpond.errors import MillpondError, Span

#: How deep a tree may be: printing and binding recurse into it.
DEEPEST = 100

_BINARY = ("this", "expression")
_ORDERED = ("order", "limit", "offset")


def _args(*names: str) -> frozenset[str]:
    return frozenset(names)


#: The kinds of nodes a query may have, and the arguments each may have.
PARTS: dict[type[exp.Expr], frozenset[str]] = {
    # queries
    exp.Select: _args(
        "with_", "distinct", "expressions", "from_", "joins", "where", "group", "having",
        "qualify", "windows", PERIOD, *_ORDERED,
    ),
    exp.Subquery: _args("this", "alias", STREAM_SAMPLE, *_ORDERED),
    **dict.fromkeys(
        (exp.Union, exp.Intersect, exp.Except),
        _args("with_", "this", "expression", "distinct", BY_ATTRIBUTES, *_ORDERED),
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
    exp.Distinct: _args("expressions"),
    exp.Alias: _args("this", "alias"),
    RelationToStream: _args("this", "kind"),
    StreamWindow: _args("kind", "size", "slide", "rows", "by", "where"),
    Period: _args("begin", "end"),
    PeriodBound: _args("instant", "offset"),
    # names and constants
    exp.Column: _args("this", "table"),
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

_TYPES = {
    exp.DType[name]
    for name in [
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "INT128",
        "UTINYINT",
        "USMALLINT",
        "UINT",
        "UBIGINT",
        "UINT128",
        "FLOAT",
        "DOUBLE",
        "DECIMAL",
        "TEXT",
        "DATE",
        "TIME",
        "TIMESTAMP",
        "TIMESTAMPNTZ",
        "TIMESTAMPTZ",
        "TIMESTAMP_S",
        "TIMESTAMP_MS",
        "TIMESTAMP_NS",
        "INTERVAL",
        "UUID",
        "VARBINARY",
    ]
}

#: What cannot nest deeper than its left operand's chain is long: printed in a loop.
_CHAINS = (exp.Binary, exp.SetOperation)

_COMPARISONS = {exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE}

_JOINS = {
    ("", "", ""), ("", "", "INNER"), ("", "", "CROSS"), ("", "", "SEMI"), ("", "", "ANTI"),
    *(("", side, kind) for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")),
    *(("NATURAL", side, kind) for side in ("", "LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")),
    ("NATURAL", "", "INNER"),
}  # fmt: skip


def check_query(query: exp.Expr, text: str) -> None:
    """See that a query's tree is CQL.

    Raises:
        MillpondError: CQL-103, 210, 217 or 218, at the part of `text` that is not.
    """
    _Check(text).walk(query)


def check_scalar(value: exp.Expr, text: str, *, subqueries: bool) -> None:
    """See that a scalar expression's tree is CQL; optionally that it reads no stream."""
    _Check(text).walk(value)
    if not subqueries and (query := value.find(exp.Query)) is not None:
        raise MillpondError(
            "CQL-301",
            "a query inside this statement is not available yet",
            hint="Write constants and columns only.",
            text=text,
            span=span_of(query),
        )


class _Check:
    """One walk over a tree."""

    def __init__(self, text: str) -> None:
        self._text = text

    def fault(
        self, node: exp.Expr, primary: str, *, code: str = "CQL-103", hint: str | None = None
    ) -> MillpondError:
        at: exp.Expr | None = node
        span = None
        while at is not None and span is None:
            span = span_of(at)
            at = at.parent
        return MillpondError(
            code, primary, hint=hint, text=self._text, span=span or Span(0, len(self._text))
        )

    def walk(self, root: exp.Expr) -> None:
        stack: list[tuple[exp.Expr, int]] = [(root, 0)]
        while stack:
            node, depth = stack.pop()
            kind = type(node)
            allowed = PARTS.get(kind)
            if allowed is None:
                raise self.fault(node, f"{_what(node)} is not part of CQL", hint=_INSTEAD.get(kind))
            if depth > DEEPEST:
                raise self.fault(
                    node,
                    "the statement nests too deeply",
                    hint="Name parts of the query with WITH, or drop superfluous brackets.",
                )
            for key, value in node.args.items():
                if not value:
                    continue
                if key not in allowed:
                    raise self._superfluous(node, key, value)
                if isinstance(value, exp.Expr):
                    chained = key == "this" and type(value) is kind and isinstance(value, _CHAINS)
                    stack.append((value, depth if chained else depth + 1))
                elif type(value) is list:
                    stack += [(item, depth + 1) for item in value if isinstance(item, exp.Expr)]
            rule = _RULES.get(kind)
            if rule is not None:
                rule(self, node)

    def _superfluous(self, node: exp.Expr, key: str, value: object) -> MillpondError:
        part = value[0] if isinstance(value, list) else value
        place = part if isinstance(part, exp.Expr) and span_of(part) else node
        name = key.strip("_").replace("_", " ").upper()
        if isinstance(node, exp.Column | exp.Table) and key in ("db", "catalog", "table"):
            return self.fault(node, "a name has too many parts")
        if key == PERIOD:
            return self.fault(
                place, "BEGIN ... END belongs to a SELECT", hint="Put it inside the brackets."
            )
        if key == "joins":
            return self.fault(
                place,
                "joins are nested",
                hint="Write an ON behind every JOIN, or (SELECT * FROM a JOIN b ON ...).",
            )
        return self.fault(place, f"{name} of {_what(node)} is not part of CQL")

    # Rules of single kinds

    def select(self, node: exp.Expr) -> None:
        args = node.args
        if not args["expressions"]:
            raise self.fault(
                args.get("from_") or node,
                "SELECT without columns",
                hint="Write SELECT * for all columns.",
            )
        period = args.get(PERIOD)
        if period is not None:
            if not args.get("from_"):
                raise self.fault(period, "BEGIN ... END without FROM")
            items = [args["from_"].this, *(join.this for join in args.get("joins") or ())]
            for item in items:
                if window := item.args.get(WINDOW):
                    raise self.fault(
                        window,
                        "a window inside a SELECT with BEGIN ... END",
                        code="CQL-218",
                        hint="BEGIN ... END is the window of every stream in FROM: keep one of "
                        "the two.",
                    )

    def set_operation(self, node: exp.Expr) -> None:
        for operand in (node.this, node.expression):
            if not isinstance(operand, exp.Query):
                raise self.fault(operand, "expected a query")
            clauses = [operand.args[k] for k in ("with_", *_ORDERED) if operand.args.get(k)]
            if clauses and not isinstance(operand, exp.Subquery):
                raise self.fault(
                    clauses[0],
                    "WITH, ORDER BY and LIMIT of one side stand in brackets",
                    hint="Put brackets around that side.",
                )

    def subquery(self, node: exp.Expr) -> None:
        if not isinstance(node.this, exp.Query):
            raise self.fault(node, "expected a query in the brackets")
        parent = node.parent
        if node.args.get("alias") and not isinstance(parent, exp.From | exp.Join):
            raise self.fault(node.args["alias"], "an alias stands where none is allowed")
        if isinstance(parent, exp.From | exp.Join) and any(map(node.args.get, _ORDERED)):
            raise self.fault(node, "ORDER BY and LIMIT stand inside the brackets here")

    def cte(self, node: exp.Expr) -> None:
        if not isinstance(node.this, exp.Query):
            raise self.fault(node, "expected a query behind WITH ... AS")

    def with_(self, node: exp.Expr) -> None:
        if not node.expressions:
            raise self.fault(node, "WITH without a query")

    def join(self, node: exp.Expr) -> None:
        args = node.args
        shape = (args.get("method") or "", args.get("side") or "", args.get("kind") or "")
        if shape not in _JOINS:
            raise self.fault(node, f"{' '.join(filter(None, shape))} JOIN is not part of CQL")
        if (args.get("on") or args.get("using")) and (shape[0] or shape[2] == "CROSS"):
            raise self.fault(node, f"{shape[0] or shape[2]} JOIN takes no condition")
        for column in args.get("using") or ():
            if not isinstance(column, exp.Identifier):
                raise self.fault(column, "USING takes the names of columns")

    def group(self, node: exp.Expr) -> None:
        if not any(value for value in node.args.values()):
            raise self.fault(node, "GROUP BY without columns")

    def tuple_(self, node: exp.Expr) -> None:
        if not isinstance(node.parent, exp.GroupingSets):
            self.expressions(node)

    def null_treatment(self, node: exp.Expr) -> None:
        if not isinstance(node.parent, exp.Func):
            raise self.fault(node, "IGNORE NULLS stands inside the brackets of a function")

    def expressions(self, node: exp.Expr) -> None:
        if not node.expressions:
            raise self.fault(node, f"{_what(node)} is empty")

    def number(self, node: exp.Expr) -> None:
        value = node.args.get("expression")
        if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
            raise self.fault(value or node, f"{_what(node)} takes a whole number")

    def alias(self, node: exp.Expr) -> None:
        if not isinstance(node.parent, exp.Select) or node.arg_key != "expressions":
            raise self.fault(node.args["alias"], "an alias stands where none is allowed")

    def column(self, node: exp.Expr) -> None:
        if not isinstance(node.this, exp.Identifier | exp.Star):
            raise self.fault(node, "expected the name of a column")

    def identifier(self, node: exp.Expr) -> None:
        if not node.args.get("quoted") and not is_name(node.name):
            raise self.fault(node, f'"{node.name}" is not a name', hint='Quote it: "name".')

    def membership(self, node: exp.Expr) -> None:
        if not node.expressions and not node.args.get("query"):
            raise self.fault(node, "IN takes a list in brackets", hint="Write x IN (1, 2).")

    def exists(self, node: exp.Expr) -> None:
        if not isinstance(node.this, exp.Query):
            raise self.fault(node, f"{_what(node)} takes a query in brackets")

    def quantified(self, node: exp.Expr) -> None:
        self.exists(node)
        if type(node.parent) not in _COMPARISONS or node.arg_key != "expression":
            raise self.fault(
                node,
                f"{_what(node)} stands on the right of a comparison",
                hint=f"Write x = {_what(node)} (SELECT ...).",
            )

    def is_(self, node: exp.Expr) -> None:
        if not isinstance(node.args["expression"], exp.Null | exp.Boolean):
            raise self.fault(
                node.args["expression"],
                "IS takes NULL, TRUE or FALSE",
                hint="Write IS [NOT] DISTINCT FROM to compare any two values.",
            )

    def case(self, node: exp.Expr) -> None:
        if not node.args.get("ifs"):
            raise self.fault(node, "CASE without WHEN")

    def branch(self, node: exp.Expr) -> None:
        if not isinstance(node.parent, exp.Case):
            raise self.fault(node, "IF stands outside CASE")

    def data_type(self, node: exp.Expr) -> None:
        if node.this not in _TYPES:
            name = node.sql("duckdb")
            raise self.fault(node, f'the type "{name}" is unknown', code="CQL-210")

    def interval(self, node: exp.Expr) -> None:
        unit = node.args.get("unit")
        alone = isinstance(node.this, exp.Literal) and any(c.isalpha() for c in node.this.name)
        if (
            (unit is None and not alone)
            or not isinstance(node.this, exp.Literal | exp.Paren)
            or not isinstance(unit, exp.Var | None)
        ):
            raise self.fault(
                node, "an INTERVAL needs a length and a unit", hint="Write INTERVAL 15 MINUTES."
            )

    def variable(self, node: exp.Expr) -> None:
        if not isinstance(node.parent, exp.Interval | exp.Extract):
            raise self.fault(node, f'"{node.name}" stands where no word is allowed')

    def argument_order(self, node: exp.Expr) -> None:
        self.expressions(node)
        if node.this and not isinstance(node.parent, exp.Func):
            raise self.fault(node, "ORDER BY stands where none is allowed")


_RULES: dict[type[exp.Expr], Callable[[_Check, exp.Expr], None]] = {
    exp.Select: _Check.select,
    **dict.fromkeys((exp.Union, exp.Intersect, exp.Except), _Check.set_operation),
    exp.Subquery: _Check.subquery,
    exp.CTE: _Check.cte,
    exp.With: _Check.with_,
    exp.Join: _Check.join,
    exp.Group: _Check.group,
    exp.Order: _Check.argument_order,
    exp.Tuple: _Check.tuple_,
    exp.IgnoreNulls: _Check.null_treatment,
    exp.RespectNulls: _Check.null_treatment,
    exp.Limit: _Check.number,
    exp.Offset: _Check.number,
    exp.Alias: _Check.alias,
    exp.Column: _Check.column,
    exp.Identifier: _Check.identifier,
    exp.In: _Check.membership,
    exp.Any: _Check.quantified,
    exp.All: _Check.quantified,
    exp.Exists: _Check.exists,
    exp.Is: _Check.is_,
    exp.Case: _Check.case,
    exp.If: _Check.branch,
    exp.DataType: _Check.data_type,
    exp.Interval: _Check.interval,
    exp.Var: _Check.variable,
}

_INSTEAD: dict[type[exp.Expr], str] = {
    exp.Values: "Write SELECT for constants.",
    exp.TableSample: "Write SAMPLE(p) behind the stream.",
    exp.Fetch: "Write LIMIT n.",
    exp.Lambda: "There are no lambda expressions.",
    exp.Glob: "Write LIKE, or regexp_matches(x, pattern).",
}


def _what(node: exp.Expr) -> str:
    """A node's kind as a person would call it."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return f"{node.name}(...)"
    key = type(node).__name__
    words = "".join(f" {c}" if c.isupper() and i else c for i, c in enumerate(key))
    return words.upper()
