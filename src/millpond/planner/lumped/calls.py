"""Aggregates of pairs as aggregates of pairs of lumps.

A pair of lumps stands for as many pairs of rows as the product of their counts. So a count is a sum
of products, and the sum of one side's values a sum of the side's own sums times the other counts.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.planner.lumped.source import LumpedSource, LumpedSources, UnfitError
from millpond.planner.resolve.placement import find_aggregate

#: Aggregates that do not ask how often a value comes.
_ONCE = ("min", "max", "bool_and", "bool_or", "bit_and", "bit_or")
#: What a sum can be: more than 128 bits fail, as they do where rows are added up.
_WHOLE, _DOUBLE, _DECIMAL = "HUGEINT", "DOUBLE", "DECIMAL(38,"


class LumpedCalls:
    """Rewrites the aggregates of one SELECT.

    Args:
        sources: Its sources.
        type_of: Gives the type of an expression over the sources' rows, as SQL.
        keep: Keeps what is read one by one in an expression over several sources.

    Attributes:
        is_exact: Whether nothing is added up in another order than pair by pair that is rounded.
    """

    def __init__(
        self,
        sources: LumpedSources,
        type_of: Callable[[str], str],
        keep: Callable[[exp.Expr], None],
    ) -> None:
        self.sources = sources
        self.type_of = type_of
        self.keep = keep
        self.is_exact = True

    def rewrite(self, call: exp.Expr) -> Callable[[], str] | None:
        """Rewrite a call, with its FILTER; return what writes it once all columns are known.

        None: it stays as it is, and reads values one by one.

        Raises:
            UnfitError: it asks for more than counts, sums and extremes.
        """
        chosen: exp.Expr | None = None
        if isinstance(call, exp.Filter):
            chosen, call = call.expression.this, call.this
        function = find_aggregate(call)
        if function is None:
            raise UnfitError
        name = function.synonym_of or function.name
        given = (call.args.get("this"), *call.expressions)
        arguments = [a for a in given if isinstance(a, exp.Expr)]
        if name not in ("count", "sum", "avg", *_ONCE) or len(arguments) > 1:
            raise UnfitError
        argument = arguments[0] if arguments else exp.Star()
        if argument.find(exp.Query, exp.Order):
            raise UnfitError
        if isinstance(argument, exp.Distinct):
            self.is_exact &= name == "count" or self.type_of(to_duckdb(call)) != _DOUBLE
            return None
        if isinstance(argument, exp.Star):
            if name != "count" or any(argument.args.values()):
                raise UnfitError
            return _LumpedCall(self, name, None, chosen).write
        return _LumpedCall(self, name, argument, chosen).write


class _LumpedCall:
    """One call.

    A FILTER that reads one source, and an argument that does, are measured of its lumps; others are
    read one by one. Where NULLs are filled in, only the measures of plain columns are NULL, too.
    """

    def __init__(
        self, calls: LumpedCalls, name: str, argument: exp.Expr | None, chosen: exp.Expr | None
    ) -> None:
        self._sources = calls.sources
        self._name = name
        self._argument = argument
        self._chosen = chosen
        self._of = self._measured(argument, may_fill=isinstance(argument, exp.Column))
        self._chosen_of = self._measured(chosen, may_fill=False)
        self._type = "BIGINT"
        if argument is not None and name != "count":
            wanted = "sum" if name == "avg" else name
            self._type = calls.type_of(f"{wanted}({to_duckdb(argument)})")
            calls.is_exact &= self._type not in (_DOUBLE, "FLOAT")
            # How DuckDB rounds an average of decimals depends on what stands beside it.
            calls.is_exact &= name != "avg" or self._type == _WHOLE
        if name in ("sum", "avg") and not self._type.startswith((_WHOLE, _DOUBLE, _DECIMAL)):
            raise UnfitError
        # What is read one by one may be replaced by columns of lumps before it is written.
        if argument is not None and self._of is None:
            self._argument = exp.Paren(this=argument.copy())
            calls.keep(self._argument)
        if chosen is not None and self._chosen_of is None:
            self._chosen = exp.Paren(this=chosen.copy())
            calls.keep(self._chosen)

    def _measured(self, expression: exp.Expr | None, may_fill: bool) -> LumpedSource | None:
        source = None if expression is None else self._sources.find_only(expression)
        return source if source is None or may_fill or not source.fills else None

    def write(self) -> str:
        conditions: list[str] = []
        if self._chosen is not None and self._chosen_of is None:
            conditions.append(to_duckdb(self._chosen))
        elif self._chosen_of is not None and self._chosen_of is not self._of:
            # A lump of which no row is chosen has no part in a sum, which may be NULL.
            conditions.append(f"{self._count(self._chosen_of)} > 0")
        if self._name in _ONCE:
            return f"{self._name}({self._value(self._name)}){_filter(conditions)}"
        if self._name == "count":
            return self._write_count(conditions)
        total = self._write_sum(conditions)
        if self._name == "sum":
            return total
        counted = self._write_count(conditions)
        return f"(CAST({total} AS DOUBLE) / CAST({counted} AS DOUBLE))"

    def _value(self, function: str) -> str:
        """The argument, or what is measured of it."""
        assert self._argument is not None
        text = to_duckdb(self._argument)
        if self._of is None:
            return text
        return self._of.measure(f"{function}({text}){self._filter_of(self._of)}")

    def _write_count(self, conditions: list[str]) -> str:
        conditions = list(conditions)
        if self._argument is None:
            product = self._product()
        elif self._of is None:
            conditions.append(f"({to_duckdb(self._argument)}) IS NOT NULL")
            product = self._product()
        else:
            product = self._product(self._value("count"))
        return f"CAST(coalesce(sum({product}){_filter(conditions)}, 0) AS BIGINT)"

    def _write_sum(self, conditions: list[str]) -> str:
        value, others = self._value("sum"), self._product(None)
        if self._type == _WHOLE:
            return f"sum(CAST(({value}) AS HUGEINT) * {others}){_filter(conditions)}"
        factor = "DOUBLE" if self._type == _DOUBLE else "DECIMAL(38, 0)"
        value = f"CAST(({value}) AS {self._type})"
        return f"sum({value} * CAST({others} AS {factor})){_filter(conditions)}"

    def _product(self, first: str | None = None) -> str:
        """How many pairs a pair of lumps stands for, or `first` times those of the other lumps.

        The lump that has the argument counts for one where its own sum is the value.
        """
        has_value = self._argument is not None and self._of is not None
        factors = [] if first is None else [first]
        factors += [self._count(s) for s in self._sources.all if s is not self._of or not has_value]
        return "(" + " * ".join(f"CAST({f} AS HUGEINT)" for f in factors or ["1"]) + ")"

    def _count(self, source: LumpedSource) -> str:
        """How many rows of a source's lump have a part in the call: one where it has no row."""
        count = source.measure(f"count(*){self._filter_of(source)}")
        return f"coalesce({count}, 1)" if source.fills else count

    def _filter_of(self, source: LumpedSource) -> str:
        if self._chosen is None or source is not self._chosen_of:
            return ""
        return _filter([to_duckdb(self._chosen)])


def _filter(conditions: list[str]) -> str:
    joined = " AND ".join(f"({condition})" for condition in conditions)
    return f" FILTER (WHERE {joined})" if joined else ""
