"""Chooses anew how far queries are reduced, when rates or grants have changed much (STREAM, 5.1).

How far a query is reduced is chosen when it is registered, by what its streams held then. Once they
have grown, or `query_memory` was changed, a query is chosen for again, if it needs clearly more
than it is granted, or if it is reduced and would need much less. Each choice is an epoch, as ALTER
QUERY is, and an element of `system$actions`. The changes of a followed query go on from their
position with the difference (`millpond.service.changes.giving_way`). Those of a stream-valued
query, and of one that looks at a part, cannot be taken back, so these are left alone once they are
followed.
"""

from __future__ import annotations

from collections.abc import Iterable

from millpond.catalog.objects import QueryDef
from millpond.catalog.tolerance import Reduction
from millpond.planner.approximate.reductions import measure_given_up, survey
from millpond.service.ingest.actions import Actions
from millpond.service.queries.options import static_reduction
from millpond.service.queries.reductions import decide, granted_bytes, predict_query
from millpond.service.queries.registration import Registrar
from millpond.state.epoch_log import EpochLog
from millpond.state.id_map import PageSummaries
from millpond.state.version import Version

#: How many times as many elements a stream has to have got before queries are looked at again.
_GROWN = 1.25
#: The parts of the grant between which what a reduced query needs may be.
_LEAST, _MOST = 0.5, 1.25


def _choose_tolerant(queries: Iterable[QueryDef]) -> list[int]:
    return [query.id for query in queries if "tolerate" in query.options]


class ReductionMaintenance:
    """Chooses anew how far queries are reduced; one thread calls it.

    Args:
        log: The epochs.
        registrar: Alters the queries.
        actions: Records what was chosen.
    """

    def __init__(self, log: EpochLog, registrar: Registrar, actions: Actions) -> None:
        self._log, self._registrar, self._actions = log, registrar, actions
        #: The queries of a version, and those of them that tolerate something.
        self._tolerant: tuple[object, list[int]] = (None, [])
        self._by_page = PageSummaries[QueryDef, list[int]](_choose_tolerant)
        #: When queries were last looked at: the grant, and how many elements each stream had got.
        self._looked: tuple[object, dict[int, int]] = (None, {})

    def step(self) -> bool:
        """Look at the queries if that is due; return whether one of them was changed."""
        version = self._log.version
        if not self._list_tolerant(version) or not self._is_due(version):
            return False
        changed = [self._reconsider(version, id) for id in self._list_tolerant(version)]
        return any(changed)

    def _list_tolerant(self, version: Version) -> list[int]:
        known, found = self._tolerant
        if known is not version.queries:
            found = [id for own in self._by_page.of(version.queries) for id in own]
            self._tolerant = (version.queries, found)
        return found

    def _is_due(self, version: Version) -> bool:
        given = version.settings.get("query_memory")
        got = {id: version.clock(id).next_seq for id in version.streams}
        before, had = self._looked
        grown = any(count > had.get(id, 0) * _GROWN for id, count in got.items())
        if given == before and not grown:
            return False
        self._looked = (given, got)
        return True

    def _reconsider(self, version: Version, query_id: int) -> bool:
        query = version.queries[query_id]
        asleep = query.suspended is not None or not query.options.get("active", True)
        if asleep or (version.change_log(query_id) and not self._may_switch(version, query)):
            return False
        wanted = self._choose(version, query)
        before = static_reduction(query.options)
        if wanted is None or wanted == before:
            return False
        altered = self._registrar.reduce_anew(query_id)
        if altered is None:
            return False
        after = static_reduction(altered.options)
        granted = granted_bytes(version, query.options)
        bound = self._registrar.bind_registered(query.text, query.text_epoch)
        limit = "any number of bytes" if granted is None else f"{granted:,} bytes"
        self._actions.record(
            "reduce",
            query.name,
            measure_given_up(before, bound),
            measure_given_up(after, bound),
            0.0,
            f'answers of "{query.name}", which is granted {limit}, are reduced to {after},'
            f" before to {before}",
        )
        return True

    def _may_switch(self, version: Version, query: QueryDef) -> bool:
        """Whether the changes of a followed query may go on by another reduction."""
        bound = self._registrar.bind_registered(query.text, query.text_epoch)
        log = version.change_log(query.id)
        is_alone = log is not None and log.shared_log is None
        return is_alone and bound.to_stream is None and bound.preference is None

    def _choose(self, version: Version, query: QueryDef) -> Reduction | None:
        """How far a query is to be reduced; None if it may stay as it is."""
        bound = self._registrar.bind_registered(query.text, query.text_epoch)
        granted, reduction = granted_bytes(version, query.options), static_reduction(query.options)
        needs = predict_query(version, bound, survey(bound), reduction)
        if needs is None:
            return None
        if granted is not None:
            least = _LEAST * granted if reduction else 0.0
            if least <= needs <= _MOST * granted:
                return None
        return decide(version, bound, query.options, self._registrar.model_precision)
