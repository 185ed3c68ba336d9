"""What each followed query costs: its share of the operators that compute its changes.

What several queries share, each of them bears in equal parts. So the shares of all queries add up
to what all operators keep and take. Queries that nobody follows cost what matching costs, which the
streams' filters tell (`control_tables.py`).
"""

from __future__ import annotations

import threading
import time as clock_time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
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
    """What a followed query costs.

    Attributes:
        id: The query's.
        name: The query's.
        pattern: The update pattern of its answer.
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
    pattern: str
    exact: bool
    memory: float
    files: float
    seconds: float
    rows: int
    operators: int
    shared: int
    changes: int
    up_to: str

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

    def list_costs(self, queries: Iterable[QueryDef] | None = None) -> list[QueryCost]:
        """List the costs of those of some queries that are followed; None: of all."""
        version = self._components.log.version
        with self._lock:
            at, count, found = self._known
            now = clock_time.monotonic()
            if now - at > _FRESH_SECONDS or count != len(version.streams):
                found = self._add_up(version)
                self._known = (now, len(version.streams), found)
        if queries is None:
            return list(found.values())
        return [found[query.id] for query in queries if query.id in found]

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
                derivation.plan.root.pattern.name,
                derivation.reduced is None and derivation.look is None,
                share.memory / parts,
                share.files / parts,
                share.seconds / parts,
                share.rows,
                nodes,
                nodes if parts > 1 else share.shared,
                version.clock(stream.id).next_seq,
                format_instant(upto),
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
