"""The sources of a FROM clause as lumps: what rows are grouped by, and what is measured of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.model.duckdb_words import quote_name
from millpond.planner.resolve.pushdown import split_conjuncts


class UnfitError(Exception):
    """A query cannot be answered from lumps, or that it can is not seen."""


@dataclass(eq=False)
class LumpedSource:
    """A source while its query is rewritten.

    Attributes:
        number: Its place in the FROM clause.
        node: Its node there.
        name: Its name in the query.
        columns: Its columns, as declared, by their names in lower case.
        types: Their types.
        fills: Whether an outer join fills in NULLs where it has no row.
        kept: The columns that are read one by one.
        computed: The expressions over it that are read one by one: the columns that have them.
        measures: What is measured of each lump, as SQL, and the columns that have it.
        conditions: The conjuncts that choose its rows.
        split_signs: SQL that tells apart what GROUP BY does not: the two zeros of a double.
    """

    number: int
    node: exp.Table | exp.Subquery
    name: str
    columns: dict[str, str]
    types: dict[str, str]
    fills: bool = False
    kept: dict[str, None] = field(default_factory=dict)
    computed: dict[str, str] = field(default_factory=dict)
    measures: dict[str, str] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)
    split_signs: list[str] = field(default_factory=list)

    def read(self) -> str:
        """Write the source's rows as an item of a FROM clause."""
        body = to_duckdb(self.node.this)
        if isinstance(self.node, exp.Subquery):
            body = f"({body})"
        return f"{body} AS {quote_name(self.name)}"

    def name_column(self, column: str) -> str:
        """Write the qualified name of a column."""
        return f"{quote_name(self.name)}.{quote_name(column)}"

    def compute(self, sql: str) -> exp.Column:
        """Make an expression over the source a column of its lumps."""
        name = self.computed.setdefault(sql, f"__e{self.number}_{len(self.computed)}")
        return exp.column(exp.to_identifier(name), table=exp.to_identifier(self.name, quoted=True))

    def measure(self, sql: str) -> str:
        """Measure an aggregate of each lump; return the column that has it, as SQL."""
        name = self.measures.setdefault(sql, f"__m{self.number}_{len(self.measures)}")
        return f"{quote_name(self.name)}.{name}"

    def write(self) -> str:
        """Write the source's lumps as an item of a FROM clause."""
        keys = [self.name_column(column) for column in self.kept]
        keys += [f"({sql}) AS {name}" for sql, name in self.computed.items()]
        items = keys + [f"{sql} AS {name}" for sql, name in self.measures.items()]
        by = [str(place + 1) for place in range(len(keys))] + self.split_signs
        text = f"SELECT {', '.join(items) or '1'} FROM {self.read()}"
        if self.conditions:
            text += " WHERE " + " AND ".join(f"({sql})" for sql in self.conditions)
        # Without keys there is one lump, and none where there are no rows.
        text += f" GROUP BY {', '.join(by)}" if by else " HAVING count(*) > 0"
        return f"({text}) AS {quote_name(self.name)}"


class LumpedSources:
    """The sources of a SELECT's FROM clause, and whose columns an expression reads."""

    def __init__(
        self,
        select: exp.Select,
        tables: Mapping[str, Mapping[str, str]],
        columns_of: Callable[[str], Mapping[str, str] | None],
    ) -> None:
        """Read the FROM clause.

        Args:
            select: The SELECT.
            tables: The types of each slice's columns.
            columns_of: Gives those of a query; None if it can only be read beside other sources.

        Raises:
            UnfitError: it is anything else but joins of slices and queries by conditions.
        """
        self._tables = tables
        self._columns_of = columns_of
        self.joins: list[exp.Join] = select.args.get("joins") or []
        clause = select.args.get("from_")
        if clause is None or not self.joins:
            raise UnfitError
        self.all = [self._read(clause.this)]
        for join in self.joins:
            if join.method or join.kind not in ("", "INNER", "CROSS", "OUTER"):
                raise UnfitError
            right = self._read(join.this)
            right.fills = join.side in ("LEFT", "FULL")
            if join.side in ("RIGHT", "FULL"):
                for source in self.all:
                    source.fills = True
            self.all.append(right)
        self.is_inner = not any(join.side for join in self.joins)
        for join in self.joins:
            for name in join.args.get("using") or []:
                self._keep_all(name.name)

    def _read(self, node: exp.Expr) -> LumpedSource:
        is_slice = isinstance(node, exp.Table) and len(node.parts) == 1
        if not is_slice and not isinstance(node, exp.Subquery):
            raise UnfitError
        assert isinstance(node, exp.Table | exp.Subquery)
        if any(value for key, value in node.args.items() if key not in ("this", "alias")):
            raise UnfitError
        if not node.alias or node.args["alias"].args.get("columns"):
            raise UnfitError
        if is_slice:
            types = self._tables.get(node.name.lower())
        else:
            types = self._columns_of(f"SELECT * FROM {to_duckdb(node)}")
        if types is None:
            raise UnfitError
        columns = {column.lower(): column for column in types}
        if any(column.startswith(("__e", "__m")) for column in columns):
            raise UnfitError
        number = len(getattr(self, "all", ()))
        return LumpedSource(
            number, node, node.alias, columns, {c.lower(): t for c, t in types.items()}
        )

    def find(self, column: exp.Column) -> tuple[list[LumpedSource], str]:
        """Find which sources a column can be of, and its name there.

        None: it is an alias, or of a query around or inside this one.
        """
        if isinstance(column.this, exp.Star):
            raise UnfitError
        first, *more = [part.name.lower() for part in column.parts]
        named = [source for source in self.all if source.name.lower() == first]
        if named and more:
            if more[0] not in named[0].columns:
                raise UnfitError
            return named, more[0]
        found = [source for source in self.all if first in source.columns]
        if named and not found:
            raise UnfitError  # the whole row, as a struct
        return found, first

    def find_only(self, expression: exp.Expr) -> LumpedSource | None:
        """Find the one source whose columns, and nothing else, an expression reads."""
        only: LumpedSource | None = None
        if expression.find(exp.Query) is not None:
            return None
        for column in expression.find_all(exp.Column):
            found, _ = self.find(column)
            if len(found) != 1 or (only is not None and found[0] is not only):
                return None
            only = found[0]
        return only

    def keep(self, expression: exp.Expr) -> None:
        """Keep every column that an expression may read."""
        for column in expression.find_all(exp.Column):
            found, name = self.find(column)
            for source in found:
                source.kept[source.columns[name]] = None

    def _keep_all(self, name: str) -> None:
        for source in self.all:
            if name.lower() in source.columns:
                source.kept[source.columns[name.lower()]] = None

    def move_conditions(self, select: exp.Select) -> list[exp.Expr]:
        """Move conjuncts over one source to the source; return those that are left, in place.

        A row that a conjunct takes away has no part in the answer, unless an outer join fills in
        NULLs for it.
        """
        left: list[exp.Expr] = []
        clauses: list[exp.Expr] = [select.args["where"]] if select.args.get("where") else []
        clauses += [join for join in self.joins if join.args.get("on") is not None]
        for clause in clauses:
            key = "on" if isinstance(clause, exp.Join) else "this"
            may_move = key == "this" or self.is_inner
            remaining: list[exp.Expr] = []
            for conjunct in list(split_conjuncts(clause.args[key])):
                source = self.find_only(conjunct) if may_move else None
                if source is None or source.fills:
                    remaining.append(conjunct)
                else:
                    source.conditions.append(to_duckdb(conjunct))
            clause.set(key, exp.and_(*remaining, copy=False) if remaining else exp.true())
            left += list(split_conjuncts(clause.args[key])) if remaining else []
        return left
