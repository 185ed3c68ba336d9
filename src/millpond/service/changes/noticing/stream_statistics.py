"""Statistics of streams, for planning how changes are computed.

A stream's rate is the number of its kept elements over the time between the first and the last;
its sample is some thousand elements, taken evenly from its largest segment. Both are read when a
plan is made, and again when the stream has grown fourfold. In between they stay the same, so that
equal queries are planned equally and share operators.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

import numpy as np

from millpond.catalog.objects import StreamDef
from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.errors import MillpondError
from millpond.model.constraints import Constraint
from millpond.operators.protocol.node import Node
from millpond.operators.structures.observed_constraints import observe_constraints
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.optimize.statistics import ObservedStatistics, StreamSample
from millpond.service.answers.leaf_scan import Files
from millpond.service.changes.noticing.compared_keys import KeyObserver
from millpond.service.changes.noticing.newest_elements import limit_rows, read_newest
from millpond.service.queries.prepared import stream_of
from millpond.state.version import Version

#: Fewer elements say too little.
_LEAST = 1_000
#: How many are looked at.
_LOOKED_AT = 10_000
#: How many times as many there have to be before a stream is looked at again.
_GROWN = 4
#: So few elements are better than a guess, beside plans that run.
_LEAST_RUNNING = 20
#: Beside plans that run: how many more elements there have to be.
_NEW_ROWS = 10_000


@dataclass(frozen=True)
class _StreamSummary:
    """What was seen of a stream.

    Attributes:
        sample: Its rate and some of its elements.
        steps: Epochs a second of its time.
        constraints: What a run of its elements satisfied.
    """

    sample: StreamSample
    steps: float
    constraints: tuple[Constraint, ...]


class StreamObserver:
    """Measures streams; safe to use from any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._summaries: dict[int, _StreamSummary] = {}
        self._keys = KeyObserver(files)
        self._lock = threading.Lock()

    def learn(self, nodes: Iterable[Node]) -> bool:
        """Learn what a plan's joins compare; return whether that is new."""
        return self._keys.learn(nodes)

    def of(self, version: Version, bound: BoundQuery, running: Set[str]) -> ObservedStatistics:
        """The statistics of the streams a query reads.

        Args:
            version: What there is.
            bound: The query.
            running: Keys of the nodes that run already.
        """
        looks: dict[str, _StreamSummary] = {}
        constraints: dict[str, tuple[Constraint, ...]] = {}
        for leaf in bound.streams:
            stream = stream_of(version, leaf)
            look = self._summarize(version, stream)
            if look is not None:
                looks[leaf.stream] = look
            if known := self.constraints_of(version, stream):
                constraints[leaf.stream] = known
        steps = max((look.steps for look in looks.values()), default=ObservedStatistics.steps)
        samples = {name: look.sample for name, look in looks.items()}
        # A user's function is not called to find out how long a plan would take.
        scalars = None if bound.functions else DuckDBScalars()
        return ObservedStatistics(samples, scalars, steps, running, constraints)

    def constraints_of(self, version: Version, stream: StreamDef) -> tuple[Constraint, ...]:
        """The constraints of a stream that operators may release rows by.

        Besides those that are declared, these are the observed ones of other columns or kinds.
        """
        keys = self._list_own(version, stream)
        return (*keys, *self._keys.list_references(version, stream, self._list_own))

    def _list_own(self, version: Version, stream: StreamDef) -> tuple[Constraint, ...]:
        """The constraints of a stream, but for observed foreign keys."""
        known = self._summaries.get(stream.id)
        least = _LEAST if known is None else _GROWN * known.sample.total
        if version.clock(stream.id).next_seq >= least:  # a stream that has grown since
            known = self._summarize(version, stream)
        declared = {(c.kind, tuple(n.lower() for n in c.columns)) for c in stream.constraints}
        observed = () if known is None else known.constraints
        others = [
            c for c in observed if (c.kind, tuple(n.lower() for n in c.columns)) not in declared
        ]
        found = (*stream.constraints, *others)
        return (*found, *self._keys.list_keys(version, stream, found))

    def measure(
        self,
        version: Version,
        streams: Iterable[StreamDef],
        rates: Mapping[str, float],
        steps: float,
        may_evaluate: bool,
    ) -> ObservedStatistics:
        """The statistics of streams as they are now, looked at again if they have grown.

        Args:
            version: What there is.
            streams: The streams.
            rates: By name, the elements a second that were counted.
            steps: How many steps a second dataflows were advanced by.
            may_evaluate: Whether predicates may be evaluated on samples.
        """
        looks: dict[str, _StreamSummary] = {}
        constraints: dict[str, tuple[Constraint, ...]] = {}
        for stream in streams:
            look = self._summarize(version, stream, _NEW_ROWS)
            if look is not None:
                looks[stream.name] = look
            if released := self.constraints_of(version, stream):
                constraints[stream.name] = released
        samples = {name: look.sample for name, look in looks.items()}
        scalars = DuckDBScalars() if may_evaluate else None
        return ObservedStatistics(samples, scalars, steps, frozenset(), constraints, rates)

    def _summarize(
        self, version: Version, stream: StreamDef, grown_by: int | None = None
    ) -> _StreamSummary | None:
        """Look at a stream, if it has grown since: fourfold, or by so many elements.

        By so many elements: then the newest are looked at.
        """
        segments = [] if stream.is_pseudo else list(version.segments(stream.id))
        rows = sum(s.rows for s in segments)
        known = self._summaries.get(stream.id)
        least = _LEAST if grown_by is None else _LEAST_RUNNING
        if rows < least or (
            known is not None
            and rows < _GROWN * known.sample.total
            and (grown_by is None or rows < known.sample.total + grown_by)
        ):
            return known
        period = (max(s.max_ts for s in segments) - min(s.min_ts for s in segments)) / 1e6
        try:
            if grown_by is None:
                table = self._files.segment(max(segments, key=lambda s: s.rows)).table
                run = table
                if len(segments) > 1 and table.num_rows < _LOOKED_AT:  # they were just pushed
                    run = read_newest(self._files, segments, _LOOKED_AT)
            else:
                table = run = read_newest(self._files, segments, grown_by)
        except MillpondError:
            return known  # a segment that cannot be read is reported by who needs it
        if period <= 0:
            return known
        count = min(table.num_rows, limit_rows(table, _LOOKED_AT))
        places = np.linspace(0, table.num_rows - 1, count).astype(np.int64)
        columns = [n for n in table.column_names if not n.startswith("__")]
        sample = StreamSample(rows / period, table.select(columns).take(places), rows)
        if grown_by is None:
            run = run.slice(max(0, run.num_rows - limit_rows(run, _LOOKED_AT)))
            observed = observe_constraints(run.select(columns))
        else:  # what is used goes on until it is broken, and a few elements break little
            observed = () if known is None else known.constraints
        look = _StreamSummary(sample, max(version.epoch, 1) / period, observed)
        with self._lock:
            self._summaries[stream.id] = look
        return look
