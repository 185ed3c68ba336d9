"""Trees to text: as CQL, and as SQL for DuckDB.

sqlglot's DuckDB generator translates from other dialects and rewrites on the way. Here trees are
read from DuckDB's dialect already, so `FaithfulGenerator` prints every node as it was read: the
parser and the generator are each other's inverse, and no text changes its meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.generator import Generator
from sqlglot.generators.duckdb import DuckDBGenerator

from millpond.cql.tree.asof import find_asof_keys
from millpond.cql.tree.nodes import (
    BY_ATTRIBUTES,
    PERIOD,
    PREFERENCE,
    STREAM_SAMPLE,
    WINDOW,
    WRITTEN,
    Period,
    PeriodBound,
    Preference,
    RelationToStream,
    StreamWindow,
    SummaryEstimate,
)
from millpond.model.duckdb_words import RESERVED
from millpond.model.durations import duration_text
from millpond.model.function_names import restore_names
from millpond.model.time import format_instant

#: Options of all generators: no comments, DuckDB's spelling of functions, no warnings.
STYLE: dict[str, Any] = {
    "comments": False,
    "normalize_functions": "lower",
    "unsupported_level": ErrorLevel.IGNORE,
}


def _distinct(self: Any, e: exp.Distinct) -> str:
    if on := e.args.get("on"):
        return f"DISTINCT ON {self.sql(on)}"
    return f"DISTINCT {self.expressions(e, flat=True)}".rstrip()


def _operator(sign: str) -> Callable[[Any, Any], str]:
    return lambda self, e: self.binary(e, sign)


def _constant(text: str) -> Callable[[Any, Any], str]:
    return lambda self, e: text


def _not(self: Any, e: exp.Not) -> str:
    """Print NOT: `a NOT IN (1) = b` negates before it compares, `NOT a IN (1) = b` after."""
    this = e.this
    if isinstance(this, exp.Is):
        return f"{self.sql(this, 'this')} IS NOT {self.sql(this, 'expression')}"
    if isinstance(this, exp.In | exp.Between):
        left = self.sql(this, "this")
        text = self.sql(this)
        return f"{left} NOT{text[len(left) :]}"
    return f"NOT {self.sql(this)}"


def _nulls(words: str) -> Callable[[Any, Any], str]:
    """Print the words last inside the function's brackets, wherever the tree has them."""

    def text(self: Any, e: exp.Expr) -> str:
        this: str = self.sql(e, "this")
        if isinstance(e.this, exp.AggFunc):
            return f"{this[:-1]} {words})"
        return f"{this} {words}"

    return text


def _cast(self: Any, e: exp.Cast) -> str:
    """Print casts of casts without nested brackets, which would soon be too deep."""
    if type(e.this) is exp.Cast:
        return f"{self.sql(e, 'this')}::{self.sql(e, 'to')}"
    return f"CAST({self.sql(e, 'this')} AS {self.sql(e, 'to')})"


class FaithfulGenerator(DuckDBGenerator):
    """Prints what the parser reads, as it was read."""

    TYPE_MAPPING = {  # noqa: RUF012
        **DuckDBGenerator.TYPE_MAPPING,
        exp.DType.TEXT: "VARCHAR",
        exp.DType.INT128: "HUGEINT",
        exp.DType.UINT128: "UHUGEINT",
    }
    TRANSFORMS = {  # noqa: RUF012
        **DuckDBGenerator.TRANSFORMS,
        exp.Select: Generator.select_sql,
        exp.Distinct: lambda self, e: _distinct(self, e),
        exp.Not: _not,
        exp.Cast: _cast,
        exp.Pow: _operator("^"),
        exp.BitwiseAnd: _operator("&"),
        exp.BitwiseOr: _operator("|"),
        exp.BitwiseLeftShift: _operator("<<"),
        exp.BitwiseRightShift: _operator(">>"),
        exp.BitwiseNot: lambda self, e: f"~ {self.sql(e, 'this')}",
        exp.Array: lambda self, e: f"[{self.expressions(e, flat=True)}]",
        exp.IgnoreNulls: _nulls("IGNORE NULLS"),
        exp.RespectNulls: _nulls("RESPECT NULLS"),
        exp.WithinGroup: lambda self, e: (
            f"{self.sql(e, 'this')} WITHIN GROUP ({self.sql(e, 'expression').strip()})"
        ),
        exp.Extract: lambda self, e: (
            f"EXTRACT({self.sql(e, 'this')} FROM {self.sql(e, 'expression')})"
        ),
        exp.CurrentDate: _constant("CURRENT_DATE"),
        exp.CurrentTime: _constant("CURRENT_TIME"),
        exp.CurrentTimestamp: _constant("CURRENT_TIMESTAMP"),
        exp.Localtime: _constant("LOCALTIME"),
        exp.Localtimestamp: _constant("LOCALTIMESTAMP"),
    }

    def set_operations(self, expression: exp.SetOperation) -> str:
        spine: list[exp.SetOperation] = []
        first: exp.Expr = expression
        while isinstance(first, exp.SetOperation):
            spine.append(first)
            first = first.this
        parts = [self.sql(first)]
        for operation in reversed(spine):
            parts += [self.set_operation(operation), self.sql(operation, "expression")]
            if by := operation.args.get(BY_ATTRIBUTES):
                parts.append(f"BY ({', '.join(self.sql(name) for name in by)})")
        return self.prepend_ctes(expression, self.query_modifiers(expression, " ".join(parts)))


class EngineGenerator(FaithfulGenerator):
    """Prints DuckDB's SQL; quotes every name that DuckDB would not read as a name."""

    RESERVED_KEYWORDS = {*RESERVED, *DuckDBGenerator.RESERVED_KEYWORDS}  # noqa: RUF012
    TRANSFORMS = {  # noqa: RUF012
        **FaithfulGenerator.TRANSFORMS,
        SummaryEstimate: lambda self, e: (
            f"{e.args.get('inside') or 'summary_estimate'}({self.expressions(e, flat=True)})"
        ),
    }
    AFTER_HAVING_MODIFIER_TRANSFORMS = {  # noqa: RUF012
        **DuckDBGenerator.AFTER_HAVING_MODIFIER_TRANSFORMS,
        "ties": lambda self, e: self.unordered_ties(e),
    }

    def order_sql(self, expression: exp.Order, flat: bool = False) -> str:
        """Print ORDER BY; if a LIMIT follows, equal rows are ordered by all selected columns.

        The rows a LIMIT keeps must depend on the rows alone, and not on the order in which DuckDB
        finds them (SEMANTICS, section 3).
        """
        text = super().order_sql(expression, flat)
        query = expression.parent
        if not isinstance(query, exp.Query) or not _is_cut(query):
            return text
        ties = [tie if isinstance(tie, str) else self.sql(tie) for tie in _ties(query)]
        return ", ".join([text, *ties])

    def join_sql(self, expression: exp.Join, join_op: str | None = None) -> str:
        """Print a join; of right rows an ASOF JOIN cannot tell apart, only the least is kept."""
        keys = find_asof_keys(expression) if expression.method == "ASOF" else None
        if keys is None:
            return super().join_sql(expression, join_op)
        copied = expression.copy()
        once = exp.Select(
            distinct=exp.Distinct(on=exp.Tuple(expressions=[key.copy() for key in keys])),
            expressions=[exp.Star()],
            from_=exp.From(this=expression.this.copy()),
        )
        alias = exp.to_identifier(expression.this.alias_or_name, quoted=True)
        copied.set("this", exp.Subquery(this=once, alias=exp.TableAlias(this=alias)))
        return super().join_sql(copied, join_op)

    def unordered_ties(self, expression: exp.Expr) -> str:
        """Print the ORDER BY for a LIMIT without ORDER BY."""
        if expression.args.get("order") or not _is_cut(expression):
            return ""
        return f"{self.sep()}ORDER BY ALL"


def _is_cut(query: exp.Expr) -> bool:
    """Whether a query's order decides which rows it keeps, by LIMIT or by DISTINCT ON."""
    distinct = query.args.get("distinct")
    is_chosen = isinstance(distinct, exp.Distinct) and distinct.args.get("on")
    return bool(query.args.get("limit") or query.args.get("offset") or is_chosen)


def _ties(query: exp.Expr) -> list[str | exp.Expr]:
    """List terms of ORDER BY for all columns of a query: numbers as long as they are known, from
    a `*` on the `*` itself and expressions."""
    inner = query
    while not isinstance(inner, exp.Select):
        if not isinstance(inner, exp.Subquery | exp.SetOperation):
            return []
        inner = inner.this
    items = inner.expressions
    starred = next((i for i, item in enumerate(items) if item.is_star), len(items))
    ties: list[str | exp.Expr] = [str(place + 1) for place in range(starred)]
    if inner is not query:
        return ties if starred == len(items) else ["COLUMNS(*)"]
    for item in items[starred:]:
        if item.is_star:
            ties.append(exp.Anonymous(this="COLUMNS", expressions=[item.copy()]))
        elif not isinstance(item.unalias(), exp.Literal):
            ties.append(item.unalias().copy())
    return ties


class CqlGenerator(FaithfulGenerator):
    """Prints CQL."""

    RESERVED_KEYWORDS: ClassVar[set[str]] = set()
    TRANSFORMS = {  # noqa: RUF012
        **FaithfulGenerator.TRANSFORMS,
        StreamWindow: lambda self, e: self.streamwindow_sql(e),
        Period: lambda self, e: f"BEGIN {self.sql(e, 'begin')} END {self.sql(e, 'end')}",
        PeriodBound: lambda self, e: self.periodbound_sql(e),
        RelationToStream: lambda self, e: f"{e.args['kind']}({self.sql(e, 'this')})",
        Preference: lambda self, e: self.preference_sql(e),
        SummaryEstimate: lambda self, e: (
            f"SUMMARY({self.sql(e, 'this')}).ESTIMATE.{e.args['kind'].upper()}"
            f"({self.expressions(e, flat=True)})"
        ),
    }
    AFTER_HAVING_MODIFIER_TRANSFORMS = {  # noqa: RUF012
        **DuckDBGenerator.AFTER_HAVING_MODIFIER_TRANSFORMS,
        PERIOD: lambda self, e: f" {self.sql(e, PERIOD)}" if e.args.get(PERIOD) else "",
    }

    def sql(self, expression: Any, key: str | None = None, comment: bool = True) -> str:
        """Print a node; what replaced a call is printed as the call."""
        is_node = isinstance(expression, exp.Expr)  # sqlglot hands on texts too
        node = expression.args.get(key) if key and is_node else expression
        if isinstance(node, exp.Expr) and node._meta and WRITTEN in node._meta:
            return str(node._meta[WRITTEN])
        return super().sql(expression, key, comment)

    def query_modifiers(self, expression: exp.Expr, *sqls: str) -> str:
        """Print the clauses of a query, the preference last."""
        text = super().query_modifiers(expression, *sqls)
        preference = self.sql(expression, PREFERENCE)
        return f"{text} {preference}" if preference else text

    def preference_sql(self, expression: Preference) -> str:
        """Print WITH PREFERENCE."""
        args = expression.args
        text = f"WITH PREFERENCE {args['order'].upper()} {self.sql(expression, 'this')}"
        if args["fade"] != 1:
            text += f" FADE FACTOR {args['fade']!r}"
        return text + (f" BUDGET '{args['budget']}'" if args.get("budget") else "")

    def anonymous_sql(self, expression: exp.Anonymous) -> str:
        """Print a call; a user-defined function has the name its user gave it."""
        inside = str(expression.this)
        name = restore_names(inside)
        text = super().anonymous_sql(expression)
        return text if name == inside else name + text[len(inside) :]

    def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
        window = self.sql(expression, WINDOW)
        alias = self.sql(expression, "alias")
        return (
            self.table_parts(expression)
            + (f" {window}" if window else "")
            + (f"{sep}{alias}" if alias else "")
            + self._sample(expression)
        )

    def subquery_sql(self, expression: exp.Subquery, sep: str = " AS ") -> str:
        window = self.sql(expression, WINDOW)
        behind = (f" {window}" if window else "") + self._sample(expression)
        return super().subquery_sql(expression, sep) + behind

    def _sample(self, expression: exp.Expr) -> str:
        percentage = self.sql(expression, STREAM_SAMPLE)
        return f" SAMPLE({percentage})" if percentage else ""

    def streamwindow_sql(self, expression: StreamWindow) -> str:
        args = expression.args
        match args["kind"]:
            case "now":
                text = "NOW"
            case "unbounded":
                text = "RANGE UNBOUNDED"
            case "range":
                text = f"RANGE {duration_text(args['size'])}"
                if args.get("slide"):
                    text += f" SLIDE {duration_text(args['slide'])}"
            case _:
                by = ", ".join(self.sql(name) for name in args.get("by") or ())
                text = f"PARTITION BY {by} " if by else ""
                text += f"ROWS {args['rows']}"
        where = self.sql(expression, "where")
        return f"[{text} WHERE {where}]" if where else f"[{text}]"

    def periodbound_sql(self, expression: PeriodBound) -> str:
        instant, offset = expression.args.get("instant"), expression.args.get("offset")
        if instant is not None:
            return f"'{format_instant(instant)}'"
        assert offset is not None
        if offset == 0:
            return "NOW"
        return f"NOW {'-' if offset < 0 else '+'} INTERVAL {duration_text(abs(offset))}"
