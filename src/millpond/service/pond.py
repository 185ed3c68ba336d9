"""The pond: everything a client can do, in one object.

Every way in (Python, command line, HTTP, console) goes through a `Pond`. The parts inside it are
put together in `components.py`. All methods may be called from any thread.
"""

from __future__ import annotations

import atexit
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from prometheus_client import CollectorRegistry

from millpond.catalog.objects import FunctionDef, QueryDef, RelationDef, StreamDef
from millpond.cql import parse_script
from millpond.cql.parse.tokens import is_name
from millpond.cql.tree.statements import Statement
from millpond.errors import MillpondError
from millpond.model.time import Time, to_instant
from millpond.model.unicode_text import check_unicode
from millpond.planner.resolve.names import Names
from millpond.runtime.protocol import Runtime
from millpond.service.changes.feeds.feed import Feed
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.changes.feeds.feeds import follow_feed
from millpond.service.components import Components, PondSettings
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.definitions.reset_clock import ClockReset
from millpond.service.handles import Handle, StreamHandle
from millpond.service.ingest import given_rows, row_formats
from millpond.service.ingest.given_rows import RowFormat
from millpond.service.ingest.parameter_table import fill_table
from millpond.service.observe.control_tables import Entities
from millpond.service.observe.entity_stream import EntityStream
from millpond.service.observe.explain import Explainer
from millpond.service.observe.history import History, Span
from millpond.service.observe.metrics import Metrics
from millpond.service.observe.query_costs import QueryCost, QueryCosts
from millpond.service.observe.query_descriptions import describe_queries
from millpond.service.observe.spans import Spans, are_spans_wanted
from millpond.service.observe.status import describe_status
from millpond.service.observe.trace import trace_batch
from millpond.service.plans.plans import Plans
from millpond.service.queries.collector import pause_collector
from millpond.service.queries.given_registration import Registration, parts, table_of_parameters
from millpond.service.queries.query_directory import QueryListing
from millpond.service.queries.query_selection import QuerySelection
from millpond.service.queries.registration_request import RegistrationRequest
from millpond.service.results import Answer, IngestReceipt, StatementResult, count_text
from millpond.service.statements.executor import Executor
from millpond.service.statements.insert_and_heartbeat import find_written_stream
from millpond.work import check_work, limit_work


class Pond:
    """A running data stream management system over one store."""

    def __init__(
        self,
        directory: Path,
        runtime: Runtime,
        *,
        on_close: Callable[[], None] | None = None,
        **settings: Unpack[PondSettings],
    ) -> None:
        """Open the store and start the runtime over it.

        Args:
            directory: The store's directory; created if it does not exist.
            runtime: Reads sources and runs tasks.
            on_close: Called last when the pond is closed.
            settings: See `PondSettings`.

        Raises:
            MillpondError: STORE-601 to STORE-604.
        """
        self._components = Components(directory, runtime, **settings)
        self._metrics = Metrics(self._components)
        self._components.events.observers.append(self._metrics)
        if are_spans_wanted():
            self._components.events.observers.append(Spans())
        self._entities = Entities(self._components)
        self._plans = Plans(self._components)
        self._costs = QueryCosts(self._components)
        self._explainer = Explainer(self._components, self._entities, self._metrics)
        self._on_close = on_close
        #: Held while the pond is closed: who closes it, too, returns when it is.
        self._closing = threading.RLock()
        ceilings = settings.get("ceilings")
        self._statement_seconds = math.inf if ceilings is None else ceilings.seconds
        self._observer = EntityStream(self._components, self._entities)
        self._components.inputs.look_at_entities = self._observer.look
        self._history = History(self._components, self._metrics)
        self._components.start()
        self._observer.start()
        self._history.start()
        atexit.register(_close, weakref.ref(self))

    # -- statements ----------------------------------------------------------------------------

    def execute(self, text: str) -> list[StatementResult]:
        """Run a script's statements in order.

        Raises:
            MillpondError: the first statement that failed; those before it have taken effect.
        """
        return list(self.run(text))

    def run(
        self,
        text: str,
        policy: AccessPolicy | None = None,
        approve: Callable[[Statement], Statement | StatementResult] | None = None,
    ) -> Iterable[StatementResult]:
        """Run a script's statements in order, and yield each result as soon as it is there.

        Args:
            text: The script.
            policy: Which sources the statements may use; None for all that this process can read.
            approve: Called with each statement before the statement is executed. Returns the
                statement to execute instead, or the result if nothing is to be executed; raises
                why the statement may not be executed.
        """
        self._components.check_open()
        with limit_work(self._statement_seconds):
            parsed = parse_script(text)
        executor = Executor(self._components, self._explainer, self._entities, policy)
        for statement in parsed:
            check_work()
            try:
                approved = statement if approve is None else approve(statement)
                if isinstance(approved, StatementResult):
                    yield approved
                    continue
                with limit_work(self._statement_seconds):
                    result = executor.execute(approved)
                yield result
            except MillpondError as error:
                raise _place_in_script(error, text, statement.offset) from error

    def register(self, cql: str, name: str | None = None, **options: Any) -> Handle:
        """Register a standing query; its answers count all elements that are kept or will come.

        `cql` is a query, or a whole CREATE QUERY statement.
        """
        return self.register_many([(cql, name, options)])[0]

    def register_many(self, queries: Sequence[Registration]) -> list[Handle]:
        """Register many queries in one epoch: all, or none and an error with the failed query."""
        self._components.check_open()
        components = self._components
        with pause_collector(len(queries)), limit_work(self._statement_seconds):
            requests = [RegistrationRequest.of(*parts(query)) for query in queries]
            register = partial(components.registrar.register, requests)
            definitions = components.inner_streams.make_for(register)
            return [Handle(self._components, self._explainer, d) for d in definitions]

    def register_table(self, cql: str, rows: Any, **options: Any) -> list[Handle]:
        """Register one text with parameters (`$most`) once for each row of a table, in one epoch.

        Args:
            cql: The text.
            rows: Dictionaries, or a table of pyarrow, pandas or polars: the values of the
                parameters by name, and in the column `name` the names of the queries.
            options: The options of every query.

        Raises:
            MillpondError: DATA-501, it is no table; otherwise as `register_many`.
        """
        return self.register_many(fill_table(cql, table_of_parameters(rows), options))

    def function(
        self,
        name: str | None = None,
        function: Callable[..., Any] | None = None,
        *,
        arguments: Sequence[str],
        returns: str,
        cost: float | None = None,
        max_seconds: float | None = None,
    ) -> Any:
        """Define a function that queries may call: Arrow arrays in, an Arrow array out.

        Without `function` it is a decorator, which names the function after the Python one if
        `name` is not given. Its author promises that what it gives depends on its arguments only,
        row by row: it may be called in any process, any number of times, with any rows together.

        Args:
            name: As queries call it, in any case.
            function: Takes one array per argument, NULLs included, and gives as many values.
            arguments: SQL types; what queries pass is cast to them as SQL would.
            returns: The SQL type of the result.
            cost: What a row costs, in any unit. Of two functions with a cost in one predicate the
                cheaper is called first; without it they are called in the order written.
            max_seconds: How long one call (at most 2,048 rows) may take.

        Returns:
            The definition, or as a decorator the function itself.

        Raises:
            MillpondError: CQL-208, CQL-210, CQL-221, and POND-401 when the name is that of a
                function an active query calls.
        """
        self._components.check_open()

        def define(called: Callable[..., Any]) -> FunctionDef:
            given = getattr(called, "__name__", "") if name is None else name
            return self._components.function_registry.define(
                given, called, arguments, returns, cost, max_seconds
            )

        if function is not None:
            return define(function)

        def decorate(called: Callable[..., Any]) -> Callable[..., Any]:
            define(called)
            return called

        return decorate

    def drop_function(self, name: str) -> None:
        """Drop a user-defined function that no query calls."""
        self._components.check_open()
        self._components.function_registry.drop(name)

    def query(self, name: str | int) -> Handle:
        """Return the handle of a standing query, by name or id."""
        version, text = self._components.log.version, str(name)
        is_id = text.isascii() and text.isdigit() and len(text) < 19
        if is_id and (isinstance(name, int) or version.find(text) is None):
            found = version.queries.get(int(text))
            if found is not None:
                return Handle(self._components, self._explainer, found)
        return Handle(self._components, self._explainer, self._components.registrar.find(text))

    def subscribe(
        self,
        queries: Sequence[str | int] | None = None,
        *,
        owner: str | None = None,
        tag: str | None = None,
        after: str | None = None,
        follow: bool = True,
        snapshot: bool = False,
    ) -> Iterator[FeedEvent]:
        """Yield the changes of many queries, with one cursor for all of them.

        Args:
            queries: Names or ids; None for all that have the owner and the tag.
            owner: Only queries of this owner, also those that are registered later.
            tag: Only queries that have this tag, also those that get it later.
            after: A feed's cursor; None for the first change of each query.
            follow: Whether to wait for what is to come, for ever.
            snapshot: Whether to begin with the answers instead of their past changes.

        Raises:
            MillpondError: CQL-201 for a query that is not there, POND-412 for the cursor, and
                POND-410 once the pond is closed.
        """
        names = None if queries is None else tuple(str(query) for query in queries)
        feed = self.open_feed(QuerySelection("", owner, tag, None, names), after, snapshot)
        return follow_feed(feed, self.listen, follow)

    def open_feed(
        self,
        selection: QuerySelection,
        after: str | None = None,
        snapshot: bool = False,
        admits: Callable[[QueryDef], bool] | None = None,
    ) -> Feed:
        """Begin a feed of the selected queries, which is read a page at a time.

        With `admits`, only of those queries for which it is true, now and whenever queries come.
        """
        self._components.check_open()
        return self._components.feeds.open(selection, after, snapshot, admits)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, from any thread, when there may be changes; return what ends that."""
        return self._components.subscriptions.listen(listener)

    def derived(self, name: str) -> StreamHandle:
        """Return the handle of a derived stream."""
        return StreamHandle(
            self._components, self._explainer, self._components.derivations.find(name)
        )

    def alter_stream(self, name: str, **options: Any) -> None:
        """Set `delay`, `idle_after`, `ahead`, `retain` or `overload` of a stream.

        Of a derived stream, `active=True` has it go on.

        Raises:
            MillpondError: CQL-201, CQL-214, CQL-301; POND-406, a derived stream cannot go on.
        """
        self._components.check_open()
        found = find_written_stream(self._components.log.version, name)
        if found.derived is None:
            self._components.alter_stream(found, options)
        else:
            self.derived(name).alter(**options)

    def reset_clock(self, name: str, to: Time) -> ClockReset:
        """Set the clock of a stream back: its elements after an instant become rejects.

        Raises:
            MillpondError: CQL-103, CQL-201, CQL-216; as `ClockResets.reset`.
        """
        self._components.check_open()
        found = find_written_stream(self._components.log.version, name)
        instant = to_instant(to)
        assert instant is not None
        return self._components.reset_clock(found, instant)

    def alter_system(self, **settings: Any) -> None:
        """Set settings of the pond, durably, as ALTER SYSTEM does. Raises CQL-214."""
        self._components.check_open()
        self._components.alter_system(settings)

    def ask(self, cql: str) -> Answer:
        """Answer a query once over the elements that are kept, without registering it."""
        self._components.check_open()
        with limit_work(self._statement_seconds):
            return self._components.ask_once(cql)

    def explain(self, query: str, level: str = "logical") -> str:
        """Explain a standing query, given by name, or a query, given as text."""
        found = self._components.log.version.find(query)
        if found is None and is_name(query):
            self._components.registrar.find(query)  # raises that there is none
        with limit_work(self._statement_seconds):
            explained = self._explainer.explain_object(found, level)
            return explained or self._explainer.explain_text(query, level)

    def shared_plan(self) -> str:
        """Explain what all queries share: streams, the modules elements visit, and kept state."""
        return self._explainer.explain_shared()

    def plan_graph(self, query: str | int | None = None) -> dict[str, Any]:
        """Draw what all queries share as a graph; the part that serves a query is lit."""
        chosen = None if query is None else self.query(query).definition
        return self._explainer.draw_shared(chosen)

    def query_costs(self, queries: Iterable[QueryDef] | None = None) -> list[QueryCost]:
        """List what queries cost: of matching, of answers, of operators' state; None: all."""
        return self._costs.list_costs(queries)

    def trace(
        self, stream: str, query: str | int | None = None, tuples: int = 20
    ) -> dict[str, Any]:
        """Trace the last tuples of a stream's newest batch: to which queries, by which nodes.

        Args:
            stream: The stream's name.
            query: Of this query alone it is told; of all by default.
            tuples: How many tuples, at most 100.

        Raises:
            MillpondError: CQL-201.
        """
        chosen = None if query is None else self.query(query).definition
        return trace_batch(self._components, self.entities.every(), stream, chosen, tuples)

    def history(self, span: Span = "hour") -> dict[str, Any]:
        """Tell figures of the last hour or week, as the pond sampled them."""
        return self._history.tell(span)

    # -- plans as documents --------------------------------------------------------------------

    def export_plan(self, queries: Sequence[str] | None = None) -> dict[str, Any]:
        """Export the plans by which changes are computed as a document.

        Args:
            queries: Names of followed queries and derived streams; all by default.

        Raises:
            MillpondError: CQL-201, the changes of one are not computed.
        """
        return self._plans.export(queries)

    def compare_plan(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Compare a document with the plan that runs; nothing changes.

        Returns:
            What would be other, and `base`, which stands for what the document was compared with.

        Raises:
            MillpondError: CQL-201 and CQL-214, it could not be adopted.
        """
        return self._plans.compare(document)

    def adopt_plan(
        self, document: Mapping[str, Any], by: str | None = None, base: str | None = None
    ) -> dict[str, Any]:
        """Adopt a document while queries run; return what it made other, and its number.

        No answer and no change is another one. The plans of the queries it names stay as they are
        from then on, and later queries are planned around them, until it is taken back.

        Args:
            document: The plan, whole or with the parts that are to be other.
            by: Who adopts it.
            base: As `compare_plan` gave it: nothing is adopted if something has changed since.

        Raises:
            MillpondError: as `compare_plan`; CQL-214, something has changed since `base`.
        """
        self._components.check_open()
        return self._plans.adopt(document, by, base)

    def adopted_plans(self) -> list[dict[str, Any]]:
        """List the adopted plans that can be taken back, the last one first."""
        return self._plans.list_adopted()

    def undo_plan(self, plan: int | None = None) -> dict[str, Any]:
        """Take the plan back that was adopted last.

        Args:
            plan: The number of that plan, for it to be no other; None for whichever it is.

        Raises:
            MillpondError: CQL-201, there is none; CQL-214, another plan was adopted last.
        """
        self._components.check_open()
        return self._plans.take_back(plan)

    # -- rows ----------------------------------------------------------------------------------

    def ingest(self, stream: str, rows: Any, idempotency_key: str | None = None) -> IngestReceipt:
        """Push rows; return when they are durable. They are visible after the next epoch.

        Args:
            stream: Its name.
            rows: Dictionaries, or a table of pyarrow, pandas or polars.
            idempotency_key: What the same rows are known by if they are pushed again.

        Raises:
            MillpondError: CQL-201, POND-407, POND-417, DATA-501, DATA-503, STORE-603.
        """
        self._components.check_open()
        definition = self._components.sources.find_pushed_stream(stream)
        receipt, _ = self._components.intake.push(
            definition, given_rows.from_rows(rows), idempotency_key
        )
        self._components.runtime.wake_inbox()
        return receipt

    def ingest_text(
        self, stream: str, data: bytes | str, format: str, idempotency_key: str | None = None
    ) -> IngestReceipt:
        """Push rows written as 'ndjson', 'json', 'csv' (with a header) or 'arrow' (IPC)."""
        self._components.check_open()
        definition = self._components.sources.find_pushed_stream(stream)
        if isinstance(data, str):
            data = check_unicode(data, "the text of the rows", "DATA-501").encode()
        table = row_formats.from_text(data, format, definition.schema)
        receipt, _ = self._components.intake.push(definition, table, idempotency_key)
        self._components.runtime.wake_inbox()
        return receipt

    def stage(self, stream: str, part: str, rows: Any) -> int:
        """Keep rows, durably, as a part of a batch that comes later; return how many they are.

        Args:
            stream: Its name.
            part: The part's name: a UUID, or other letters, digits, - and _. A part sent again
                under its name replaces the earlier one.
            rows: As for `ingest`.
        """
        self._components.check_open()
        return self._components.batches.stage(stream, part, rows)

    def stage_text(self, stream: str, part: str, data: bytes, format: RowFormat) -> int:
        """Keep rows written as 'ndjson', 'json', 'csv' or 'arrow' as a part of a batch."""
        self._components.check_open()
        return self._components.batches.stage_text(stream, part, data, format)

    def unstage(self, stream: str, parts: Sequence[str]) -> None:
        """Remove parts of a batch that does not come."""
        self._components.check_open()
        self._components.batches.unstage(stream, parts)

    def ingest_batch(
        self, stream: str, writer: str, batch: int | None, parts: Sequence[str]
    ) -> IngestReceipt:
        """Push parts that were staged as a batch of a writer, all or none, exactly once.

        Args:
            stream: Its name.
            writer: Who writes; batches of two writers have nothing to do with each other.
            batch: Its number, one more than that of the writer's last batch. A batch that the
                stream has already is not added again, whatever its parts are. None for a writer
                that writes once; it is remembered for a day.
            parts: The names of its parts, in the order in which their rows arrive.

        Raises:
            MillpondError: CQL-201, POND-407, POND-417, DATA-504, STORE-603.
        """
        self._components.check_open()
        return self._components.batches.push(stream, writer, batch, parts)

    def stream(
        self, name: str, frame: Any, timestamp: str | None = None, delay: float = 0.0
    ) -> StreamDef:
        """Make a Spark DataFrame, streaming or not, a stream; `delay` is in seconds.

        A streaming frame goes on where it was when this is called again with the same name after
        a restart. Any other frame is read whole when it is given; the same rows given again
        after a restart are not read twice.
        """
        self._components.check_open()
        with self._components.definitions:
            return self._components.sources.from_frame(name, frame, timestamp, delay)

    def catch_up(self, timeout: float | None = None) -> None:
        """Wait until all acknowledged rows, and all rows that sources have now, are visible.

        Raises:
            MillpondError: POND-405 when it took longer than `timeout` seconds.
        """
        self._components.check_open()
        self._components.inputs.catch_up(timeout)

    def wait_until_matched(self, timeout: float | None = None) -> None:
        """Wait as `catch_up` does, and until every kept element is matched with every query."""
        self._components.check_open()
        self._components.inputs.wait_until_matched(timeout)

    # -- looking -------------------------------------------------------------------------------

    def streams(self) -> list[StreamDef]:
        """List the streams that have a name."""
        return self._components.log.version.named_streams()

    def relations(self) -> list[RelationDef]:
        """List the relations."""
        return list(self._components.log.version.relations.values())

    def queries(self, **selection: Any) -> list[QueryDef]:
        """List the standing queries; only those with a name, owner, tag, … if some are given."""
        version = self._components.log.version
        if not selection:
            return list(version.queries.values())
        return self._components.directory.find(version, QuerySelection.of(None, selection))

    def list_queries(
        self,
        selection: QuerySelection,
        order: str = "id",
        descending: bool = False,
        after: int | None = None,
        limit: int | None = None,
    ) -> QueryListing:
        """List a page of the selected queries; see `QueryDirectory.list_page`."""
        return self._components.directory.list_page(
            self._components.log.version, selection, order, descending, after, limit
        )

    def alter_queries(self, selection: QuerySelection | Mapping[str, Any], **options: Any) -> int:
        """Change options of the selected queries in one epoch; return how many there are."""
        self._components.check_open()
        return self._components.alter_queries(QuerySelection.of_some(selection, {}), options)

    def drop_queries(
        self, selection: QuerySelection | Mapping[str, Any] | None = None, **conditions: Any
    ) -> int:
        """Drop the selected queries in one epoch; return how many they were."""
        self._components.check_open()
        return self._components.drop_queries(QuerySelection.of_some(selection, conditions))

    def followed_among(self, queries: Iterable[QueryDef]) -> list[QueryDef]:
        """Those of the queries whose changes are computed."""
        version = self._components.log.version
        return [query for query in queries if version.change_log(query.id) is not None]

    def describe_queries(self, queries: Iterable[QueryDef]) -> Iterator[dict[str, Any]]:
        """Describe each of the queries, as `describe` of its handle does."""
        return describe_queries(self._components, queries)

    @property
    def names(self) -> Names:
        """What the names of the pond stand for now."""
        return self._components.registrar.names

    def functions(self) -> list[dict[str, Any]]:
        """List the user-defined functions: signature, limits, and the cost of their calls."""
        return self._components.function_registry.describe()

    @property
    def entities(self) -> Entities:
        """The control tables: operators, queues and synopses, with their figures and settings."""
        return self._entities

    @property
    def metrics(self) -> CollectorRegistry:
        """The metrics, for Prometheus to scrape."""
        return self._metrics.registry

    @property
    def ready(self) -> bool:
        """Whether the pond accepts rows and makes them visible."""
        return self.trouble is None

    @property
    def trouble(self) -> MillpondError | None:
        """Why the pond is not ready; None while it is."""
        if self._components.closed:
            return MillpondError("POND-410", "the pond is closed")
        return self._components.trouble

    @property
    def failure(self) -> MillpondError | None:
        """Why the pond cannot become ready again and must be closed; None while it can."""
        return None if self._components.closed else self._components.failure

    def status(self) -> dict[str, Any]:
        """Describe the state of the pond and its streams, for people and monitors."""
        return describe_status(self._components)

    # -- backups -------------------------------------------------------------------------------

    def begin_backup(
        self, directory: str | Path, copy: bool = False, policy: AccessPolicy | None = None
    ) -> dict[str, Any]:
        """Begin to add a backup to a directory, as `millpond backup` does, and describe it.

        It is made in the background, one at a time. `copy` has files copied where they could be
        links; `policy` says which directories may be named, None for any.

        Raises:
            MillpondError: POND-401, another one is being made; POND-414, the policy refuses it.
        """
        self._components.check_open()
        folder = Path(directory) if policy is None else policy.find_backups(str(directory))
        return self._components.backups.begin(folder, copy)

    def backups(self) -> list[dict[str, Any]]:
        """Describe the last backups that were begun since the pond was opened, the newest first."""
        return self._components.backups.list_all()

    def backup(self, number: int) -> dict[str, Any]:
        """Describe a backup: its state, and how far it is. Raises SERVE-704 if there is none."""
        return self._components.backups.describe(number)

    def cancel_backup(self, number: int) -> dict[str, Any]:
        """End a backup that is being made, and describe it; the backups there were stay.

        Raises:
            MillpondError: SERVE-704, there is none of that number.
        """
        return self._components.backups.cancel(number)

    def close(self) -> None:
        """Stop reading sources and release the store; acknowledged rows are not lost."""
        with self._closing:
            if self._components.closed:
                return
            try:
                self._observer.stop()
                self._history.stop()
                self._components.stop()
            finally:
                if self._on_close is not None:
                    self._on_close()

    def __repr__(self) -> str:
        if self._components.closed:
            return "<Pond: closed>"
        version = self._components.log.version
        streams, relations = len(version.named_streams()), len(version.relations)
        counts = (
            count_text(streams, "stream"),
            count_text(relations, "relation"),
            count_text(len(version.queries), "query", "queries"),
        )
        state = "" if self.ready else f", not ready: {self.trouble}"
        return f"<Pond: {', '.join(counts)}{state}>"

    def __enter__(self) -> Pond:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(pond: weakref.ref[Pond]) -> None:
    """Close a pond its owner did not, before the interpreter takes things apart."""
    held = pond()
    if held is not None:
        held.close()


def _place_in_script(error: MillpondError, script: str, offset: int) -> MillpondError:
    """An error placed in a statement or its query, placed in the whole script."""
    if error.text is not None and error.span is not None and error.text != script:
        start = script.find(error.text, offset)
        if start >= 0:
            error.span = error.span.shift(start)
            error.text = script
    return error
