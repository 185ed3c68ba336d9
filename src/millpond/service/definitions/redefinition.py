"""Gives a query another definition: CREATE OR REPLACE QUERY, and other values of parameters.

A query that nobody follows is replaced by its registrar. The changes of a followed query stay what
they were up to a mark, and from the mark on they add up to the new definition's answer: the first
changes behind it are the difference between the two definitions' answers at the last instant up to
which the changes were complete. Definition, mark, difference and position are one epoch, so a crash
leaves the query as it was or as it is to be.

INV-REDEFINITION-1: at every instant from the mark's on, the changes behind the mark, added to the
old answer at the instant before it (to nothing, if the columns changed), are the new answer.

INV-REDEFINITION-2: while the difference is made, nobody delivers changes of the query (the
advancer's round is held), and no relation that it was computed from is told of an instant up to it
(else it is computed again).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.catalog.objects import DefinitionMark, Derived, QueryDef, StreamDef
from millpond.engine.dataflow.net_changes import join_changes
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, LAST, format_instant
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.plan import Plan
from millpond.runtime.files.log_files import write_log
from millpond.service.answers.invocation import Invoker
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.derivation import find_start
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.giving_way.reducing import reduction_of
from millpond.service.changes.looks import step_length
from millpond.service.ingest.floors import FloorsInFlight
from millpond.service.ingest.relations import Relations
from millpond.service.ingest.segment_refs import segment_ref
from millpond.service.queries.options import static_reduction
from millpond.service.queries.prepared import PreparedQuery, leaf_factors, prepare, stream_of
from millpond.service.queries.reductions import reduce_changes
from millpond.service.queries.registration import LogRevision, Registrar
from millpond.service.queries.registration_request import RegistrationRequest
from millpond.service.queries.shared_changes import leave_shared_log
from millpond.state.epoch.epoch_change import StaleChange
from millpond.state.epoch_log import EpochLog
from millpond.state.version import SegmentRef, Version

#: How often the difference is made again because a relation was updated meanwhile.
_ATTEMPTS = 5
#: How long to wait for changes that are on their way, in seconds.
_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class _Definition:
    """A definition of a query, with what is needed to compute its answer and its changes."""

    query: QueryDef
    bound: BoundQuery
    plan: Plan
    prepared: PreparedQuery

    @property
    def columns(self) -> pa.Schema:
        """The columns of its answer, as its changes have them."""
        return pa.schema(list(self.plan.schema)[2:])


class Redefinitions:
    """Gives queries other definitions; safe to use from any thread."""

    def __init__(
        self,
        store: Path,
        log: EpochLog,
        registrar: Registrar,
        derivations: Derivations,
        advancer: Advancer,
        invoker: Invoker,
        relations: Relations,
        floors: FloorsInFlight,
    ) -> None:
        self._store = store
        self._log = log
        self._registrar = registrar
        self._derivations = derivations
        self._advancer = advancer
        self._invoker = invoker
        self._relations = relations
        self._floors = floors

    def replace(self, request: RegistrationRequest) -> QueryDef | None:
        """Give a query another text and options; it keeps its id. None: there is no such query.

        Raises:
            MillpondError: as `Registrar.register`; POND-401, its changes cannot go on as those of
                the new definition.
        """
        found = self._log.version.find(request.name or "")
        log = self._log.version.change_log(found.id) if isinstance(found, QueryDef) else None
        if log is not None:
            self._advancer.catch_up([log], _WAIT_SECONDS, expired=True)
        else:
            with suppress(StaleChange):  # somebody follows it now
                return self._registrar.replace(request, _refuse_revision)
        for _ in range(_ATTEMPTS):
            with suppress(StaleChange):
                return self._replace_followed(request)
        raise self._refuse(
            request, "What its answer is computed from changes all the time.", "Try again."
        )

    def _replace_followed(self, request: RegistrationRequest) -> QueryDef | None:
        """Replace a query as `replace`. Raises StaleChange where that is to be tried again."""
        written: list[Path] = []

        def revise(old: QueryDef, new: QueryDef, version: Version) -> LogRevision:
            return self._revise(old, new, version, request, written)

        try:
            with self._advancer.round:
                replaced = self._registrar.replace(request, revise)
                log = self._log.version.change_log(replaced.id) if replaced is not None else None
                if log is not None:
                    self._advancer.begin_anew(log.id)
        except BaseException:
            for path in written if self._log.is_decided else ():
                path.unlink(missing_ok=True)
            raise
        return replaced

    def alter_parameters(
        self, definition: QueryDef, constants: Mapping[str, str], options: Mapping[str, Any]
    ) -> QueryDef:
        """Give a query other values for its parameters, and options, as `replace` does.

        Args:
            definition: The query.
            constants: The new values, as constants of CQL; other parameters keep theirs.
            options: The options.

        Raises:
            MillpondError: as `replace`; CQL-103, it has no such parameter.
        """
        with self._advancer.round, self._registrar.lock:
            request = self._registrar.request_parameters(definition, constants, options)
            current = self._registrar.find(definition.name)
            if request.text == current.text:
                return self._registrar.alter(current, options) if options else current
        replaced = self.replace(request)
        if replaced is None:
            raise MillpondError("CQL-201", f'no query "{definition.name}" any more')
        return replaced

    # -- the changes -----------------------------------------------------------------------------

    def _revise(
        self,
        old: QueryDef,
        new: QueryDef,
        version: Version,
        request: RegistrationRequest,
        written: list[Path],
    ) -> LogRevision:
        """How the change log of a query goes on with another definition.

        Args:
            old: The query as it is.
            new: The query as it is to be.
            version: The current version; the registrar's lock and the advancer's round are held.
            request: What is asked for.
            written: Gets the paths of the files that are written.
        """
        log = version.change_log(old.id)
        assert log is not None
        assert log.derived is not None
        before = self._define(version, old, request)
        after = self._define(version, new, request)
        self._check(version, before, after, request)
        upto = self._advancer.complete_upto(version, log)
        clock = version.clock(log.id)
        if upto < LAST:  # what comes after it, nothing but updates of relations brings
            at = upto + 1
        else:
            at = upto = upto + 1
        reading = self._floors.capture()
        final = self._derivations.final_instant(version, reading, after.bound)
        has_begun = clock.next_seq > 0 or (
            BEGINNING <= upto <= self._derivations.final_instant(version, reading, before.bound)
        )
        if not has_begun:  # nobody was given anything: the new definition begins by itself
            start = find_start(version, after.bound, after.plan, min(upto, final))
            return self._put(version, log, new, after, (), start, ())
        # What a relation is told of an instant that counts as delivered is delivered later.
        if after.bound.streams and final < min(upto, LAST):
            raise self._refuse(
                request,
                f"The changes are complete up to {format_instant(upto)}, and the new query's "
                f"streams up to {format_instant(final)} only.",
                "Try again when they are as far (SHOW STREAMS; HEARTBEAT or IDLE AFTER help), or "
                "register the new query under another name.",
            )
        if find_start(version, after.bound, after.plan, upto) > upto:
            raise self._refuse(
                request,
                f"The new query reaches further back from {format_instant(upto)} than its streams "
                "are kept.",
                "Shorten its windows, or register the new query under another name.",
            )
        parts = [] if before.bound.to_stream else self._find_difference(before, after, upto, at)
        for id in _read_relations(before.plan, after.plan, version):
            if self._relations.was_told(self._log.version, id, version.epoch, upto):
                raise StaleChange("a relation was updated meanwhile")
        numbers = [clock.next_seq]
        segments: list[SegmentRef] = []
        for part in parts:
            for built in write_log(str(self._store), log.id, part):
                written.append(built.file.path)
                segments.append(segment_ref(built, ((0, numbers[-1]),)))
                numbers.append(numbers[-1] + built.file.rows)
        is_other = before.columns != after.columns
        leaving = parts[0].num_rows if is_other and parts else 0
        mark = DefinitionMark(clock.next_seq + leaving, numbers[-1], at, new.text)
        return self._put(version, log, new, after, (mark,), upto, segments)

    def _put(
        self,
        version: Version,
        log: StreamDef,
        new: QueryDef,
        after: _Definition,
        marks: tuple[DefinitionMark, ...],
        position: int,
        segments: Sequence[SegmentRef],
    ) -> LogRevision:
        """The change log behind the marks, with the segments of the difference."""
        clock = version.clock(log.id)
        if log.shared_log is not None:
            log, clock = leave_shared_log(version, log)
        assert log.derived is not None
        streams = [stream_of(version, leaf) for leaf in after.bound.streams]
        read = tuple(sorted({leaf.stream_id for leaf in version.leaves(new.id)}))
        known_by = log.derived.known_by
        if known_by is None and read != tuple(sorted({s.id for s in streams})):
            known_by = read
        oldest = min((s.seq_runs[0][1] for s in version.segments(log.id)), default=0)
        kept = [m for m in log.derived.marks if m.ends >= oldest or log.derived.shared_log]
        derived = Derived(
            new.text,
            new.id,
            all(stream.on_system_time for stream in streams),
            log.derived.shared_log,
            log.derived.apart_from,
            periods=log.derived.periods,
            marks=(*kept, *marks),
            known_by=known_by,
            text_epoch=new.text_epoch or 0,
        )
        rows = sum(segment.rows for segment in segments)
        clock = replace(
            clock,
            heartbeat=position + 1,
            relations_epoch=version.epoch,
            next_seq=clock.next_seq + rows,
            high=marks[-1].at if rows else clock.high,
        )
        if not marks:
            clock = replace(clock, kept_from=max(position + 1, BEGINNING))
        return LogRevision(
            replace(log, schema=after.bound.output, derived=derived), clock, tuple(segments)
        )

    def _define(
        self, version: Version, query: QueryDef, request: RegistrationRequest
    ) -> _Definition:
        try:
            bound = self._registrar.bind_registered(query.text, query.text_epoch)
        except MillpondError as error:
            raise self._refuse(
                request,
                f"The query as it is cannot be evaluated any more: {error.code}: {error.primary}.",
                "DROP it first, or register the new query under another name.",
            ) from error
        streams = [stream_of(version, leaf) for leaf in bound.streams]
        factors = [leaf_factors(f, s) for f, s in zip(bound.streams, streams, strict=True)]
        prepared = prepare(query, bound, factors, [None] * len(factors), None)
        plan = self._derivations.plan_query(version, bound, query)
        return _Definition(query, bound, plan, replace(prepared, id=None, kept=False))

    def _check(
        self,
        version: Version,
        before: _Definition,
        after: _Definition,
        request: RegistrationRequest,
    ) -> None:
        """Raise POND-401 where changes cannot go on as those of the new definition."""
        hint = "DROP it first, or register the new query under another name."
        log = version.change_log(before.query.id)
        assert log is not None
        reductions = (reduction_of(log, before.query), static_reduction(after.query.options))
        for definition, reduction in zip((before, after), reductions, strict=True):
            if step_length(definition.bound):
                raise self._refuse(request, "It is followed in parts, by a BUDGET.", hint)
            if reduce_changes(definition.bound, reduction) is not None:
                raise self._refuse(request, "Its changes are reduced, as it tolerates.", hint)
        if bool(before.bound.to_stream) != bool(after.bound.to_stream):
            raise self._refuse(
                request,
                "Of a relation rows come and go, of a stream they only come: the changes of one "
                "cannot go on as those of the other.",
                hint,
            )
        sinks = [
            s.name
            for s in version.sinks.values()
            if s.query_id == before.query.id and s.format != "http"
        ]
        if sinks and before.columns != after.columns:
            named = ", ".join(f'"{name}"' for name in sinks)
            raise self._refuse(
                request,
                f"Its columns would be others, and what sink {named} writes has them.",
                "DROP the sink first, and create it again for the new columns.",
            )

    def _find_difference(
        self, before: _Definition, after: _Definition, upto: int, at: int
    ) -> list[pa.Table]:
        """The changes from one definition's answer to the other's; by columns, if they differ."""
        left, came = self._answer(before, upto), self._answer(after, upto)
        none = after.plan.schema.empty_table()
        if before.columns == after.columns:
            return [join_changes(left, came, none, at)]
        return [
            join_changes(left, left.slice(0, 0), before.plan.schema.empty_table(), at),
            join_changes(came.slice(0, 0), came, none, at),
        ]

    def _answer(self, definition: _Definition, upto: int) -> pa.Table:
        """A definition's answer at an instant, with the columns of its changes."""
        rows = self._invoker.invoke(definition.prepared, upto).table
        return rows.rename_columns(definition.columns.names)

    def _refuse(self, request: RegistrationRequest, detail: str, hint: str) -> MillpondError:
        return MillpondError(
            "POND-401",
            f'the changes of query "{request.name}" are computed, and cannot go on',
            detail=detail,
            hint=hint,
            text=request.statement,
            span=request.name_span,
        )


def _refuse_revision(old: QueryDef, new: QueryDef, version: Version) -> LogRevision:
    raise StaleChange(f'query "{old.name}" is followed')


def _read_relations(before: Plan, after: Plan, version: Version) -> set[int]:
    """The ids of the relations that two plans read."""
    names = {*before.relations, *after.relations}
    return {found.id for name in names if (found := version.find(name)) is not None}
