"""What each query costs: of matching, of its answers, and of operators if it is followed.

What several queries share, each of them bears in equal parts. So the shares of all queries add up
to what all operators keep and take, and to what matching took and its files have. The predicates of
a stream are matched together: the time it took is divided among them equally, and the part of a
predicate among the queries that have it.
"""

from __future__ import annotations

import threading
import time as clock_time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from millpond.catalog.objects import QueryDef
from millpond.model.time import format_instant
from millpond.service.changes.derivation import Derivation
from millpond.service.components import Components
from millpond.state.version import Version

#: How long figures are told again before they are added up anew, in seconds.
_FRESH_SECONDS = 1.0


@dataclass(frozen=True)
class QueryCost:
    """What a query costs. Times are since the pond was opened, or the operators were made.

    Attributes:
        id: The query's.
        name: The query's.
        followed: Whether its changes are computed; if not, it has no operators.
        matching: Its share of the seconds that elements took to be matched as they came.
        matches: Its share of the bytes of matches that are stored.
        invocations: How often its answer was asked for.
        answering: The seconds that took.
        pattern: The update pattern of its answer; None if nobody follows it, as `up_to`.
        exact: Whether its changes are those of the query as it was written, all of them.
        memory: Its share of the bytes of state in memory.
        files: Its share of the bytes of state in files.
        seconds: Its share of the time that operators took since they were made.
        rows: Rows that its operators keep, whoever else has them.
        operators: How many operators it has.
        shared: How many of them other queries have, too.
        changes: How many changes it had.
        up_to: The instant up to which they are known.
    """

    id: int
    name: str
    followed: bool = False
    matching: float = 0.0
    matches: float = 0.0
    invocations: int = 0
    answering: float = 0.0
    pattern: str | None = None
    exact: bool = True
    memory: float = 0.0
    files: float = 0.0
    seconds: float = 0.0
    rows: int = 0
    operators: int = 0
    shared: int = 0
    changes: int = 0
    up_to: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _Share:
    """A derivation's share of its operators."""

    memory: float = 0.0
    files: float = 0.0
    seconds: float = 0.0
    rows: int = 0
    shared: int = 0


class QueryCosts:
    """Adds up what queries cost; safe to use from any thread."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._lock = threading.Lock()
        self._known: tuple[float, int, dict[int, QueryCost]] = (-_FRESH_SECONDS, -1, {})
        #: Until when the costs of all queries are told, and these.
        self._every: tuple[float, list[QueryCost]] = (-_FRESH_SECONDS, [])

    def list_costs(self, queries: Iterable[QueryDef] | None = None) -> list[QueryCost]:
        """List the costs of some queries; None: of all."""
        version = self._components.log.version
        with self._lock:
            at, count, found = self._known
            now = clock_time.monotonic()
            if now - at > _FRESH_SECONDS or count != len(version.streams):
                found = self._add_up(version)
                self._known = (now, len(version.streams), found)
        if queries is not None:
            return self._add_matching(version, queries, found)
        with self._lock:
            # Hundreds of thousands take a while: then they are told again for longer.
            until, every = self._every
            if clock_time.monotonic() > until or len(every) != len(version.queries):
                begun = clock_time.monotonic()
                every = self._add_matching(version, version.queries.values(), found)
                took = clock_time.monotonic() - begun
                self._every = begun + max(_FRESH_SECONDS, 20 * took), every
            return list(every)

    def _add_matching(
        self,
        version: Version,
        queries: Iterable[QueryDef],
        followed: Mapping[int, QueryCost],
    ) -> list[QueryCost]:
        """The costs of queries, with what matching and answers cost."""
        stems, counts = self._components.stems, self._components.events.invocations
        prices: dict[int, tuple[float, float]] = {}
        found = []
        for query in queries:
            matching = matches = 0.0
            for leaf in version.leaves(query.id):
                if leaf.slot is None:
                    continue
                price = prices.get(leaf.stream_id)
                if price is None:
                    price = prices[leaf.stream_id] = self._price(version, leaf.stream_id)
                users = max(1, stems.users(leaf.stream_id, leaf.slot))
                matching += price[0] / users
                matches += price[1] / users
            invocations, answering = counts.of(query.id)
            known = followed.get(query.id) or QueryCost(query.id, query.name)
            found.append(
                replace(
                    known,
                    matching=matching,
                    matches=matches,
                    invocations=invocations,
                    answering=answering,
                )
            )
        return found

    def _price(self, version: Version, stream_id: int) -> tuple[float, float]:
        """What each predicate of a stream bears: of seconds of matching, and of its files."""
        slots = max(1, version.slot_count(stream_id))
        seconds = sum(self._components.stems.spent(stream_id).values())
        segments = version.segments(stream_id)
        size = sum(ref.bytes for one in segments for ref in version.matches(one.id))
        return seconds / slots, size / slots

    def _add_up(self, version: Version) -> dict[int, QueryCost]:
        derivations = self._components.derivations
        made: dict[int, Derivation] = {}
        for stream in derivations.list_streams(version):
            derivation = derivations.find_of(version, stream)
            if derivation is not None:
                made[stream.id] = derivation
        shares = self._share(version, made)
        members: defaultdict[int, int] = defaultdict(int)
        for stream in version.streams.values():
            if stream.shared_log is not None:
                members[stream.shared_log] += 1
        found = {}
        for stream in version.streams.values():
            query = None if stream.derived is None else version.query_of(stream)
            maker = stream.id if stream.shared_log is None else stream.shared_log
            if query is None or maker not in made:
                continue
            derivation, share = made[maker], shares[maker]
            parts = members.get(maker, 1)
            nodes = sum(1 for _ in derivation.plan.nodes())
            upto = self._components.advancer.complete_upto(version, stream)
            found[query.id] = QueryCost(
                query.id,
                query.name,
                followed=True,
                pattern=derivation.plan.root.pattern.name,
                exact=derivation.reduced is None and derivation.look is None,
                memory=share.memory / parts,
                files=share.files / parts,
                seconds=share.seconds / parts,
                rows=share.rows,
                operators=nodes,
                shared=nodes if parts > 1 else share.shared,
                changes=version.clock(stream.id).next_seq,
                up_to=format_instant(upto),
            )
        return found

    def _share(self, version: Version, made: dict[int, Derivation]) -> defaultdict[int, _Share]:
        """Each derivation's share of the operators that run."""
        keys = {id: {n.key for n in one.plan.nodes()} for id, one in made.items()}
        shares: defaultdict[int, _Share] = defaultdict(_Share)
        for operator in self._components.advancer.accounts.list_operators(version):
            readers = [id for id in operator.derivations if operator.key in keys.get(id, ())]
            for id in readers:
                share = shares[id]
                share.memory += operator.state.memory / len(readers)
                share.files += operator.state.files / len(readers)
                share.seconds += operator.work.seconds / len(readers)
                share.rows += operator.state.rows
                share.shared += len(readers) > 1
        return shares
