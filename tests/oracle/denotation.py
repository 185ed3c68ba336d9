"""The meaning of a query: the definition, computed as it is written.

    Q(τ) = SQL over the bags at τ,    bag of S [window] at τ = contents(window, S where p, τ)

This is the oracle the engine is held to (SEMANTICS, section 7, law 1). It reads the windows out of
the query's tree itself, evaluates a window's WHERE with DuckDB over every element the stream ever
had, and counts out the window's contents in Python. Then it gives each occurrence's bag to DuckDB
as a table, and DuckDB answers the whole query over these tables. The oracle shares nothing with the
planner or the engine, so it cannot share their mistakes.

INV-ORACLE-1: an answer is a function of the committed history and τ alone; nothing is remembered
from one answer to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from sqlglot import exp
from tests.oracle.contents import Element, contents
from tests.oracle.negation import ages, replace_negations
from tests.oracle.nrr_join import add_instants, join_nrrs
from tests.oracle.relations import RowVersion
from tests.oracle.session import load, session
from tests.oracle.world import OutsideTheOracle, World

from millpond.catalog.objects import REJECTS_SCHEMA
from millpond.cql import to_duckdb
from millpond.cql.print.approximations import expand_approximations
from millpond.cql.print.parallel_and import apply_parallel_and
from millpond.cql.tree.nodes import (
    PERIOD,
    STREAM_SAMPLE,
    WINDOW,
    PeriodBound,
    RelationToStream,
    StreamWindow,
)
from millpond.cql.tree.nodes import Period as PeriodNode
from millpond.model.schema import Schema
from millpond.model.time import BEGINNING, END, Instant
from millpond.model.windows import (
    Bound,
    Now,
    Period,
    Range,
    Rows,
    Unbounded,
    Window,
    interval,
)

REJECTS = "$rejects"
#: Key of the `meta` of a subquery that replaces a view's name. A BEGIN … END around the subquery
#: does not apply to the view's streams.
VIEW = "view"


@dataclass(frozen=True)
class Occurrence:
    """One occurrence of a stream or relation in a query, with all its history.

    Attributes:
        name: Its lower-case name.
        window: None for a relation.
        everything: A stream's elements.
        elements: The elements that satisfy the predicate in the window's brackets; all of them
            where the predicate has a query, whose answer changes with time.
        versions: A relation's row versions.
    """

    name: str
    window: Window | None
    everything: tuple[Element, ...] = ()
    elements: tuple[Element, ...] = ()
    versions: tuple[RowVersion, ...] = ()


@dataclass(frozen=True)
class Denotation:
    """R(τ): the rows, the instant, and whether the rows are final.

    `reach` is, by stream (lower case), the least timestamp that any of the query's windows over the
    stream can hold at τ; None where a window has no lower bound.
    """

    table: pa.Table
    as_of: Instant
    final: bool
    reach: Mapping[str, int | None]


def denote(
    world: World,
    query: exp.Expression,
    at: int | None = None,
    kept_since: int | None = None,
) -> Denotation:
    """Compute the answer of a query at an instant, by default NOW.

    With `kept_since`, compute it as if every element with a smaller timestamp had been evicted.

    Raises:
        OutsideTheOracle: the query uses something that sections 1 to 3 do not define.
        duckdb.Error: DuckDB cannot answer the query over these rows.
    """
    tree = query.copy()
    expand_approximations(tree)
    occurrences = list(_occurrences(world, tree))
    # What a window's WHERE reads has to be there before the window is taken.
    occurrences.sort(key=lambda found: _windows_around(found[1]), reverse=True)
    attached, aged = join_nrrs(world, tree), ages(world, tree)
    streams = [name for name, _ in occurrences if name not in world.relations]
    now = _now(world, streams) if streams else present_of(world, [n for n, _ in occurrences])
    instant = Instant(at) if at is not None else now
    final = all(instant < heartbeat(world, name) for name in streams)
    if not streams:
        final = instant <= now
    reach: dict[str, int | None] = {}
    with session(world.functions) as connection:
        for number, (name, table) in enumerate(occurrences):
            if name in world.relations:
                relation = world.relations[name]
                rows, schema = relation.at(instant), relation.definition.schema
                if id(table) in attached:
                    begin, end = attached[id(table)]
                    rows = [{**v.row, begin: v.begin, end: v.end} for v in relation.versions]
                    schema = add_instants(schema, begin, end)
            else:
                elements, schema = _stream(world, name)
                window, before = _read_window(table, schema)
                if kept_since is not None:
                    elements = [e for e in elements if e.at >= kept_since]
                if before is not None:
                    elements = _filter_by_own_where(connection, schema, elements, before, table)
                inside = contents(window, elements, instant)
                rows = [e.row for e in inside]
                for stamp in (*attached.get(id(table), ()), *aged.get(id(table), ())):
                    rows = [{**row, stamp: e.at} for row, e in zip(rows, inside, strict=True)]
                    schema = add_instants(schema, stamp)
                _widen(reach, name, interval(window, instant)[0])
            load(connection, f"leaf_{number}", schema.to_arrow(), rows)
            _point_to_table(table, f"leaf_{number}")
        for select in tree.find_all(exp.Select):
            select.args.pop(PERIOD, None)
        _order_equal_rows(tree)
        tree = replace_negations(connection, tree)
        answer = _answer(connection, tree)
        answer = answer.rename_columns(_make_distinct(answer.column_names))
    return Denotation(answer, instant, final, reach)


def occurrences(world: World, query: exp.Expression) -> Iterator[Occurrence]:
    """Find every occurrence of a stream or relation in a query.

    Raises:
        OutsideTheOracle: the query uses something that is not defined.
    """
    for name, table in _occurrences(world, query.copy()):
        if name in world.relations:
            yield Occurrence(name, None, versions=tuple(world.relations[name].versions))
            continue
        elements, schema = _stream(world, name)
        window, before = _read_window(table, schema)
        satisfying = elements
        if before is not None and before.find(exp.Query) is None:
            with session() as connection:
                satisfying = _filter_by_own_where(connection, schema, elements, before, table)
        yield Occurrence(name, window, tuple(elements), tuple(satisfying))


def _windows_around(table: exp.Expr) -> int:
    """Count the windows in whose WHERE an occurrence stands."""
    around, found = 0, table.parent
    while found is not None:
        around, found = around + isinstance(found, StreamWindow), found.parent
    return around


def _widen(reach: dict[str, int | None], name: str, low: int | None) -> None:
    known = reach.get(name, low)
    reach[name] = None if low is None or known is None else min(low, known)


def _occurrences(world: World, tree: exp.Expression) -> Iterator[tuple[str, exp.Table]]:
    """Find every occurrence of a stream or relation in a tree, with its lower-case name."""
    for node in list(tree.walk()):
        if node.args.get(STREAM_SAMPLE):
            raise OutsideTheOracle("SAMPLE")
        if isinstance(node, RelationToStream):
            raise OutsideTheOracle("relations to streams")
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            continue
        name = node.name.lower()
        if is_cte(node, name):
            continue
        stream = name.removesuffix(REJECTS)
        if name not in world.relations and stream not in world.streams:
            raise OutsideTheOracle(f'no stream or relation "{node.name}"')
        yield name, node


def is_cte(node: exp.Expression, name: str) -> bool:
    """Whether a WITH around a node redefines the name; a WITH around a view does not count.

    An entry of a WITH can name the entries before it, but not itself.
    """
    inside: exp.Expr = node
    entry: exp.Expr | None = None
    while not inside.meta.get(VIEW) and (outer := inside.parent) is not None:
        if isinstance(outer, exp.CTE):
            entry = outer
        clause = outer.args.get("with_") or outer.args.get("with")
        if clause is not None and not isinstance(outer, exp.With):
            visible = list(clause.expressions)
            if any(entry is one for one in visible):
                visible = visible[: next(i for i, one in enumerate(visible) if one is entry)]
            if any(cte.alias.lower() == name for cte in visible):
                return True
            entry = None
        inside = outer
    return False


def _stream(world: World, name: str) -> tuple[list[Element], Schema]:
    history = world.streams[name.removesuffix(REJECTS)]
    if name.endswith(REJECTS):
        return history.rejects, REJECTS_SCHEMA
    return history.elements, history.definition.schema


def _now(world: World, streams: list[str]) -> Instant:
    """Compute NOW: the greatest timestamp on the application-time streams, or the clock.

    If no application-time stream has an element yet, NOW is the beginning of time: the clock would
    be ahead of their timestamps, and NOW would go back with their first element. A derived stream
    counts as the streams it is derived from.
    """
    base: set[str] = set()
    waiting = list(streams)
    while waiting:
        name = waiting.pop()
        below = () if name.endswith(REJECTS) else world.streams[name].derived_from
        waiting += below
        base |= set() if below else {name}
    on_application_time = [
        world.streams[name]
        for name in base
        if not name.endswith(REJECTS) and not world.streams[name].definition.on_system_time
    ]
    if not on_application_time:
        return Instant(world.clock)
    greatest = [stream.greatest for stream in on_application_time]
    return max((g for g in greatest if g is not None), default=BEGINNING)


def present_of(world: World, relations: list[str]) -> Instant:
    """Compute NOW of a query that reads no stream; every instant up to NOW is final.

    It is the pond's present: the clock where a stream is on system time. Elsewhere, before any
    element, it is the last instant at which the query's relations changed.
    """
    streams = [s for s in world.streams.values() if s.definition.derived is None]
    if any(s.definition.on_system_time for s in streams):
        return Instant(world.clock)
    present = world.present()
    if present > BEGINNING:
        return present
    versions = [v for name in relations for v in world.relations[name].versions]
    change_instants = [at for v in versions for at in (v.begin, v.end) if at < END]
    return max([BEGINNING, *change_instants])


def heartbeat(world: World, name: str) -> Instant:
    """Compute the heartbeat of a stream, or of a stream's rejects."""
    if name.endswith(REJECTS):
        return Instant(world.clock)
    return world.streams[name].heartbeat(world.clock)


def _read_window(table: exp.Table, schema: Schema) -> tuple[Window, exp.Expression | None]:
    """Read an occurrence's window and the predicate that applies before it."""
    bracket = table.args.get(WINDOW)
    if bracket is None:
        return _find_period(table) or Unbounded(), None
    assert isinstance(bracket, StreamWindow)
    before = bracket.args.get("where")
    kind, size = bracket.args["kind"], bracket.args.get("size")
    if kind == "now":
        return Now(), before
    if kind == "range":
        assert size is not None
        return Range(int(size), bracket.args.get("slide")), before
    if kind == "rows":
        by = [schema.find(column.name) for column in bracket.args.get("by") or ()]
        return Rows(int(bracket.args["rows"]), tuple(f.name for f in by if f)), before
    return Unbounded(), before


def _find_period(table: exp.Table) -> Period | None:
    """Find the BEGIN … END of the SELECT whose FROM clause has an occurrence, directly or nested.

    A subquery elsewhere (WHERE, SELECT, ON) is a separate query, with its own windows.
    """
    inner: exp.Expr = table
    while (outer := inner.parent) is not None:
        if inner.meta.get(VIEW):
            return None
        if isinstance(outer, exp.Join) and inner.arg_key != "this":
            return None
        if isinstance(outer, exp.Select):
            if inner.arg_key not in ("from_", "joins", "with_"):
                return None
            period = outer.args.get(PERIOD)
            if isinstance(period, PeriodNode):
                return Period(_read_bound(period.args["begin"]), _read_bound(period.args["end"]))
        inner = outer
    return None


def _order_equal_rows(tree: exp.Expr) -> None:
    """Order equal rows by arrival, where a window function or a call over one stream shows them.

    A table has its stream's elements by timestamp and arrival.
    """
    for select in tree.find_all(exp.Select):
        source = select.args["from_"].this if select.args.get("from_") else None
        if not isinstance(source, exp.Table) or not source.name.startswith("leaf_"):
            continue
        if select.args.get("joins") or source.args.get("joins"):
            continue
        place = exp.column("rowid", table=source.alias_or_name, quoted=True)
        for call in select.find_all(exp.AnonymousAggFunc):
            order = call.expressions[-1] if call.expressions else None
            inside = call.find_ancestor(exp.Query, exp.Window) is not select
            if inside or not isinstance(order, exp.Order) or isinstance(order.this, exp.Distinct):
                continue
            order.append("expressions", exp.Ordered(this=place.copy()))
        for window in select.find_all(exp.Window):
            if window.find_ancestor(exp.Query) is not select or window.args.get("alias"):
                continue
            called, spec = window.this, window.args.get("spec")
            while isinstance(called, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
                called = called.this
            excludes = spec is not None and spec.args.get("exclude")
            shows = called.name.lower() in ("row_number", "lag", "lead", "ntile")
            if spec is not None and spec.args["kind"] == "ROWS":
                shows |= not excludes
            elif called.name.lower() in ("first", "first_value") and window.args.get("order"):
                begins = spec is None or spec.args["start"] == "UNBOUNDED"
                ends = spec is None or spec.args["end"] in (None, "CURRENT ROW")
                shows |= begins and ends and not excludes
            if shows:
                known = window.args["order"].expressions if window.args.get("order") else []
                terms = [*known, exp.Ordered(this=place.copy())]
                window.set("order", exp.Order(expressions=terms))


def _read_bound(node: PeriodBound) -> Bound:
    return Bound(instant=node.args.get("instant"), offset=node.args.get("offset"))


def _filter_by_own_where(
    connection: duckdb.DuckDBPyConnection,
    schema: Schema,
    elements: list[Element],
    before: exp.Expression,
    table: exp.Table,
) -> list[Element]:
    """Select the elements for which a window's WHERE is true; DuckDB evaluates it over all."""
    predicate = before.copy()
    own = {table.name.lower(), table.alias_or_name.lower()}
    for column in predicate.find_all(exp.Column):
        if column.table.lower() in own:
            column.set("table", None)
    numbered = [{**e.row, "__place": place} for place, e in enumerate(elements)]
    arrow = schema.to_arrow().append(pa.field("__place", pa.int64()))
    load(connection, "everything", arrow, numbered)
    source = exp.to_table("everything")
    if predicate.find(exp.Query) is not None:  # queries in it may name the stream's columns
        predicate = before.copy()
        source.set(
            "alias", exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True))
        )
    everything = exp.select("__place").from_(source).where(predicate)
    places = sorted(_answer(connection, everything)["__place"].to_pylist())
    return [elements[place] for place in places]


def _answer(connection: duckdb.DuckDBPyConnection, tree: exp.Expr) -> pa.Table:
    """Answer with DuckDB; a WHERE conjunct may fail on rows that another conjunct excludes."""
    try:
        return connection.sql(to_duckdb(tree)).to_arrow_table()
    except duckdb.Error:
        if (other := apply_parallel_and(tree)) is None:
            raise
        return connection.sql(to_duckdb(other)).to_arrow_table()


def _make_distinct(names: list[str]) -> list[str]:
    """Make column names distinct by adding numbers: v, v_1, v_2.

    >>> _make_distinct(["v", "k", "v"])
    ['v', 'k', 'v_1']
    """
    given: list[str] = []
    for name in names:
        number, distinct = 0, name
        while distinct.lower() in (other.lower() for other in given):
            number += 1
            distinct = f"{name}_{number}"
        given.append(distinct)
    return given


def _point_to_table(table: exp.Table, name: str) -> None:
    """Make an occurrence name a table instead of a stream, and keep the old name as its alias."""
    alias = table.args.get("alias")
    if alias is None:
        known_as = exp.to_identifier(table.name, quoted=True)
        table.set("alias", exp.TableAlias(this=known_as))
    table.set("this", exp.to_identifier(name))
    table.args.pop(WINDOW, None)
