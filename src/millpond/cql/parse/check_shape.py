"""Check that a query's tree is made of CQL's parts only.

sqlglot reads far more than CQL has. After reading, one walk over the tree refuses, at its place,
every node of a kind that is not listed and every argument that the node's kind may not have. A tree
that passes can be printed to a text that reads as the same tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from millpond.cql.parse.count_grouping_sets import (
    MOST_GROUPING_SETS,
    MOST_KEYS,
    count_grouping_sets,
    count_keys,
)
from millpond.cql.parse.tokens import DEEPEST as DEEPEST_BRACKETS
from millpond.cql.parse.tokens import is_name
from millpond.cql.tree.allowed_parts import (
    BRACKETED,
    CHAINS,
    COMPARISONS,
    JOINS,
    NESTED_TYPES,
    ORDERED,
    PARTS,
    TYPES,
)
from millpond.cql.tree.asof import find_asof_keys
from millpond.cql.tree.nodes import PERIOD, WINDOW, RelationToStream
from millpond.cql.tree.places import span_of
from millpond.errors import MillpondError, Span

#: The greatest depth of a tree: printing and binding recurse into the tree.
DEEPEST = 100
#: The most streams, relations and names of WITH that a statement may read, each as often as it
#: stands there: the time to plan a join grows with their square.
MOST_SOURCES = 200


#: The text of an INTERVAL that names its units, or is hours, minutes and seconds.
_LENGTH = re.compile(r"\s*([+-]?\d+(\.\d*)?\s*[a-zA-Z]+\s*)+|\s*[+-]?\d+(:\d+){1,2}(\.\d+)?\s*")


def check_query(query: exp.Expr, text: str) -> None:
    """Check that a query's tree is CQL.

    Raises:
        MillpondError: CQL-103, 104, 210, 217 or 218, at the part of `text` that is not CQL.
    """
    _Check(text).walk(query)


def check_scalar(value: exp.Expr, text: str, *, subqueries: bool) -> None:
    """Check that a scalar expression's tree is CQL, and has no subqueries unless `subqueries`."""
    _Check(text).walk(value)
    if not subqueries and (query := value.find(exp.Query)) is not None:
        raise MillpondError(
            "CQL-301",
            "a query inside this statement is not available yet",
            hint="Write constants and columns only.",
            text=text,
            span=span_of(query),
        )


#: Nodes that may have a query as a child without an `exp.Subquery` between.
_AROUND_QUERIES = (
    exp.Subquery,
    exp.CTE,
    exp.SetOperation,
    exp.Exists,
    exp.Any,
    exp.All,
    RelationToStream,
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
        stack: list[tuple[exp.Expr, int, int]] = [(root, 0, 0)]
        sources = sets = 0
        while stack:
            node, depth, brackets = stack.pop()
            kind = type(node)
            sources += kind is exp.Table
            if sources > MOST_SOURCES:
                raise self.fault(
                    node,
                    f"the statement reads more than {MOST_SOURCES} streams and relations",
                    code="CQL-104",
                    hint="Make streams or relations of parts of the query, and read those.",
                )
            if isinstance(node, exp.Group):
                sets += self.count_sets(node)
                if sets > MOST_GROUPING_SETS:
                    raise self._too_many(node, f"{MOST_GROUPING_SETS:,} grouping sets")
            if kind in BRACKETED:
                brackets += 1
            allowed = PARTS.get(kind)
            if allowed is None:
                raise self.fault(node, f"{_what(node)} is not part of CQL", hint=_INSTEAD.get(kind))
            if depth > DEEPEST or brackets > DEEPEST_BRACKETS:
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
                    chained = key == "this" and type(value) is kind and isinstance(value, CHAINS)
                    stack.append((value, depth if chained else depth + 1, brackets))
                elif type(value) is list:
                    stack += [
                        (item, depth + 1, brackets) for item in value if isinstance(item, exp.Expr)
                    ]
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
        hint = _INSTEAD_OF_PARTS.get((type(node), key))
        return self.fault(place, f"{name} of {_what(node)} is not part of CQL", hint=hint)

    # Rules of single kinds

    def refuse_bare_query(self, node: exp.Expr) -> None:
        if node.parent is not None and not isinstance(node.parent, _AROUND_QUERIES):
            raise self.fault(
                node,
                "a query inside an expression stands in brackets of its own",
                hint="Write one more pair of brackets: a = ANY ((VALUES (1), (2))).",
            )

    def select(self, node: exp.Expr) -> None:
        self.refuse_bare_query(node)
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
        self.refuse_bare_query(node)
        for operand in (node.this, node.expression):
            if not isinstance(operand, exp.Query):
                raise self.fault(operand, "expected a query")
            clauses = [operand.args[k] for k in ("with_", *ORDERED) if operand.args.get(k)]
            if clauses and not isinstance(operand, exp.Subquery):
                raise self.fault(
                    clauses[0],
                    "WITH, ORDER BY and LIMIT of one side stand in brackets",
                    hint="Put brackets around that side.",
                )

    def subquery(self, node: exp.Expr) -> None:
        parent = node.parent
        stands_in_from = isinstance(parent, exp.From | exp.Join) and node.arg_key == "this"
        is_stream = isinstance(node.this, RelationToStream) and stands_in_from
        if not isinstance(node.this, exp.Query) and not is_stream:
            raise self.fault(node, "expected a query in the brackets")
        if node.args.get("alias") and not isinstance(parent, exp.From | exp.Join):
            raise self.fault(node.args["alias"], "an alias stands where none is allowed")
        if isinstance(parent, exp.From | exp.Join) and any(map(node.args.get, ORDERED)):
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
        if shape not in JOINS:
            short = f"Write {shape[2]} JOIN." if shape[2] in ("SEMI", "ANTI") else None
            what = " ".join(filter(None, shape))
            raise self.fault(node, f"{what} JOIN is not part of CQL", hint=short)
        if shape[0] == "ASOF":
            self.asof(node)
        elif (args.get("on") or args.get("using")) and (shape[0] or shape[2] == "CROSS"):
            raise self.fault(node, f"{shape[0] or shape[2]} JOIN takes no condition")
        for column in args.get("using") or ():
            if not isinstance(column, exp.Identifier):
                raise self.fault(column, "USING takes the names of columns")

    def asof(self, node: exp.Expr) -> None:
        on, using = node.args.get("on"), node.args.get("using")
        if not on and not using:
            raise self.fault(node, "ASOF JOIN without a condition", hint=_ASOF)
        if on and find_asof_keys(node) is None:
            raise self.fault(
                on,
                "the condition of ASOF JOIN is no list of comparisons between its two sides",
                hint=_ASOF,
            )

    def tuple_(self, node: exp.Expr) -> None:
        if not isinstance(node.parent, exp.GroupingSets):
            self.expressions(node)

    def null_treatment(self, node: exp.Expr) -> None:
        if not isinstance(node.this, exp.AggFunc) and not isinstance(node.parent, exp.Func):
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

    def star(self, node: exp.Expr) -> None:
        outer = node.parent.parent if isinstance(node.parent, exp.Column) else node.parent
        if not isinstance(outer, exp.Select | exp.Count):
            raise self.fault(node, '"*" stands where none is allowed')

    def window(self, node: exp.Expr) -> None:
        if isinstance(node.this, exp.Window):
            raise self.fault(node, "OVER stands behind a function once")

    def frame(self, node: exp.Expr) -> None:
        for bound in (node.args.get("start"), node.args.get("end")):
            if isinstance(bound, exp.Column):
                raise self.fault(bound, "the bound of a frame is a constant, or UNBOUNDED")

    def column(self, node: exp.Expr) -> None:
        if not isinstance(node.this, exp.Identifier | exp.Star):
            raise self.fault(node, "expected the name of a column")

    def identifier(self, node: exp.Expr) -> None:
        if not node.args.get("quoted") and not is_name(node.name):
            raise self.fault(node, f'"{node.name}" is not a name', hint='Quote it: "name".')

    def count_sets(self, node: exp.Group) -> int:
        """Count the grouping sets of a GROUP BY; raises CQL-104 if they have too many keys."""
        sets = count_grouping_sets(node)
        if sets > 1 and count_keys(node) > MOST_KEYS:
            raise self._too_many(node, f"{MOST_KEYS} keys in its grouping sets")
        return sets

    def _too_many(self, node: exp.Expr, what: str) -> MillpondError:
        hint = "Name those you need: GROUP BY GROUPING SETS ((a, b), (a))."
        place = node.find(exp.Column) or node
        return self.fault(place, f"the statement has more than {what}", code="CQL-104", hint=hint)

    def grouping(self, node: exp.Expr) -> None:
        if not node.expressions:
            raise self.fault(
                node,
                f"WITH {_what(node)} is not part of CQL",
                hint=f"Write GROUP BY {_what(node)} (a, b).",
            )

    def call(self, node: exp.Expr) -> None:
        if node.name.lower() in _SELECTING:
            primary = f"{node.name.upper()} is not part of CQL"
            raise self.fault(node, primary, hint="Name the columns.")

    def membership(self, node: exp.Expr) -> None:
        if not node.expressions and not node.args.get("query"):
            raise self.fault(node, "IN takes a list in brackets", hint="Write x IN (1, 2).")

    def exists(self, node: exp.Expr) -> None:
        if not isinstance(node.this, exp.Query):
            raise self.fault(node, f"{_what(node)} takes a query in brackets")

    def quantification(self, node: exp.Expr) -> None:
        self.exists(node)
        if type(node.parent) not in COMPARISONS or node.arg_key != "expression":
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
        if node.args.get("nested") and node.this in NESTED_TYPES and node.expressions:
            return
        if node.this not in TYPES:
            name = node.sql("duckdb")
            raise self.fault(node, f'the type "{name}" is unknown', code="CQL-210")

    def field_of_type(self, node: exp.Expr) -> None:
        if not isinstance(node.parent, exp.DataType) or not node.args.get("kind"):
            raise self.fault(node, "the name of a field stands where none is allowed")

    def member(self, node: exp.Expr) -> None:
        if not isinstance(node.expression, exp.Identifier):
            raise self.fault(node, "behind a dot stands the name of a field")

    def interval(self, node: exp.Expr) -> None:
        unit = node.args.get("unit")
        alone = isinstance(node.this, exp.Literal) and _LENGTH.fullmatch(node.this.name)
        if (
            (unit is None and not alone)
            or not isinstance(node.this, exp.Literal | exp.Paren)
            or not isinstance(unit, exp.Var | None)
        ):
            raise self.fault(
                node, "an INTERVAL needs a length and a unit", hint="Write INTERVAL 15 MINUTES."
            )

    def variable(self, node: exp.Expr) -> None:
        if not isinstance(node.parent, exp.Interval | exp.Extract | exp.WindowSpec):
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
    exp.Order: _Check.argument_order,
    exp.Tuple: _Check.tuple_,
    exp.IgnoreNulls: _Check.null_treatment,
    exp.RespectNulls: _Check.null_treatment,
    exp.Limit: _Check.number,
    exp.Offset: _Check.number,
    exp.Alias: _Check.alias,
    exp.Column: _Check.column,
    exp.Star: _Check.star,
    exp.Window: _Check.window,
    exp.WindowSpec: _Check.frame,
    exp.Identifier: _Check.identifier,
    exp.Anonymous: _Check.call,
    exp.In: _Check.membership,
    exp.Any: _Check.quantification,
    exp.All: _Check.quantification,
    exp.Exists: _Check.exists,
    exp.Is: _Check.is_,
    exp.Case: _Check.case,
    exp.If: _Check.branch,
    exp.DataType: _Check.data_type,
    exp.ColumnDef: _Check.field_of_type,
    exp.Dot: _Check.member,
    exp.Interval: _Check.interval,
    exp.Var: _Check.variable,
    exp.Rollup: _Check.grouping,
    exp.Cube: _Check.grouping,
}

#: Names that look like calls, but mean columns.
_SELECTING = ("columns", "unpack")

_INSTEAD: dict[type[exp.Expr], str] = {
    exp.TableSample: "Write SAMPLE(p) behind the stream.",
    exp.Fetch: "Write LIMIT n.",
    exp.PropertyEQ: "Arguments have no names: columns beside each other, or a column of type "
    "STRUCT, hold the values.",
    exp.Lambda: "There are no lambda expressions.",
    exp.RegexpLike: "Write regexp_matches(x, pattern).",
    exp.ArrayOverlaps: "Write AND between conditions.",
    exp.Placeholder: "There are no parameters: write the value itself.",
    exp.Glob: "Write LIKE, or regexp_matches(x, pattern).",
}

#: What to write instead of a part of a node, by the node's kind and the part's key.
_INSTEAD_OF_PARTS: dict[tuple[type[exp.Expr], str], str] = {
    (exp.With, "recursive"): "Queries do not recurse: join as many steps as there may be, "
    "FROM r a LEFT JOIN r b ON b.id = a.parent; numbers in turn are unnest(range(10)).",
    (exp.Star, "except_"): "Name the columns.",
    (exp.Star, "replace"): "Name the columns.",
    (exp.Union, "by_name"): "Name the columns of both sides in the same order.",
    (exp.Select, "into"): "Write INSERT INTO name SELECT ..., or CREATE RELATION name AS SELECT "
    "... for what is always the query's answer.",
    (exp.Limit, "limit_options"): "Write LIMIT n.",
}


_ASOF = (
    "Write ASOF JOIN prices p ON t.symbol = p.symbol AND t.ts >= p.ts: equalities and one "
    "inequality, each between a column of either side, with their tables' names."
)


def _what(node: exp.Expr) -> str:
    """Name a node's kind as a person would."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return f"{node.name}(...)"
    if isinstance(node, exp.PropertyEQ):
        return ":="
    key = type(node).__name__
    words = "".join(f" {c}" if c.isupper() and i else c for i, c in enumerate(key))
    return words.upper()
