"""Sources: creates and drops streams and relations, and opens and reads their sources.

A stream or relation exists once the catalog's epoch is committed. Its source is opened after that;
a source that cannot be opened stops its own stream only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.cql import parse_statement
from millpond.cql.tree import statements
from millpond.errors import MillpondError
from millpond.model import time
from millpond.model.duckdb_words import quote_name
from millpond.model.schema import Field, Schema, canonical_type
from millpond.model.unicode_text import check_unicode
from millpond.planner.bind.bound_query import BoundQuery
from millpond.runtime.protocol import Runtime
from millpond.service.changes.advancer import Advancer
from millpond.service.definitions.change_fed_relations import changes_name
from millpond.service.definitions.declarations import stream_definition
from millpond.service.events import Events
from millpond.service.ingest.floors import ClockReading
from millpond.service.ingest.relations import Relations
from millpond.service.ingest.sequencer import Sequencer
from millpond.service.queries.registration import Registrar
from millpond.state.arrow_file import FileMeta
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.epoch_log import EpochLog
from millpond.state.store import new_path
from millpond.state.version import Version


class Sources:
    """The streams and relations of a pond, and the sources they read."""

    def __init__(
        self,
        store: Path,
        log: EpochLog,
        runtime: Runtime,
        sequencer: Sequencer,
        advancer: Advancer,
        registrar: Registrar,
        relations: Relations,
        present: Callable[[], int],
        events: Events,
        *,
        bounded: bool,
    ) -> None:
        self._store = store
        self._log = log
        self._runtime = runtime
        self._sequencer = sequencer
        self._advancer = advancer
        self._registrar = registrar
        self._relations = relations
        self._current_instant = present
        self._bounded = bounded
        self._events = events

    # -- streams and relations come and go -----------------------------------------------------

    def create_stream(self, definition: StreamDef) -> None:
        """Commit a stream and open its source.

        Raises:
            MillpondError: the source's path or options are wrong; then there is no stream.
        """
        if definition.is_read_from_outside:
            self._runtime.check_source(definition)
        self._log.commit(EpochChange(kind="create", add=[definition]))
        if not self._bounded:
            self.open(definition)

    def create_view(self, name: str, bound: BoundQuery, statement: str) -> RelationDef:
        """Commit a derived relation: a name for a query."""
        # What it reads must still be there when it is.
        with self._registrar.lock:
            bound = self._registrar.bind(bound.text)
            view = RelationDef(
                self._log.next_id(),
                name,
                bound.output,
                text=statement,
                view=bound.text,
                text_epoch=self._log.version.epoch,
            )
            self._log.commit(EpochChange(kind="create", add=[view]))
        return view

    def create_fed(self, changes: StreamDef, relation: RelationDef) -> None:
        """Commit a relation that is fed by changes, with the stream of its change records."""
        if changes.source is not None:
            self._runtime.check_source(changes)
        self._log.commit(EpochChange(kind="create", add=[changes, relation]))
        if not self._bounded:
            self.open(changes)

    def create_relation(self, definition: RelationDef) -> int:
        """Commit a relation and, if it has a source, its rows; return how many."""
        file: FileMeta | None = None
        if definition.source is not None:
            self._runtime.check_source(definition)
            path = new_path(self._store, "relations")
            file = self._runtime.read_relation(definition, path)
        if file is None:
            self._log.commit(EpochChange(kind="create", add=[definition]))
            return 0
        try:
            return self._relations.create(definition, file, self._current_instant())
        finally:
            file.path.unlink(missing_ok=True)

    def records_of(self, definition: StreamDef | RelationDef) -> StreamDef | None:
        """The stream of the change records a relation is fed by; None if it is fed by none."""
        if isinstance(definition, StreamDef) or definition.view is None:
            return None
        found = self._log.version.find(changes_name(definition.name))
        fed = isinstance(found, StreamDef) and found.text == definition.text
        return found if fed and isinstance(found, StreamDef) else None

    def drop(self, definition: StreamDef | RelationDef) -> None:
        """Close its source and commit the drop, with the stream it is fed by, if any."""
        records = self.records_of(definition)
        dropped = [definition] if records is None else [definition, records]
        for stream in dropped:
            if isinstance(stream, StreamDef) and stream.is_read_from_outside:
                self._runtime.close_source(stream.id)
        self._log.commit(EpochChange(kind="drop", drop=[d.id for d in dropped]))
        self._events.definitions_changed()

    def from_frame(self, name: str, frame: Any, timestamp: str | None, delay: float) -> StreamDef:
        """The stream of a Spark DataFrame, created unless it exists; see `Pond.stream`."""
        schema = Schema(
            tuple(Field(n, _column_type(n, t)) for n, t in self._runtime.columns(frame))
        )
        found = self._log.version.find(check_unicode(name, "the name", "CQL-102"))
        if isinstance(found, StreamDef):
            source = found.source
            if found.schema != schema or source is None or source.format != "dataframe":
                raise MillpondError(
                    "CQL-208",
                    f'the name "{name}" is taken by another stream',
                    hint="Choose another name, or pass a frame with the stream's columns.",
                )
            definition = found
        else:
            columns = ", ".join(f"{quote_name(f.name)} {f.type}" for f in schema.fields)
            by = f" TIMESTAMP BY {quote_name(timestamp)}" if timestamp else ""
            late = f" DELAY INTERVAL {round(delay * 1e6)} MICROSECONDS" if delay else ""
            # A frame that does not stream is bounded: no wrong date in it can end the stream.
            unlimited = timestamp and not getattr(frame, "isStreaming", True)
            ahead = " AHEAD UNBOUNDED" if unlimited else ""
            text = f"CREATE STREAM {quote_name(name)} ({columns}){by}{late}{ahead} USING dataframe"
            parsed = parse_statement(text)
            assert isinstance(parsed, statements.CreateStream)
            definition = stream_definition(parsed, self._log.next_id(), self._log.version)
            self._log.commit(EpochChange(kind="create", add=[definition]))
        self._runtime.open_frame(definition, frame)
        return definition

    # -- sources -------------------------------------------------------------------------------

    def open(self, stream: StreamDef) -> None:
        """Begin or go on to read a stream's source; a client opens its DataFrame itself."""
        if not self._is_to_read(stream):
            return
        try:
            self._runtime.open_source(stream)
        except MillpondError as error:
            self._sequencer.report_stopped(stream.id, error)

    def _is_to_read(self, stream: StreamDef) -> bool:
        """Whether a stream has a source, or a history, that is not read to its end."""
        if self._log.version.clock(stream.id).ended:
            return False
        if stream.source is None:
            return stream.reads_history
        return stream.source.format != "dataframe"

    def read_to_end(self) -> None:
        """Read every bounded source that has not ended to its end."""
        for stream in list(self._log.version.streams.values()):
            live = stream.source
            if not self._is_to_read(stream) or (live is not None and live.format == "rate"):
                continue
            self._runtime.read_to_end(stream)
            if live is not None:
                self._sequencer.end(stream)
            rows = self._log.version.clock(stream.id).next_seq
            self._events.source_read(stream, rows)

    def find_pushed_stream(self, name: str) -> StreamDef:
        """The stream of a name that rows are pushed to.

        Raises:
            MillpondError: CQL-201, there is none.
        """
        found = self._log.version.find(name)
        if isinstance(found, StreamDef) and not found.is_pseudo:
            return found
        raise MillpondError(
            "CQL-201",
            f'no stream "{name}"',
            detail="Rows are pushed to streams.",
            hint="SHOW STREAMS lists them; CREATE STREAM makes one.",
        )

    # -- how they are --------------------------------------------------------------------------

    def trouble(self, stream: StreamDef) -> Exception | None:
        """Why a stream has stopped, if it has."""
        return self._sequencer.troubles.get(stream.id) or self._advancer.trouble(stream)

    def row(self, version: Version, stream: StreamDef, reading: ClockReading) -> tuple[object, ...]:
        """A line of SHOW STREAMS; `moment` was captured before the version was."""
        clock = version.clock(stream.id)
        reached = self._sequencer.heartbeat(version, stream, reading)
        return (
            stream.name,
            stream.timestamp_by or ("system" if stream.on_system_time else "derived"),
            version.count_accepted(stream),
            clock.rejected,
            time.format_instant(reached),
            _source(stream),
            self._state(version, stream),
        )

    def describe(
        self, version: Version, stream: StreamDef, reading: ClockReading
    ) -> dict[str, Any]:
        """A stream as probes see it; `moment` was captured before the version was."""
        clock = version.clock(stream.id)
        trouble = self.trouble(stream)
        reached = self._sequencer.heartbeat(version, stream, reading)
        segments = version.segments(stream.id)
        return {
            "name": stream.name,
            "rows": version.count_accepted(stream),
            "rejected": clock.rejected,
            "kept": sum(s.rows for s in segments),
            "heartbeat": None if reached <= time.BEGINNING else time.format_instant(reached),
            "segments": len(segments),
            "slots": version.slot_count(stream.id),
            "state": self._state(version, stream),
            "reason": str(trouble) if trouble else None,
        }

    def _state(self, version: Version, stream: StreamDef) -> str:
        if self.trouble(stream) is not None:
            return "stopped"
        held_up_by = self._advancer.find_blocker(version, stream)
        if held_up_by is not None:
            return f"waits for {held_up_by.name}"
        if stream.reads_history:
            return "reads its history"
        return "ended" if version.clock(stream.id).ended else "running"


def _column_type(name: str, type: str) -> str:
    found = canonical_type(type)
    if found is None:
        raise MillpondError(
            "CQL-210",
            f'the frame\'s column "{name}" has a type a stream cannot have: {type}',
            hint="Cast it, or leave it out: frame.drop(…).",
        )
    return found


def _source(stream: StreamDef) -> str:
    if stream.derived is not None:
        return "query"
    return stream.source_name or "statements"
