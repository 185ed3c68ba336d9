"""The pond: everything a client can do, in one object.

Every way in (Python, command line, HTTP, console) goes through a `Pond`. What works inside it is in
`works.py`. All methods may be called from any thread.
"""

from __future__ import annotations

import atexit
import threading
import time as clock_time
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from millpond.catalog.objects import FunctionDef, QueryDef, RelationDef, StreamDef
from millpond.cql import parse_script
from millpond.errors import MillpondError
from millpond.runtime.protocol import Runtime
from millpond.service.changes.settings import ChangeSettings
from millpond.service.components import Components, ProgressListener
from millpond.service.handles import Handle, StreamHandle
from millpond.service.ingest import row_formats
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.queries.prepared import stream_valued_error
from millpond.service.queries.registration import Registration, Request, parts
from millpond.service.results import Answer, IngestReceipt, StatementResult
from millpond.service.statements.executor import Executor


class Pond(Components):
    """A running data stream management system over one store."""

    def __init__(
        self,
        directory: Path,
        runtime: Runtime,
        *,
        bounded: bool = False,
        clock: Callable[[], int] | None = None,
        progress: ProgressListener | None = None,
        on_close: Callable[[], None] | None = None,
        function_seconds: float | None = None,
        joins: JoinSettings | None = None,
        changes: ChangeSettings | None = None,
    ) -> None:
        """Open the store and start the runtime over it.

        Args:
            directory: The store's; created if it is not there.
            runtime: Where sources are read and tasks run.
            bounded: File sources are finite: they are read to their end before the first answer
                or when told to (`millpond run`), instead of being watched for more.
            clock: Microseconds since 1970 UTC.
            progress: Told of reading: {"stream", "rows", "done"}.
            on_close: Called last when the pond is closed.
            function_seconds: How long one call of a user-defined function may take that does not
                say so itself.
            joins: The routing policy, the shards of SteMs, and what a join may find.
            changes: How changes are computed where a query does not say.

        Raises:
            MillpondError: STORE-601 to STORE-604.
        """
        super().__init__(
            directory,
            runtime,
            bounded=bounded,
            clock=clock,
            progress=progress,
            function_seconds=function_seconds,
            joins=joins,
            changes=changes,
        )
        #: Held while streams, relations and functions come and go.
        self.definitions = threading.RLock()
        self._on_close = on_close
        self._closed = False
        self.start()
        atexit.register(_close, weakref.ref(self))

    # -- statements ----------------------------------------------------------------------------

    def execute(self, text: str) -> list[StatementResult]:
        """Run a script's statements in order.

        Raises:
            MillpondError: the first statement that failed; those before it have taken effect.
        """
        return list(self.run(text))

    def run(self, text: str) -> Iterable[StatementResult]:
        """As `execute`, giving each result as soon as it is there."""
        self._check_open()
        parsed = parse_script(text)
        executor = Executor(self)
        for statement in parsed:
            try:
                yield executor.execute(statement)
            except MillpondError as error:
                raise _place_in_script(error, text, statement.offset) from error

    def register(self, cql: str, name: str | None = None, **options: Any) -> Handle:
        """Register a standing query; it is answered over everything kept and to come.

        `cql` is a query, or a whole CREATE QUERY statement.
        """
        return self.register_many([(cql, name, options)])[0]

    def register_many(self, queries: Sequence[Registration]) -> list[Handle]:
        """Register many queries in one epoch: all of them, or none and an error that says which."""
        self._check_open()
        requests = [Request.of(*parts(query)) for query in queries]
        definitions = self.registrar.register(requests)
        return [Handle(self, d) for d in definitions]

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
        self._check_open()

        def define(called: Callable[..., Any]) -> FunctionDef:
            given = getattr(called, "__name__", "") if name is None else name
            return self.function_registry.define(
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
        self._check_open()
        self.function_registry.drop(name)

    def query(self, name: str | int) -> Handle:
        """The handle of a standing query, by name or id."""
        version, text = self.log.version, str(name)
        is_id = text.isascii() and text.isdigit() and len(text) < 19
        if is_id and (isinstance(name, int) or version.find(text) is None):
            found = version.queries.get(int(text))
            if found is not None:
                return Handle(self, found)
        return Handle(self, self.registrar.find(text))

    def derived(self, name: str) -> StreamHandle:
        """The handle of a derived stream."""
        return StreamHandle(self, self.derivations.find(name))

    def ask(self, cql: str) -> Answer:
        """The answer to a query asked once, over what is kept."""
        self._check_open()
        self.await_inputs(cql)
        return self.ask_text(cql)

    def explain(self, query: str, level: str = "logical") -> str:
        """A plan, of a standing query by its name or of a query's text."""
        found = self.log.version.find(query)
        return self.explainer.of(found, level) or self.explainer.of_text(query, level)

    def shared_plan(self) -> str:
        """What all queries share: streams, the modules their elements pass, what is kept."""
        return self.explainer.of_all()

    # -- rows ----------------------------------------------------------------------------------

    def ingest(self, stream: str, rows: Any, idempotency_key: str | None = None) -> IngestReceipt:
        """Push rows; returns once they are durable. They are visible after the next epoch.

        Args:
            stream: Its name.
            rows: Dictionaries, or a table of pyarrow, pandas or polars.
            idempotency_key: What the same rows are known by if they are pushed again.

        Raises:
            MillpondError: CQL-201, POND-407, DATA-501, DATA-503, STORE-603.
        """
        self._check_open()
        definition = self.sources.find_pushed_stream(stream)
        receipt, _ = self.intake.push(definition, row_formats.from_rows(rows), idempotency_key)
        self.runtime.wake_inbox()
        return receipt

    def ingest_text(
        self, stream: str, data: bytes | str, format: str, idempotency_key: str | None = None
    ) -> IngestReceipt:
        """Push rows written as 'ndjson', 'csv' (with a header) or 'arrow' (an IPC stream)."""
        self._check_open()
        definition = self.sources.find_pushed_stream(stream)
        written = data.encode() if isinstance(data, str) else data
        table = row_formats.from_text(written, format, definition.schema)
        receipt, _ = self.intake.push(definition, table, idempotency_key)
        self.runtime.wake_inbox()
        return receipt

    def stream(
        self, name: str, frame: Any, timestamp: str | None = None, delay: float = 0.0
    ) -> StreamDef:
        """Make a Spark DataFrame, streaming or not, a stream; `delay` is in seconds.

        A streaming frame goes on where it was when this is called again with the same name after
        a restart. Any other frame is read whole when it is given; the same rows given again
        after a restart are not read twice.
        """
        self._check_open()
        with self.definitions:
            return self.sources.from_frame(name, frame, timestamp, delay)

    def catch_up(self, timeout: float | None = None) -> None:
        """Return when everything acknowledged, and everything sources hold now, is visible.

        Raises:
            MillpondError: POND-405 when it took longer than `timeout` seconds.
        """
        self._check_open()
        if not self.intake.wait(self.intake.last_number(), timeout):
            raise MillpondError("POND-405", "catching up took too long")
        if self.bounded:
            self.sources.read_to_end()
        else:
            version = self.log.version
            sourced = [s for s in version.streams.values() if s.source is not None]
            self.runtime.catch_up([s for s in sourced if not version.clock(s.id).ended])
        if not self.advancer.catch_up(self.derivations.list_streams(self.log.version), timeout):
            raise MillpondError("POND-405", "catching up took too long")

    def wait_until_matched(self, timeout: float | None = None) -> None:
        """As `catch_up`, and until every kept element is matched against every query."""
        self.catch_up(timeout)
        if not self.maintenance.wait_until_idle(timeout) or not self.refresher.wait_until_idle(
            timeout
        ):
            raise MillpondError("POND-405", "settling took too long")

    # -- looking -------------------------------------------------------------------------------

    def streams(self) -> list[StreamDef]:
        return self.log.version.named_streams()

    def relations(self) -> list[RelationDef]:
        return list(self.log.version.relations.values())

    def queries(self) -> list[QueryDef]:
        return list(self.log.version.queries.values())

    def functions(self) -> list[dict[str, Any]]:
        """The user-defined functions: signature, limits, and what their calls have cost."""
        return self.function_registry.describe()

    @property
    def ready(self) -> bool:
        """Whether the pond takes requests."""
        return not self._closed

    def status(self) -> dict[str, Any]:
        """What runs and how it is, for people and probes."""
        reading = self.floors.capture()
        version = self.log.version
        return {
            "epoch": version.epoch,
            "queries": len(version.queries),
            "followed": len(version.streams) - len(version.named_streams()),
            "relations": len(version.relations),
            "streams": [
                self.sources.describe(version, stream, reading)
                for stream in version.named_streams()
            ],
            "uptime_s": (reading.now - self.started_at) / 1e6,
            "problems": [p.to_json()["error"] for p in self.problems()] + self._list_stopped(),
            "runtime": self.runtime.describe(),
        }

    def _list_stopped(self) -> list[dict[str, Any]]:
        """Which streams stand still, and why."""
        found = []
        for stream in self.log.version.named_streams():
            reason = self.sources.trouble(stream)
            if isinstance(reason, MillpondError):
                error = reason.to_json()["error"]
                message = f'stream "{stream.name}" stands still: {error["message"]}'
                found.append({**error, "message": message})
        for query in self.log.version.queries.values():
            log = self.log.version.change_log(query.id)
            reason = self.sources.trouble(log) if log is not None else None
            if isinstance(reason, MillpondError):
                error = reason.to_json()["error"]
                message = f'changes of query "{query.name}" stand still: {error["message"]}'
                found.append({**error, "message": message})
        return found

    def close(self) -> None:
        """Stop reading and release the store. What was acknowledged is kept."""
        if self._closed:
            return
        self._closed = True
        try:
            self.stop()
        finally:
            if self._on_close is not None:
                self._on_close()

    def __enter__(self) -> Pond:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- for the statements and handles --------------------------------------------------------

    def invoke(self, definition: QueryDef, at: int | None) -> Answer:
        """R(τ) of a standing query."""
        self._check_open()
        started = clock_time.perf_counter()
        prepared = self.registrar.prepare(definition)
        if prepared.bound.to_stream is not None:
            raise stream_valued_error(prepared.bound, f"FETCH {definition.name}")
        try:
            answer = self.invoker.invoke(prepared, at)
        except MillpondError as error:
            self.handle_function_failure(definition, error)
            raise
        self.refresher.count_invocation(definition)
        self.meters.count_invocation(clock_time.perf_counter() - started)
        return answer

    def ask_text(self, text: str) -> Answer:
        return self.invoker.invoke(self.registrar.prepare_once(text))

    # -- inside --------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise MillpondError(
                "POND-410", "the pond is closed", hint="Open the store again with millpond.open()."
            )


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
