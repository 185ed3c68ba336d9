"""The oracle as a pond: the naive denotation behind the interface every pond has.

The golden runner, the property tests or a script can use it like any pond. It keeps everything in
memory for ever and recomputes every answer from the whole history. It reports errors of the data
only; errors in statements are left to the binder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp
from tests.oracle.changes import is_defined
from tests.oracle.denotation import VIEW, Denotation, denote, is_cte
from tests.oracle.history import StreamHistory
from tests.oracle.oracle_following import (
    DerivedHistory,
    OracleChanges,
    OracleSubscription,
    fetch,
    final_instant,
)
from tests.oracle.relations import PLACE, RelationHistory
from tests.oracle.session import session
from tests.oracle.world import World

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.cql import parse_query, parse_script, to_duckdb
from millpond.cql.print.dialect import print_query
from millpond.cql.tree import statements
from millpond.cql.tree.nodes import STREAM_SAMPLE, WINDOW, RelationToStream
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema, canonical_type
from millpond.model.time import BEGINNING, Instant


@dataclass(frozen=True)
class OracleAnswer:
    """R(τ), with the attributes that `service.results.Answer` has."""

    table: pa.Table
    as_of: Instant
    final: bool
    exact: bool

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def rows(self) -> list[tuple[Any, ...]]:
        columns = [column.to_pylist() for column in self.table.columns]
        return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class OracleReceipt:
    accepted: int
    rejected: int
    rejects: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class OracleResult:
    """The result of a statement: an answer, or nothing."""

    statement: str
    name: str | None = None
    answer: OracleAnswer | None = None
    changes: OracleChanges | None = None


@dataclass
class OracleHandle:
    """A standing query: its tree, which is computed anew at every invocation.

    `after` is the instant after which changes are delivered.
    """

    pond: OraclePond
    name: str
    tree: exp.Expression
    after: int = BEGINNING - 1
    following: OracleSubscription | None = None

    def fetch(self, after: str | None = None, limit: int | None = None) -> OracleChanges:
        if self.following is None:
            self.following = OracleSubscription(self.pond.world, self.tree, self.after)
        relation = self.tree.this if isinstance(self.tree, RelationToStream) else self.tree
        at = max(self.after, BEGINNING)
        if is_defined(self.pond.world, relation, at):
            columns = denote(self.pond.world, relation, at).table.column_names
        else:
            select = relation.find(exp.Select)
            columns = [item.alias_or_name for item in select.expressions] if select else []
        return fetch(self.following, columns, after, limit)

    def invoke(self, at: int | None = None) -> OracleAnswer:
        return self.pond.answer(self.tree, at)

    def unregister(self) -> None:
        self.pond.queries.pop(self.name.lower())


class OraclePond:
    """A pond without an engine. `clock` gives the present instant when called."""

    def __init__(self, clock: Callable[[], int] = lambda: 0) -> None:
        self.clock = clock
        self.world = World()
        self.queries: dict[str, OracleHandle] = {}
        self.views: dict[str, exp.Expression] = {}

    def execute(self, text: str) -> list[OracleResult]:
        """Run a script's statements in order."""
        return [self._execute(statement) for statement in parse_script(text)]

    def register(self, cql: str, name: str | None = None, **_options: Any) -> OracleHandle:
        """Register a query; options are ignored, for they do not change what it means."""
        self.world.clock = self.clock()
        tree = self._expand(parse_query(cql))
        after = BEGINNING - 1
        if _options.get("changes") != "from beginning":
            after = final_instant(self.world, tree)
        handle = OracleHandle(self, name or f"query_{len(self.queries)}", tree, after)
        self.queries[handle.name.lower()] = handle
        return handle

    def function(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        arguments: list[str],
        returns: str,
        **_promises: Any,
    ) -> None:
        """Define a function; its cost and time limit are ignored, for they change no answer."""
        self.world.functions[name.lower()] = function, arguments, returns

    def query(self, name: str) -> OracleHandle:
        return self.queries[name.lower()]

    def ask(self, cql: str) -> OracleAnswer:
        return self.answer(self._expand(parse_query(cql)), None)

    def ingest(self, stream: str, rows: Sequence[dict[str, Any]]) -> OracleReceipt:
        """Commit rows as one epoch."""
        rejected = self.world.streams[stream.lower()].commit(rows, self.clock())
        rejects = [{"row": reject.row, "reason": reject.reason} for reject in rejected]
        return OracleReceipt(len(rows) - len(rejected), len(rejected), rejects)

    def catch_up(self) -> None:
        """Deliver the changes that are final; nothing else can be behind."""
        self.world.clock = self.clock()
        for handle in self.queries.values():
            if handle.following is not None:
                handle.following.advance()
        for history in self.world.streams.values():
            if isinstance(history, DerivedHistory):
                history.following.advance()

    def close(self) -> None:
        """Do nothing: a closed oracle can be used further, like a store that is opened again."""

    def answer(self, tree: exp.Expression, at: int | None) -> OracleAnswer:
        self.world.clock = self.clock()
        meaning = denote(self.world, tree, at)
        return OracleAnswer(meaning.table, meaning.as_of, meaning.final, self._is_kept(meaning))

    def _is_kept(self, meaning: Denotation) -> bool:
        """Whether RETAIN guarantees that all elements within the windows' reach are still kept.

        A pond may keep more than that, so False means only that some elements may be evicted.
        """
        for name, low in meaning.reach.items():
            history = self.world.streams[name.removesuffix("$rejects")]
            retain, latest = history.definition.retain, history.greatest
            if history.definition.retain_rows is not None:
                return False
            if retain is not None and latest is not None and (low is None or low < latest - retain):
                return False
        return True

    def _execute(self, statement: statements.Statement) -> OracleResult:
        self.world.clock = self.clock()
        if (
            isinstance(statement, statements.Created)
            and statement.if_not_exists
            and self._is_there(statement.name)
        ):
            return OracleResult("create", statement.name)
        match statement:
            case statements.CreateStream():
                self._create_stream(statement)
            case statements.CreateRelation():
                self._create_relation(statement)
            case statements.CreateQuery():
                tree = self._expand(statement.query)
                everything = statement.options.get("changes") == "from beginning"
                after = BEGINNING - 1 if everything else final_instant(self.world, tree)
                handle = OracleHandle(self, statement.name, tree, after)
                self.queries[statement.name.lower()] = handle
            case statements.CreateDerived(kind="stream"):
                history = DerivedHistory.of(
                    self.world, statement.name, self._expand(parse_query(statement.query_text))
                )
                self.world.streams[statement.name.lower()] = history  # type: ignore[assignment]
            case statements.CreateDerived():
                view = self._expand(parse_query(statement.query_text))
                self.views[statement.name.lower()] = view
            case statements.Fetch():
                return OracleResult("fetch", statement.name, changes=self._fetch(statement))
            case statements.Insert():
                self._insert(statement)
            case statements.Update():
                at = self._when(statement.at)
                assigned = {n: self._compute(statement, v, at) for n, v in statement.assignments}
                self.world.relations[statement.name.lower()].update(
                    assigned, self._find_rows(statement, at), at
                )
            case statements.Delete():
                at = self._when(statement.at)
                self.world.relations[statement.name.lower()].delete(
                    self._find_rows(statement, at), at
                )
            case statements.Heartbeat():
                self.world.streams[statement.name.lower()].advance_heartbeat(
                    statement.at, self.clock()
                )
            case statements.AddColumn():
                self._add_column(statement)
            case statements.ResetClock():
                self._reset_clock(statement)
            case statements.Drop():
                self._drop(statement)
            case statements.Invoke():
                answer = self.query(statement.name).invoke(statement.at)
                return OracleResult("invoke", statement.name, answer)
            case statements.Ask():
                tree = self._expand(statement.query)
                return OracleResult("ask", None, self.answer(tree, None))
            case _:
                pass
        return OracleResult(type(statement).__name__.lower(), getattr(statement, "name", None))

    def _fetch(self, statement: statements.Fetch) -> OracleChanges:
        stream = self.world.streams.get(statement.name.lower())
        if isinstance(stream, DerivedHistory):
            columns = list(stream.definition.schema.names)
            return fetch(stream.following, columns, statement.after, statement.limit)
        return self.query(statement.name).fetch(statement.after, statement.limit)

    def _expand(self, tree: exp.Expression) -> exp.Expression:
        """Replace the views in a query by their definitions."""
        tree = tree.copy()
        for table in list(tree.find_all(exp.Table)):
            view = self.views.get(table.name.lower())
            if view is None or is_cte(table, table.name.lower()):
                continue
            alias = table.args.get("alias") or exp.TableAlias(
                this=exp.to_identifier(table.name, quoted=True)
            )
            subquery = exp.Subquery(this=view.copy(), alias=alias)
            subquery.meta[VIEW] = True
            table.replace(subquery)
        self._make_inner_streams(tree)
        return tree

    def _make_inner_streams(self, tree: exp.Expression) -> None:
        """Make a derived stream of each query in FROM that is a stream, and name it there."""
        for subquery in reversed(list(tree.find_all(exp.Subquery, bfs=True))):  # inner ones first
            inner = subquery.this
            if not isinstance(inner, RelationToStream) and not subquery.args.get(WINDOW):
                continue
            name = f"inner {print_query(inner)}".lower()
            if name not in self.world.streams:
                history = DerivedHistory.of(self.world, name, inner.copy())
                self.world.streams[name] = history  # type: ignore[assignment]
            table = exp.Table(this=exp.to_identifier(name, quoted=True))
            for key in ("alias", WINDOW, STREAM_SAMPLE):
                if subquery.args.get(key):
                    table.set(key, subquery.args[key])
            subquery.replace(table)

    def _find_rows(
        self, statement: statements.Update | statements.Delete, at: int
    ) -> str | set[int] | None:
        """Find what a statement's WHERE selects: SQL, or places where WHERE has queries."""
        if statement.where is None:
            return None
        found = self._compute(statement, statement.where, at)
        return found if isinstance(found, str) else {p for p, truth in found.items() if truth}

    def _compute(
        self, statement: statements.Update | statements.Delete, value: exp.Expression, at: int
    ) -> str | dict[int, Any]:
        """Write an expression as SQL; if it has queries, compute it for each row at an instant.

        A query in it may read columns of the row, so all of it is one query over the relation.
        """
        if value.find(exp.Query) is None:
            return to_duckdb(exp.Paren(this=value.copy()))
        name = statement.name.lower()
        relations = {**self.world.relations, name: self.world.relations[name].number_rows()}
        asked = parse_query(f'SELECT 1 AS v FROM "{statement.name}"')
        items = [exp.column(PLACE), exp.alias_(exp.Paren(this=value.copy()), "v")]
        asked.set("expressions", items)
        world = replace(self.world, relations=relations)
        rows = denote(world, self._expand(asked), at).table.to_pylist()
        return {row[PLACE]: row["v"] for row in rows}

    def _when(self, at: int | None) -> int:
        return self.world.present() if at is None else at

    def _create_stream(self, statement: statements.CreateStream) -> None:
        self.world.streams[statement.name.lower()] = StreamHistory(
            StreamDef(
                id=len(self.world.streams),
                name=statement.name,
                schema=_schema(statement.columns),
                timestamp_by=statement.timestamp_by,
                delay=statement.delay,
                idle_after=statement.idle_after,
                ahead=statement.ahead,
                retain=statement.retain,
                retain_rows=statement.retain_rows,
            )
        )

    def _create_relation(self, statement: statements.CreateRelation) -> None:
        schema = _schema(statement.columns)
        key = [schema.find(name) for name in statement.primary_key]
        if statement.timestamp_by is not None:
            self._create_fed(statement, schema)
            return
        self.world.relations[statement.name.lower()] = RelationHistory(
            RelationDef(
                id=len(self.world.relations),
                name=statement.name,
                schema=schema,
                primary_key=tuple(f.name for f in key if f is not None),
                non_retroactive=statement.non_retroactive,
            )
        )

    def _create_fed(self, statement: statements.CreateRelation, schema: Schema) -> None:
        """Create a relation fed by changes: for each key, the last record decides."""
        name = f"{statement.name}$changes"
        options = statement.source.options if statement.source else {}
        operation = options.get("op_column")
        fields = schema.fields
        if operation is not None and schema.find(operation) is None:
            fields = (*fields, Field(operation, "VARCHAR"))
        self.world.streams[name.lower()] = StreamHistory(
            StreamDef(
                id=len(self.world.streams),
                name=name,
                schema=Schema(fields),
                timestamp_by=statement.timestamp_by,
                delay=statement.delay,
                idle_after=statement.idle_after,
                ahead=statement.ahead,
            )
        )
        keys = ", ".join(statement.primary_key)
        columns = ", ".join(schema.names)
        gone = f"WHERE {operation} IS NULL OR lower(trim({operation})) NOT IN ('d', 'delete', '-')"
        text = f"SELECT {columns} FROM {name} [PARTITION BY {keys} ROWS 1]"
        self.views[statement.name.lower()] = parse_query(
            text if operation is None else f"{text} {gone}"
        )

    def _insert(self, statement: statements.Insert) -> None:
        name = statement.name.lower()
        target = self.world.streams.get(name) or self.world.relations.get(name)
        if target is None:
            raise MillpondError("CQL-201", f'no stream or relation "{statement.name}"')
        columns = statement.columns or [f.name for f in target.definition.schema.given]
        fields = [target.definition.schema.find(column) for column in columns]
        given = (
            _evaluate(statement.rows)
            if statement.query is None
            else self.answer(self._expand(statement.query), None).rows()
        )
        rows = [
            {f.name: value for f, value in zip(fields, row, strict=True) if f is not None}
            for row in given
        ]
        if isinstance(target, StreamHistory):
            target.commit(rows, self.clock())
        else:
            target.insert(rows, self._when(statement.at))

    def _add_column(self, statement: statements.AddColumn) -> None:
        """Add a column, of which only queries of later may speak."""
        history = self.world.streams[statement.name.lower()]
        (column,) = _schema((statement.column,)).fields
        if history.definition.schema.find(column.name) is None:
            schema = Schema((*history.definition.schema.fields, column))
            history.definition = replace(history.definition, schema=schema)
            for element in history.elements:
                element.row[column.name] = None

    def _reset_clock(self, statement: statements.ResetClock) -> None:
        history = self.world.streams[statement.name.lower()]
        history.reset_clock(statement.to, self.clock())
        final = min(history.heartbeat(self.clock()) - 1, statement.to)
        derived = [
            h.following for h in self.world.streams.values() if isinstance(h, DerivedHistory)
        ]
        followed = [h.following for h in self.queries.values() if h.following is not None]
        for following in (*derived, *followed):
            if following.reads(statement.name):
                following.take_back(final)

    def _is_there(self, name: str) -> bool:
        held = (self.queries, self.views, self.world.streams, self.world.relations)
        return any(name.lower() in names for names in held)

    def _drop(self, statement: statements.Drop) -> None:
        kinds: dict[str, dict[str, Any]] = {
            "query": self.queries,
            "stream": self.world.streams,
            "relation": self.world.relations,
        }
        kinds[statement.kind].pop(statement.name.lower(), None)
        if statement.kind == "relation":
            self.views.pop(statement.name.lower(), None)


class OracleStore:
    """Opens the same oracle at every call, as a store is opened again after its pond was closed."""

    def __init__(self) -> None:
        self.pond: OraclePond | None = None

    def __call__(self, clock: Callable[[], int]) -> OraclePond:
        if self.pond is None:
            self.pond = OraclePond(clock)
        return self.pond


def _schema(columns: Sequence[statements.ColumnDef]) -> Schema:
    return Schema(
        tuple(
            Field(
                c.name,
                canonical_type(c.type) or "VARCHAR",
                c.required,
                None if c.computed is None else print_query(c.computed),
            )
            for c in columns
        )
    )


def _evaluate(rows: Sequence[Sequence[exp.Expression]]) -> list[tuple[Any, ...]]:
    """Evaluate constant expressions with DuckDB."""
    with session() as connection:
        sqls = ["SELECT " + ", ".join(to_duckdb(value) for value in row) for row in rows]
        return [connection.execute(sql).fetchall()[0] for sql in sqls]
