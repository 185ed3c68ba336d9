"""ALTER STREAM … SET and ADD COLUMN: changes a stream that is not derived.

A heartbeat never goes back. With another DELAY or IDLE AFTER the stream's heartbeat could be
computed as an earlier one, so the epoch that alters the stream also holds how far the heartbeat has
come. Pushes are judged by the stream as it is, so the epoch is made while none waits. What is kept,
and what gives way when too much waits, is altered at once.

A column is added by the definition alone. A batch of a source is read with the columns of its plan,
so a source goes on where it is, and what is read next has the column. Segments of before stay as
they are, and who opens one is given NULL for the columns that it lacks; merging writes them. A
query reads the columns that there were when its text was given, so no answer changes
(INV-COLUMNS-1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from millpond.catalog.objects import StreamDef
from millpond.cql.tree.statements import AddColumn
from millpond.engine.admission import heartbeat
from millpond.errors import MillpondError
from millpond.model.durations import parse_duration
from millpond.model.schema import Field, Schema
from millpond.model.time import END
from millpond.service.changes.inner_streams import InnerStreams
from millpond.service.definitions.change_fed_relations import changes_name
from millpond.service.definitions.declarations import (
    SHEDDABLE,
    WIDENABLE,
    read_columns,
    unknown_waiting_error,
)
from millpond.service.ingest.intake import Intake
from millpond.service.ingest.sequencer import Sequencer, progress_of, source_key, with_progress
from millpond.service.queries.options import check_altered_options
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version

#: How long to wait for the pushes that were taken before, in seconds.
_WAIT_SECONDS = 60.0
#: The clauses that are about the timestamps in a column.
_OF_TIMESTAMPS = ("delay", "idle_after", "ahead")


class StreamAlterations:
    """Alters streams that are not derived. The caller holds the lock of the definitions."""

    def __init__(
        self,
        log: EpochLog,
        intake: Intake,
        sequencer: Sequencer,
        inner_streams: InnerStreams,
        clock: Callable[[], int],
    ) -> None:
        self._log = log
        self._intake = intake
        self._sequencer = sequencer
        self._inner_streams = inner_streams
        self._clock = clock

    def alter(
        self, stream: StreamDef, options: Mapping[str, Any], statement: str | None = None
    ) -> StreamDef:
        """Change clauses and options of a stream, in one epoch.

        Raises:
            MillpondError: CQL-214, an option or its value; CQL-301, what a stream with a source
                does not have; CQL-201, it was dropped meanwhile; POND-405, pushes still wait.
        """
        checked = check_altered_options(options, statement)
        source = stream.source
        if "overload" in checked and source is not None and source.format not in SHEDDABLE:
            raise unknown_waiting_error(stream.name, source.format, statement or stream.text)
        if stream.timestamp_by is None:
            for name in checked:
                if name in _OF_TIMESTAMPS:
                    raise MillpondError(
                        "CQL-214",
                        f'stream "{stream.name}" has no TIMESTAMP BY, and so no {name}',
                        detail="An element's timestamp is its arrival: none is late or ahead.",
                        hint="Leave it out.",
                        text=statement,
                    )
        clauses = _read_clauses(checked)
        is_timing = bool(checked.keys() & set(_OF_TIMESTAMPS))

        def change(version: Version) -> EpochChange:
            before = version.streams.get(stream.id)
            if before is None:
                raise StaleChange(f'stream "{stream.name}" is not there any more')
            altered = replace(before, **clauses)
            clock = version.clock(stream.id)
            progress, now = progress_of(clock), max(self._clock(), clock.arrived_at or 0)
            clocks = {}
            attended = self._sequencer.attendance(before)
            reached = heartbeat.current_heartbeat(progress, before, now, attended)
            if is_timing and reached > progress.heartbeat:
                held = heartbeat.after_heartbeat(
                    progress, before, progress.heartbeat, now, attended
                )
                clocks[stream.id] = with_progress(clock, held)
            inner = self._inner_streams.find_retained_otherwise(version, altered)
            return EpochChange(kind="alter", replace=[altered, *inner], clocks=clocks)

        with ExitStack() as locks:
            if is_timing:
                locks.enter_context(self._intake.hold(stream, _WAIT_SECONDS))
                locks.enter_context(self._sequencer.stream_lock(source_key(stream)))
            try:
                version = self._log.commit(change)
            except StaleChange as error:
                raise MillpondError("CQL-201", f'no stream "{stream.name}" any more') from error
            if is_timing:
                self._intake.forget_progress(stream.id)
        return version.streams[stream.id]

    def add_column(self, statement: AddColumn, stream: StreamDef) -> StreamDef:
        """Add a column, which is NULL in every element of before.

        The caller also holds the registrar's lock: a query is registered before, or after.

        Raises:
            MillpondError: CQL-103, CQL-209 and CQL-210 for the column; CQL-301 for what it cannot
                be; CQL-201, the stream was dropped meanwhile; POND-405, pushes still wait.
        """
        (column,) = read_columns([statement.column], statement.text).fields
        _check_added(statement, stream, column)

        def change(version: Version) -> EpochChange:
            before = version.streams.get(stream.id)
            if before is None:
                raise StaleChange(f'stream "{stream.name}" is not there any more')
            if before.schema.find(column.name) is not None:
                raise _taken_error(statement)
            added = replace(column, added=version.epoch + 1)
            schema = Schema((*before.schema.fields, added))
            return EpochChange(kind="alter", replace=[replace(before, schema=schema)])

        with self._intake.hold(stream, _WAIT_SECONDS):
            try:
                version = self._log.commit(change)
            except StaleChange as error:
                raise MillpondError("CQL-201", f'no stream "{stream.name}" any more') from error
        return version.streams[stream.id]


def _check_added(statement: AddColumn, stream: StreamDef, column: Field) -> None:
    if stream.schema.find(column.name) is not None:
        raise _taken_error(statement)
    if why := _find_hindrance(stream):
        raise statement.error(
            "CQL-301",
            f'adding a column to stream "{stream.name}" is not available, since it reads {why}',
            detail="Streams get columns that are pushed to, or read csv, json, parquet, orc files,"
            " Delta tables, or JSON, CSV or Avro from Kafka; one that begins with a history when it"
            " is read.",
            hint="Wait until the history is read (DESCRIBE says so)."
            if stream.reads_history
            else "Create a stream with the column over the source; queries can read both.",
        )
    if column.computed is not None:
        raise statement.error(
            "CQL-301",
            "adding a computed column is not available",
            hint="Write the expression in queries, or derive a stream that has it.",
        )
    if column.required:
        raise statement.error(
            "CQL-301",
            "adding a column that is NOT NULL is not available",
            detail="The elements of before have NULL there.",
            hint="Leave out NOT NULL.",
        )


def _find_hindrance(stream: StreamDef) -> str | None:
    """What a stream reads that gives it no further column; None if it can get one."""
    source = stream.source
    if stream.reads_history:
        return f"a history ({stream.source_name}) and has not come to its end"
    if source is None:
        return None
    if stream.name.endswith(changes_name("")):
        return "the changes of a relation"
    if source.format not in WIDENABLE:
        return f"a source of format {source.format}"
    if source.format == "kafka" and source.options["format"].lower() == "raw":
        return "raw values from Kafka"
    return None


def _taken_error(statement: AddColumn) -> MillpondError:
    return statement.error(
        "CQL-209",
        f'the stream "{statement.name}" has a column "{statement.column.name}" already',
        detail="Names are compared without regard to case.",
        hint="Give it another name, or write ADD COLUMN IF NOT EXISTS.",
    )


def _read_clauses(checked: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stream's definition that options set."""
    fields: dict[str, Any] = {}
    for name, value in checked.items():
        match name:
            case "overload":
                fields["overload"] = value
            case "delay":
                fields["delay"] = parse_duration(value)
            case "idle_after":
                fields["idle_after"] = None if value == "never" else parse_duration(value)
            case "ahead":
                fields["ahead"] = END if value == "unbounded" else parse_duration(value)
            case "retain":
                rows = int(value.split()[0]) if value.endswith(" rows") else None
                plain = rows is None and value != "everything"
                fields["retain"] = parse_duration(value) if plain else None
                fields["retain_rows"] = rows
    return fields
