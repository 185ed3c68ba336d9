"""Through which nodes of the shared plan tuples went: filters, SteMs, joins, operators.

What is stored says it where something is stored: matches, runs of SteMs, pairs of joins, changes.
What leaves nothing behind (a grouped filter, a selection) is a pure function of the tuple: it is
applied to the tuple again, grouped filters in the order in which the eddy routes now. An operator
that has a state takes a tuple in; what is beyond it, the tuple reached if the derivation has
changes at the tuple's instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import Leading, snapshot_queries
from millpond.engine.matching.results_structure import OTHERS
from millpond.engine.predicates.factors import Factors
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.errors import MillpondError
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.node import Node
from millpond.operators.source import LOG, LOGS
from millpond.service.components import Components
from millpond.service.observe.join_entities import name_join, name_stems
from millpond.service.plans.running_plans import RunningPlan, name_operator
from millpond.state.join_state import JoinCore
from millpond.state.version import Version

#: The most plans whose operators are looked at.
MOST_PLANS = 200
#: Few predicates stay in blocks, of which each grouped filter is told.
_NOBODY_LED = Leading(least=1 << 62)

#: The places of some tuples among those that are traced.
Places = frozenset[int]


class TracedPaths:
    """The nodes that tuples went through.

    Args:
        components: The pond's.
        version: The version.
        rows: The traced rows: the declared columns, `__ts`, and the arrival numbers as `__seq`.
    """

    def __init__(self, components: Components, version: Version, rows: pa.Table) -> None:
        self._components = components
        self._version = version
        self._rows = rows.combine_chunks()
        self._ts: npt.NDArray[np.int64] = rows["__ts"].to_numpy()
        self._seq: npt.NDArray[np.int64] = rows["__seq"].to_numpy()
        self._every: Places = frozenset(range(rows.num_rows))
        self.paths: list[dict[str, None]] = [{} for _ in range(rows.num_rows)]

    def note(self, id: str, places: Iterable[int] | None = None) -> None:
        """Note that tuples went through a node; None: all."""
        for place in sorted(self._every if places is None else places):
            self.paths[place][id] = None

    def find_filters(self, stream: StreamDef, slots: Iterable[int]) -> None:
        """Note the grouped filters that tuples visited before they matched or had none left."""
        version = self._version
        found = [ref for slot in slots if (ref := version.slot(stream.id, slot)) is not None]
        if not found:
            return
        queries = [(ref.slot, Factors.unpack(ref.factors)) for ref in found]
        stem = snapshot_queries(queries, stream.schema, _NOBODY_LED)
        order = self._components.stems.order(stream.id)
        for place in range(self._rows.num_rows):
            # One tuple at a time, so that what is counted is of this one.
            row = self._rows.slice(place, 1)
            passed = match(row, stem, ScalarEvaluator.of_this_thread(), order).stats
            for attribute, passage in passed.items():
                if passage.tuples_in:
                    name = stream.name
                    id = f"others:{name}" if attribute == OTHERS else f"filter:{name}.{attribute}"
                    self.note(id, [place])
        self.note(f"query stem:{stream.name}")

    def find_joins(self, stream: StreamDef, cores: Iterable[JoinCore]) -> None:
        """Note the eddies that joined tuples, their SteMs of the stream, and their pairs."""
        version, joins = self._version, self._components.joins
        for core in cores:
            leaves = [leaf for leaf, id in enumerate(core.stream_ids) if id == stream.id]
            if not leaves:
                continue
            name = name_join(joins, core)
            covered = min(core.covered[leaf] for leaf in leaves) if core.covered else 0
            met = np.flatnonzero(self._seq < covered).tolist()
            for id, (stem_of, _) in name_stems(joins, version, core).items():
                if stem_of == stream.id:
                    self.note(id, met)
            self.note(f"eddy:{name}", met)
            # What a tuple is joined with may be older: every zone is looked at.
            for file in version.joins.pairs(core.id):
                reader = self._components.invoker.files.pairs(file)
                if reader is not None:
                    for leaf in leaves:
                        joined = reader.after(file.min_oldest)[leaf]
                        here = np.isin(self._seq, joined)
                        self.note(f"join:{name}", np.flatnonzero(here).tolist())

    def find_operators(
        self,
        stream: StreamDef,
        plans: Sequence[RunningPlan],
        matched: Mapping[str, Set[int]],
    ) -> None:
        """Note the operators that tuples reached, and the derivations that they changed.

        Args:
            stream: The tuples'.
            plans: The plans that read it.
            matched: By a query's name, the tuples that it was given by its predicate.
        """
        for running in plans[:MOST_PLANS]:
            nodes = list(running.plan.nodes())
            changed = self._find_changes(running.stream)
            if any(node.feed is not None and {LOG, LOGS} & {*node.feed[2]} for node in nodes):
                # What its members select was marked with the member; all operators saw it.
                given = changed & matched.get(running.name, frozenset())
                self._note_plan(running, nodes, {node.key: given for node in nodes}, given)
                continue
            reached = self._reach(stream, nodes)
            kept = {p for n in nodes if not _passes(n) for p in reached.get(n.key, ())}
            beyond = changed & (kept | reached[running.plan.root.key])
            self._note_plan(running, nodes, reached, beyond)

    def _note_plan(
        self,
        running: RunningPlan,
        nodes: Sequence[Node],
        reached: Mapping[str, Places],
        beyond: Places,
    ) -> None:
        behind: dict[str, Places] = {}
        for node in nodes:
            # What an operator with a state gave at an instant went on to all that read it.
            below = [behind[i.key] for i in node.inputs]
            came = reached.get(node.key, frozenset()).union(*below)
            stays = frozenset() if _passes(node) else reached.get(node.key, frozenset()) & beyond
            behind[node.key] = stays.union(*below)
            self.note(name_operator(node.name, node.key), came)
        self.note(f"derivation:{running.name}", beyond)

    def _reach(self, stream: StreamDef, nodes: Sequence[Node]) -> dict[str, Places]:
        """The tuples that reach each operator through operators that keep no rows."""
        given: dict[str, Delta | None] = {}
        reached: dict[str, Places] = {}
        scalars = DuckDBScalars()
        for node in nodes:
            if node.feed is not None:
                given[node.key] = self._feed(node, stream)
                reached[node.key] = _places(given[node.key])
                continue
            inputs = [given[below.key] for below in node.inputs]
            reached[node.key] = frozenset().union(*map(_places, inputs))
            known = [delta for delta in inputs if delta is not None]
            whole = _passes(node) and len(known) == len(inputs)
            given[node.key] = self._pass(node, known, scalars) if whole else None
        return reached

    def _pass(self, node: Node, inputs: list[Delta], scalars: DuckDBScalars) -> Delta | None:
        """What an operator that keeps no rows passes on; None: it fails on them."""
        if not any(map(len, inputs)):
            return Delta.empty(node.schema)
        if node.is_window:
            (delta,) = inputs
            places = [node.trace_column(place) for place in range(len(node.schema))]
            arrays = [delta.rows.column(place) for place in places if place is not None]
            return Delta.of(pa.RecordBatch.from_arrays(arrays, schema=node.schema), delta.at)
        try:
            return node.operator().advance(inputs, len(self._ts), scalars)
        except MillpondError:
            return None  # the derivation stands still, and says why

    def _feed(self, node: Node, stream: StreamDef) -> Delta | None:
        """The tuples as a source gives them, each at an instant of its own: its place."""
        assert node.feed is not None
        kind, name, columns = node.feed
        if kind != "stream" or name.casefold() != stream.name.casefold():
            return Delta.empty(node.schema)
        try:
            arrays = [
                self._rows[column].combine_chunks().cast(field.type)
                for column, field in zip(columns, node.schema, strict=True)
            ]
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        rows = pa.RecordBatch.from_arrays(
            [a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a for a in arrays],
            schema=node.schema,
        )
        return Delta.of(rows, np.arange(len(self._ts), dtype=np.int64))

    def _find_changes(self, log: StreamDef) -> Places:
        """The tuples at whose instants a derivation has changes."""
        low, high = int(self._ts.min()), int(self._ts.max())
        found: set[int] = set()
        for segment in self._version.segments(log.id):
            if segment.min_ts <= high and segment.max_ts >= low:
                instants = self._components.invoker.files.segment(segment).ts
                found.update(np.flatnonzero(np.isin(self._ts, instants)).tolist())
        return frozenset(found)


def _passes(node: Node) -> bool:
    """Whether what an operator gives for a row depends on no other row.

    So it is of those that give the rows of their input in another form, too.
    """
    is_form = len(node.inputs) == 1 and node.logical_key == node.inputs[0].logical_key
    return is_form or not node.remembers


def _places(delta: Delta | None) -> Places:
    return frozenset() if delta is None else frozenset(delta.at.tolist())


def list_plans(plans: Iterable[RunningPlan], stream: StreamDef) -> Iterator[RunningPlan]:
    """The plans that read a stream."""
    wanted = stream.name.casefold()
    for running in plans:
        feeds = (node.feed for node in running.plan.nodes())
        if any(f is not None and f[0] == "stream" and f[1].casefold() == wanted for f in feeds):
            yield running
