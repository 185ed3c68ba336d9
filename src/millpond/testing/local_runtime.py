"""A runtime in this process, without Spark: for tests that run the whole pond fast.

It reads the same sources and runs the same tasks as the Spark runtime. It has no parallelism, no
workers that die, and no streaming sources other than files and pushes. Everything it runs also runs
on Spark in the tests marked `spark`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.engine.admission.admit import Admission, admit
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.model.time import BEGINNING
from millpond.runtime.batch_tasks import BuiltSegment, build
from millpond.runtime.chunks import Chunk
from millpond.runtime.process_memory import RuntimeMemory
from millpond.runtime.protocol import (
    INBOX,
    Done,
    Job,
    Pipeline,
    Waiting,
    abandoned_if_failed,
)
from millpond.service.changes.settings import ChangeSettings
from millpond.service.ingest.sequencer import source_key
from millpond.service.pond import Pond
from millpond.state.arrow_file import FileMeta, write_arrow
from millpond.state.inbox.push_file import read_push, visible_path
from millpond.state.shared.shared_store import SharedStore

_READERS = {
    "csv": "read_csv('{path}', all_varchar = true, header = {header})",
    "json": "read_json('{path}', format = 'newline_delimited')",
    "parquet": "read_parquet('{path}')",
}


class LocalRuntime:
    """Implements `runtime.protocol.Runtime` by doing everything in the caller's thread.

    Args:
        batch_rows: The number of a file's rows in a batch (an epoch); None for one batch.
        partitions: The number of tasks that share a batch.
    """

    def __init__(self, batch_rows: int | None = None, partitions: int = 1) -> None:
        self._batch_rows = batch_rows
        self._partitions = partitions
        self._open: dict[int, StreamDef] = {}
        self._lock = threading.RLock()
        self.workers = 1
        #: Set by tests that have invocations spread.
        self.spreads = False
        #: Set by tests to what a runtime that lost its workers says.
        self.trouble: MillpondError | None = None
        self.failure: MillpondError | None = None

    def start(self, pipeline: Pipeline, store: Path) -> None:
        self._pipeline = pipeline
        self._store = store

    def wait_until_started(self) -> None:
        pass

    def check_source(self, definition: StreamDef | RelationDef) -> None:
        if isinstance(definition, StreamDef) and definition.history is not None:
            definition = definition.as_history()
        source = definition.source
        assert source is not None
        if source.format not in _READERS:
            raise MillpondError("CQL-214", f'no source "{source.format}" without Spark')
        if not _files(definition):
            raise MillpondError(
                "DATA-502", f'the source of "{definition.name}" cannot be read', hint="Check it."
            )

    def open_source(self, stream: StreamDef) -> None:
        with self._lock:
            self._open[stream.id] = stream
            self._read(stream, sheds=True)

    def close_source(self, stream_id: int) -> None:
        with self._lock:
            self._open.pop(stream_id, None)

    def read_to_end(self, stream: StreamDef) -> None:
        """Read each file's rows in order, a batch at a time; batch ids count over all files."""
        self._read(stream, sheds=False)

    def _read(self, stream: StreamDef, sheds: bool) -> None:
        source = source_key(stream)
        batch_id = 0
        turns = stream.history is not None
        if stream.history is not None:
            stream = stream.as_history()
        with self._lock:
            for number, path in enumerate(_files(stream)):
                rows = _read(stream, path)
                step = self._batch_rows or max(rows.num_rows, 1)
                for start in range(0, max(rows.num_rows, 1), step):
                    if not self._pipeline.is_committed(source, batch_id):
                        left = rows.slice(start)
                        self._commit(source, batch_id, stream, left, step, (number, start), sheds)
                    batch_id += 1
            if turns and not self._pipeline.is_committed(source, batch_id):
                plan = self._pipeline.plan(source, [stream.id])
                self._pipeline.commit(source, batch_id, plan, [], turn=True)
                self._pipeline.release(plan)
            self._pipeline.report_read(stream.id, 0.0)
            if turns:
                self._open.pop(stream.id, None)

    def _commit(
        self,
        source: str,
        batch_id: int,
        stream: StreamDef,
        left: pa.Table,
        step: int,
        at: tuple[int, int],
        sheds: bool,
    ) -> None:
        """Commit the first `step` rows of those that are left of a file."""
        rows, behind = left.slice(0, step), left.slice(step)
        waiting = Waiting(left.nbytes, behind.nbytes) if sheds else None
        plan = self._pipeline.plan(source, [stream.id], lambda: waiting)
        if stream.id in plan.streams:
            rows = _name_columns(stream, plan.streams[stream.id].schema, rows)
        share = -(-max(rows.num_rows, 1) // self._partitions)
        built: list[BuiltSegment] = []
        # Tasks may finish in any order; here the last runs first, so that tests cover that.
        for task in reversed(range(self._partitions)):
            part = rows.slice(task * share, share)
            if part.num_rows:
                with abandoned_if_failed(self._pipeline, plan):
                    built += build([Chunk(stream.id, (*at, task), part)], plan)
        self._pipeline.commit(source, batch_id, plan, built)
        self._pipeline.release(plan)

    def wake_inbox(self) -> None:
        with self._lock:
            folder = self._store / "inbox"
            numbers = sorted(self._pipeline.waiting_pushes())
            if not numbers:
                return
            plan = self._pipeline.plan(INBOX, None)

            def chunks() -> Iterator[Chunk]:
                for number in numbers:
                    pushed = read_push(visible_path(folder, number))
                    key = (pushed.number,)
                    yield Chunk(pushed.stream_id, key, pushed.table, pushed.arrived_at)

            with abandoned_if_failed(self._pipeline, plan):
                built = list(build(chunks(), plan))
            self._pipeline.commit(INBOX, 0, plan, built, numbers)
            self._pipeline.release(plan)

    def catch_up(self, streams: Sequence[StreamDef]) -> None:
        with self._lock:
            for stream in list(self._open.values()):
                self._read(stream, sheds=True)

    def run(
        self, task: Callable[[Job], Done], jobs: Sequence[Job], near: Sequence[str] = ()
    ) -> list[Done]:
        return [task(job) for job in jobs]

    def ask(
        self, task: Callable[[Job], Done], jobs: Sequence[Job], near: Sequence[str] = ()
    ) -> list[Done]:
        return [task(job) for job in jobs]

    def prefer(self, key: str) -> str:
        return ""

    def read_relation(self, relation: RelationDef, path: Path) -> FileMeta:
        tables = [relation.schema.to_arrow().empty_table()]
        for file in _files(relation):
            judge = Admission(relation.schema, None, BEGINNING, 0)
            rows = _name_columns(relation, relation.schema, _read(relation, file))
            admitted = admit(rows, judge)
            if admitted.rejects.num_rows:
                bad = admitted.rejects.to_pylist()[0]
                raise MillpondError(
                    "DATA-501",
                    f'a row of relation "{relation.name}" cannot be read',
                    detail=f"{bad['reason']}: {bad['raw']}",
                )
            tables.append(admitted.elements.select(list(relation.schema.names)))
        return write_arrow(path, pa.concat_tables(tables))

    def columns(self, frame: Any) -> list[tuple[str, str]]:
        raise MillpondError("CQL-214", "DataFrames need Spark")

    def open_frame(self, stream: StreamDef, frame: Any) -> None:
        raise MillpondError("CQL-214", "DataFrames need Spark")

    def describe(self) -> dict[str, Any]:
        return {"local": True}

    def measure_memory(self) -> RuntimeMemory:
        return RuntimeMemory({})

    def end_tasks(self) -> None:
        """Leave the tasks to end by themselves: they run in the threads that called for them."""

    def stop(self) -> None:
        with self._lock:
            self._open.clear()


def open_local(
    store: Path | str,
    clock: Callable[[], int] | None = None,
    *,
    bounded: bool = False,
    batch_rows: int | None = None,
    partitions: int = 1,
    changes: ChangeSettings | None = None,
    shared: SharedStore | str | None = None,
) -> Pond:
    """Open a pond without Spark over a store directory, or over a store that is shared."""
    runtime = LocalRuntime(batch_rows, partitions)
    return Pond(Path(store), runtime, bounded=bounded, clock=clock, changes=changes, shared=shared)


def _files(definition: StreamDef | RelationDef) -> list[Path]:
    assert definition.source is not None
    path = Path(definition.source.options["path"])
    if path.is_dir():
        return sorted(p for p in path.iterdir() if p.is_file() and p.name[0] not in "._")
    return [path] if path.exists() else []


def _read(definition: StreamDef | RelationDef, path: Path) -> pa.Table:
    source = definition.source
    assert source is not None
    header = source.options.get("header", "false")
    shown = str(path).replace("'", "''")
    sql = _READERS[source.format].format(path=shown, header=header)
    with duckdb.connect() as connection:
        return connection.sql(f"SELECT * FROM {sql}").to_arrow_table()


def _name_columns(definition: StreamDef | RelationDef, schema: Schema, rows: pa.Table) -> pa.Table:
    """Name the columns of a file without a header by their places."""
    source = definition.source
    assert source is not None
    if source.format != "csv" or source.options.get("header", "false") == "true":
        return rows
    names = [field.name for field in schema.given][: rows.num_columns]
    return rows.rename_columns([*names, *rows.column_names[len(names) :]])
