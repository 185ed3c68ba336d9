"""A query of a join that counts, adds up or takes extremes, over lumps in place of rows.

    SELECT a.g, count(*), sum(b.x) FROM a, b WHERE a.k = b.k GROUP BY a.g

reads g and k of `a`, and k of `b`, one by one. So rows that agree in these columns have the same
partners and the same group, and it is the same to join them once and count how many they are:

    SELECT a.g, sum(a.m0 * b.m0), sum(b.m1 * a.m0)
    FROM (SELECT g, k, count(*) AS m0 FROM a GROUP BY g, k) a,
         (SELECT k, count(*) AS m0, sum(x) AS m1 FROM b GROUP BY k) b
    WHERE a.k = b.k GROUP BY a.g

(eager aggregation: Yan and Larson, VLDB 1995). What it costs depends on how many lumps there are,
and not on how many partners a row has. What only reads one source, such as `a.ts // 60` in GROUP BY
or `b.x % 10` in a condition, is computed before rows are grouped, and so tells fewer rows apart.

Every SELECT of a query is rewritten by itself, if it stands where no other query's rows can be
read in it. DuckDB binds what was written, and has to give columns of the same types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from sqlglot import exp

from millpond.confined.growth import can_expand
from millpond.cql.print.dialect import to_duckdb
from millpond.planner.check.typecheck import open_session
from millpond.planner.lumped.calls import LumpedCalls
from millpond.planner.lumped.source import LumpedSource, LumpedSources, UnfitError
from millpond.planner.residual import make_residual_tree
from millpond.planner.resolve.placement import is_aggregate


@dataclass(frozen=True)
class LumpedQuery:
    """A query over lumps.

    Attributes:
        sql: Its SQL over the slices.
        is_exact: Whether its answer has the bits, and of rows in no order the same rows, that it
            has pair by pair: it rounds nothing, and no LIMIT chooses among rows.
    """

    sql: str
    is_exact: bool


def write_lumped_query(
    tree: exp.Expr, literals: Mapping[int, str], slices: Mapping[str, pa.Schema]
) -> LumpedQuery | None:
    """Write a query over lumps; None if no part of it can be.

    Args:
        tree: The query's tree.
        literals: The query's constants.
        slices: The columns of its slices.
    """
    query = make_residual_tree(tree, literals)
    plain = to_duckdb(query)
    if can_expand(plain):
        return None
    session = open_session()
    try:
        tables: dict[str, Mapping[str, str]] = {}
        for name, schema in slices.items():
            session.register(name, schema.empty_table())
            tables[name.lower()] = _list_types(session.sql(f"SELECT * FROM {name}"))
        is_exact = query.find(exp.Limit, exp.Offset) is None
        found = 0
        # Those inside others first: a SELECT is replaced by a copy.
        for select in reversed(list(query.find_all(exp.Select))):
            if not _stands_alone(select):
                continue
            try:
                rewriting = _Rewriting(select.copy(), tables, session)
                rewriting.rewrite()
            except UnfitError:
                continue
            found += 1
            is_exact &= rewriting.is_exact
            query = rewriting.select if select is query else query
            select.replace(rewriting.select)
        sql = to_duckdb(query)
        if not found or session.sql(sql).types != session.sql(plain).types:
            return None
        return LumpedQuery(sql, is_exact)
    except duckdb.Error:
        return None
    finally:
        session.close()


def _list_types(relation: duckdb.DuckDBPyRelation) -> dict[str, str]:
    return {name: str(type_) for name, type_ in zip(relation.columns, relation.types, strict=True)}


def _stands_alone(select: exp.Select) -> bool:
    """Whether a SELECT is the query, or in a FROM clause, a WITH or a set operation of it."""
    node: exp.Expr = select
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.Join) and node.arg_key != "this":
            return False
        if not isinstance(
            parent,
            exp.Select | exp.SetOperation | exp.Subquery | exp.CTE | exp.With | exp.From | exp.Join,
        ):
            return False
        if isinstance(parent, exp.Select) and node.arg_key not in ("from_", "joins", "with_"):
            return False
        node = parent
    return True


class _Rewriting:
    """The rewriting of one SELECT, in place."""

    def __init__(
        self,
        select: exp.Select,
        tables: Mapping[str, Mapping[str, str]],
        session: duckdb.DuckDBPyConnection,
    ) -> None:
        self.select = select
        self._session = session
        self._sources = LumpedSources(select, tables, self._columns_of)
        copied = select.copy()
        clauses = {key: copied.args.get(key) for key in ("from_", "joins")}
        self._rows = to_duckdb(exp.Select(expressions=[], **clauses)).removeprefix("SELECT")
        self._calls = LumpedCalls(self._sources, self._type_of, self._read_one_by_one)
        #: Expressions over one source that may become columns of its lumps.
        self._chances: list[tuple[exp.Expr, LumpedSource]] = []

    @property
    def is_exact(self) -> bool:
        doubles = any(source.split_signs for source in self._sources.all)
        return self._calls.is_exact and not doubles

    def rewrite(self) -> None:
        """Rewrite the SELECT.

        Raises:
            UnfitError: it cannot be, or not usefully.
        """
        select = self.select
        calls = self._check()
        conditions = self._sources.move_conditions(select)
        writes = {id(call): self._calls.rewrite(call) for call in calls}
        keys = self._find_keys()
        for condition in conditions:
            self._read_one_by_one(condition)
        for clause in self._list_clauses():
            self._read_clause(clause, keys, writes)
        self._compute_chances()
        for call in calls:
            write = writes[id(call)]
            if write is not None:
                call.replace(exp.Var(this=write()))
        for source in self._sources.all:
            self._split_signs(source)
            source.node.replace(exp.Var(this=source.write()))

    def _check(self) -> list[exp.Expr]:
        """Check the SELECT's shape; list the calls of its aggregates, each with its FILTER."""
        select = self.select
        if any(select.args.get(k) for k in ("qualify", "windows", "sample", "laterals", "hint")):
            raise UnfitError
        distinct = select.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise UnfitError
        calls: list[exp.Expr] = []
        for clause in self._list_clauses():
            for node in clause.walk(prune=lambda n: isinstance(n, exp.Query) or _is_call(n)):
                if isinstance(node, exp.Query | exp.Star | exp.Window | exp.WithinGroup):
                    raise UnfitError
                if _is_call(node):
                    calls.append(node)
        if not calls and distinct is None and select.args.get("group") is None:
            raise UnfitError
        return calls

    def _list_clauses(self) -> list[exp.Expr]:
        """List what is computed of groups: all but FROM and WHERE."""
        clauses = [self.select.args.get(key) for key in ("group", "having", "order")]
        return [*self.select.expressions, *(clause for clause in clauses if clause is not None)]

    def _find_keys(self) -> set[str]:
        """List the expressions over one source that rows are grouped by, as SQL.

        Without GROUP BY or aggregates, DISTINCT groups by all columns.
        """
        select = self.select
        group = select.args.get("group")
        items = [item.unalias() for item in select.expressions]
        named = {item.alias.lower(): item.unalias() for item in select.expressions if item.alias}
        if group is None:
            keys = [] if any(_is_call(n) for item in items for n in item.walk()) else items
        else:
            keys = []
            for key in group.expressions:
                if isinstance(key, exp.Literal) and not key.is_string:
                    place = int(key.name) if key.name.isdigit() else 0
                    keys += items[place - 1 : place] if place else []
                elif isinstance(key, exp.Column) and not self._sources.find(key)[0]:
                    keys += [named[key.name.lower()]] if key.name.lower() in named else []
                else:
                    keys.append(key)
        return {to_duckdb(k) for k in keys if self._is_chance(k) is not None}

    def _is_chance(self, node: exp.Expr) -> LumpedSource | None:
        """Find the source an expression may be computed over, before its rows are grouped."""
        if isinstance(node, exp.Column | exp.Star | exp.Literal | exp.Alias):
            return None
        source = self._sources.find_only(node)
        if source is None or source.fills or any(is_aggregate(n) for n in node.walk()):
            return None
        return source

    def _read_clause(
        self, clause: exp.Expr, keys: set[str], writes: Mapping[int, object | None]
    ) -> None:
        """Note what a clause reads one by one: keys as they are, and columns."""
        stack = [clause]
        while stack:
            node = stack.pop()
            if writes.get(id(node)) is not None:
                continue
            if isinstance(node, exp.Column):
                self._sources.keep(node)
            elif (source := self._is_chance(node)) is not None and to_duckdb(node) in keys:
                self._chances.append((node, source))
            else:
                stack += list(node.iter_expressions())

    def _read_one_by_one(self, expression: exp.Expr) -> None:
        """Note what an expression over several sources reads one by one."""
        if expression.find(exp.Query) is not None:
            self._sources.keep(expression)
            return
        stack = [expression]
        while stack:
            node = stack.pop()
            if isinstance(node, exp.Column):
                self._sources.keep(node)
            elif (source := self._is_chance(node)) is not None:
                self._chances.append((node, source))
            else:
                stack += list(node.iter_expressions())

    def _compute_chances(self) -> None:
        """Compute before the grouping what reads a column that is not kept anyway."""
        for node, source in self._chances:
            read = {self._sources.find(column)[1] for column in node.find_all(exp.Column)}
            if read <= {column.lower() for column in source.kept}:
                continue
            computed = source.compute(to_duckdb(node))
            if node.parent is None:
                raise UnfitError
            node.replace(computed)

    def _split_signs(self, source: LumpedSource) -> None:
        """Have the two zeros of doubles told apart, which GROUP BY does not."""
        types = {source.name_column(c): source.types[c.lower()] for c in source.kept}
        types |= {f"({sql})": self._type_of(sql) for sql in source.computed}
        for sql, type_ in types.items():
            if type_ in ("DOUBLE", "FLOAT"):
                source.split_signs.append(f"signbit({sql})")
            elif any(word in type_ for word in ("DOUBLE", "FLOAT", "INTERVAL")):
                raise UnfitError

    def _columns_of(self, sql: str) -> Mapping[str, str] | None:
        """The columns of a query that stands alone; None if it does not."""
        try:
            relation = self._session.sql(sql)
        except duckdb.Error:
            return None
        # Names that differ in nothing are of different columns.
        is_plain = len({name.lower() for name in relation.columns}) == len(relation.columns)
        return _list_types(relation) if is_plain else None

    def _type_of(self, sql: str) -> str:
        """The type of an expression over the sources' rows."""
        try:
            (type_,) = self._session.sql(f"SELECT {sql}{self._rows}").types
        except duckdb.Error:
            raise UnfitError from None
        return str(type_)


def _is_call(node: exp.Expr) -> bool:
    """Whether a node calls an aggregate, with its FILTER if it has one."""
    return is_aggregate(node) or (isinstance(node, exp.Filter) and is_aggregate(node.this))
