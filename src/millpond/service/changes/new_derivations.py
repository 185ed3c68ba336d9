"""Makes derivations: change logs of standing queries, shared logs, and derived streams.

A derivation begins with an epoch that adds its stream, with the instant after which its changes
begin (`find_start`). From then on `Derivations` knows it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from millpond.catalog.objects import Derived, QueryDef, StreamDef
from millpond.engine.dataflow.failures import to_millpond_error
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.shared_log import QueryShape
from millpond.service.changes.derivation import Derivation, find_start
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.derived_streams import derived_stream_schema
from millpond.service.changes.looks import columns_of_part, make_look, step_length
from millpond.service.changes.shared_logs import find_shared_shape
from millpond.service.queries.options import option, static_reduction
from millpond.service.queries.prepared import stream_of
from millpond.service.queries.reductions import reduce_changes
from millpond.service.queries.registration import Registrar
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.epoch_log import EpochLog
from millpond.state.version import StreamClock, Version, change_log_name, shared_log_name


class NewDerivations:
    """Makes what is derived when somebody first asks for it; safe to use from any thread."""

    def __init__(self, log: EpochLog, registrar: Registrar, derivations: Derivations) -> None:
        self._log = log
        self._registrar = registrar
        self._derivations = derivations

    def follow(self, query: QueryDef) -> StreamDef:
        """The change log of a standing query, made if nobody has asked for it before.

        Raises:
            MillpondError: CQL-201 when the query was dropped meanwhile; what planning refuses.
        """
        failures = self.follow_many([query])
        if query.id in failures:
            raise failures[query.id]
        found = self._log.version.change_log(query.id)
        if found is None:
            raise MillpondError("CQL-201", f'no query "{query.name}" any more')
        return found

    def follow_many(self, queries: Iterable[QueryDef]) -> dict[int, MillpondError]:
        """Make the change logs that standing queries do not have yet, in one epoch.

        Returns:
            By query id, why the changes of a query cannot be computed; the others are followed.
        """
        wanted = [q for q in queries if self._log.version.change_log(q.id) is None]
        failures: dict[int, MillpondError] = {}
        if not wanted:
            return failures
        with self._registrar.lock:
            version = self._log.version
            starts: list[tuple[StreamDef, int]] = []
            alike: defaultdict[QueryShape, list[tuple[QueryDef, BoundQuery]]] = defaultdict(list)
            for query in wanted:
                current = version.queries.get(query.id)
                if current is None or version.change_log(query.id) is not None:
                    continue
                try:
                    bound = self._registrar.bind_registered(current.text, current.text_epoch)
                    shape = find_shared_shape(version, current, bound)
                    if shape is None:
                        starts.append(self._make_log(version, current))
                    else:
                        alike[shape].append((current, bound))
                except Exception as error:
                    failures[query.id] = to_millpond_error(error)
            for members in alike.values():
                starts += self._make_shared_log(version, members)
            try:
                if starts:
                    self._commit(starts)
            finally:
                self._derivations.stop_expecting()
        return failures

    def _make_log(self, version: Version, query: QueryDef) -> tuple[StreamDef, int]:
        """A change log for a query, and the instant after which its changes begin."""
        bound = self._registrar.bind_registered(query.text, query.text_epoch)
        reduced = None
        if not step_length(bound):
            reduced = reduce_changes(bound, static_reduction(query.options))
        if reduced is not None:
            bound = reduced.bound
        plan = self._derivations.plan_query(version, bound, query)
        look = make_look(version, bound)
        after = self._begin_of(query)
        log = StreamDef(
            self._log.next_id(),
            change_log_name(query.id),
            bound.output if look is None else columns_of_part(bound.output, look.kind),
            retain_rows=int(option(query, "keep_changes")),
            derived=Derived(
                query.text,
                query.id,
                _is_on_system_time(version, bound),
                text_epoch=query.text_epoch or 0,
            ),
        )
        sharing_key = self._derivations.sharing_key_of(version, bound, query)
        self._derivations.expect(Derivation(log, bound, plan, *sharing_key, reduced, look))
        return log, find_start(version, bound, plan, after)

    def _make_shared_log(
        self, version: Version, members: Sequence[tuple[QueryDef, BoundQuery]]
    ) -> list[tuple[StreamDef, int]]:
        """A shared log for queries of one shape, and their change logs, as `_make_log` gives them.

        They all begin where they would alone; the shared log, with the first of them.
        """
        first, bound = members[0]
        id = self._log.next_id()
        on_system_time = _is_on_system_time(version, bound)
        derived = Derived(
            first.text, None, on_system_time, is_shared=True, text_epoch=first.text_epoch or 0
        )
        shared = StreamDef(id, shared_log_name(id), bound.output, derived=derived)
        derivation = self._derivations.make_shared(version, shared, bound)
        self._derivations.expect(derivation)
        found: list[tuple[StreamDef, int]] = []
        for query, own in members:
            log = StreamDef(
                self._log.next_id(),
                change_log_name(query.id),
                own.output,
                retain_rows=int(option(query, "keep_changes")),
                derived=Derived(
                    query.text,
                    query.id,
                    on_system_time,
                    shared_log=id,
                    text_epoch=query.text_epoch or 0,
                ),
            )
            start = find_start(version, own, derivation.plan, self._begin_of(query))
            found.append((log, start))
        return [(shared, min(start for _, start in found)), *found]

    @staticmethod
    def _begin_of(query: QueryDef) -> int:
        """The instant after which a query's changes are to begin."""
        everything = query.options.get("changes") == "from beginning"
        return BEGINNING - 1 if everything else query.changes_after

    def create(
        self,
        name: str,
        bound: BoundQuery,
        text: str,
        statement: str,
        retain: int | None = None,
        text_epoch: int | None = None,
    ) -> StreamDef:
        """Make a derived stream, from everything that is kept on (SEMANTICS, section 4).

        `retain` is how long its elements are kept at least, in microseconds; None is for ever.
        `text_epoch` is as of `Registrar.bind`.

        Raises:
            MillpondError: CQL-208 for the name; what planning refuses.
        """
        with self._registrar.lock:
            version = self._log.version
            stream = StreamDef(
                self._log.next_id(),
                name,
                derived_stream_schema(bound),
                retain=retain,
                text=statement,
                derived=Derived(
                    text,
                    None,
                    _is_on_system_time(version, bound),
                    text_epoch=version.epoch if text_epoch is None else text_epoch,
                ),
            )
            plan = self._derivations.plan_query(version, bound, None)
            self._commit([(stream, find_start(version, bound, plan, BEGINNING - 1))])
            return stream

    def _commit(self, starts: Sequence[tuple[StreamDef, int]]) -> None:
        """Add streams of changes, each with the instant after which its changes begin."""

        def change(now: Version) -> EpochChange:
            # Nothing has been delivered yet, so relations are read as they are now (POND-413).
            clocks = {
                stream.id: StreamClock(
                    heartbeat=after + 1,
                    relations_epoch=now.epoch,
                    kept_from=after + 1 if after >= BEGINNING else BEGINNING,
                )
                for stream, after in starts
            }
            return EpochChange(kind="derive", add=[s for s, _ in starts], clocks=clocks)

        self._log.commit(change)


def _is_on_system_time(version: Version, bound: BoundQuery) -> bool:
    return all(stream_of(version, leaf).on_system_time for leaf in bound.streams)
