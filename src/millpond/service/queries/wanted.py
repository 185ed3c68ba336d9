"""Which elements the weightiest queries want: what `overload = 'shed lightest'` spares.

On the first step of shedding, the heaviest queries are spared that together have half of all
weights; on the second step only the queries of the greatest weight. To spare a query is to keep
each element for which the predicate of one of its leaves is TRUE or cannot be evaluated. Three
kinds of queries want every element: those without a predicate, those that are not matched as data
comes, and those whose ROWS window counts elements that do not match. A derived stream also wants
every element of its streams; its weight is that of its readers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from millpond.catalog.objects import Derived, StreamDef
from millpond.engine.admission.shed import Shedding
from millpond.engine.admission.wanted_elements import WantedElements
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.predicates.factors import Factors
from millpond.service.queries.dependencies import may_read
from millpond.service.queries.registration import Registrar
from millpond.service.queries.weights import weight_of
from millpond.state.version import Version

#: From which share on only the queries of the greatest weight are spared.
_FEW = 0.75


@dataclass
class _Known:
    """What was found for one version of the queries."""

    parts: tuple[object, ...]
    of_step: dict[float, WantedElements] = field(default_factory=dict)
    wants: list[tuple[float, int | None]] | None = None


class Wanted:
    """Finds what queries want of streams; safe to use from any thread."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar
        self._known: dict[int, _Known] = {}
        self._lock = threading.Lock()

    def choose_shedding(self, version: Version, stream: StreamDef, share: float) -> Shedding:
        """Choose what a stream sheds, as its `overload` says, when it sheds about `share`."""
        # The last step sheds what anybody wants, too.
        if stream.overload == "shed lightest" and share < 1.0:
            return Shedding(share, wanted=self.find(version, stream, share))
        return Shedding(share, by_chunk=stream.overload == "shed chunks")

    def find(self, version: Version, stream: StreamDef, share: float) -> WantedElements:
        """Find what is spared of a stream when about `share` of its elements are to be shed."""
        parts = (version.queries, version.streams, version.leaves_of)
        with self._lock:
            known = self._known.get(stream.id)
            if known is None or any(a is not b for a, b in zip(known.parts, parts, strict=True)):
                known = self._known[stream.id] = _Known(parts)
            if share not in known.of_step:
                if known.wants is None:
                    known.wants = list(self._list_wants(version, stream))
                known.of_step[share] = self._choose(version, stream, known.wants, share)
            return known.of_step[share]

    @staticmethod
    def _choose(
        version: Version, stream: StreamDef, wants: list[tuple[float, int | None]], share: float
    ) -> WantedElements:
        weights = sorted({weight for weight, _ in wants if weight > 0})
        least = weights[-1 if share >= _FEW else len(weights) // 2] if weights else 0.0
        wanted = {slot for weight, slot in wants if weight >= least > 0}
        if None in wanted:
            return WantedElements(None)
        slots = sorted(slot for slot in wanted if slot is not None)
        live = [ref for slot in slots if (ref := version.slot(stream.id, slot)) is not None]
        if len(live) < len(slots):
            return WantedElements(None)
        factors = [(ref.slot, Factors.unpack(ref.factors)) for ref in live]
        stem = snapshot_queries(factors, stream.schema)
        return WantedElements(stem, tuple(slots), write_runs(slots))

    def _list_wants(
        self, version: Version, stream: StreamDef
    ) -> Iterator[tuple[float, int | None]]:
        """The weight of each leaf over the stream, and its slot; None: it wants every element."""
        readers: dict[str, float] = {}
        for query in version.queries.values():
            weight = weight_of(query)
            if not weight:
                continue
            bound = self._registrar.bind_or_suspend(query)
            if bound is None:
                continue
            refs = {leaf.leaf: leaf.slot for leaf in version.leaves(query.id)}
            for number, leaf in enumerate(bound.streams):
                name = leaf.stream.lower()
                readers[name] = max(readers.get(name, 0.0), weight)
                if name == stream.name.lower():
                    counts_all = leaf.after_shape is not None or not leaf.shapes
                    yield weight, None if counts_all else refs.get(number)
        for derived in self._list_readers(version, stream):
            yield max(readers.get(derived.name.lower(), 0.0), 1.0), None

    def _list_readers(self, version: Version, stream: StreamDef) -> Iterator[StreamDef]:
        """The derived streams with a name that read a stream, however far above."""
        below, left = {stream.name.lower()}, True
        streams = [s for s in version.named_streams() if s.derived is not None]
        while left:
            left = False
            for derived in streams:
                assert derived.derived is not None
                if derived.name.lower() in below:
                    continue
                if any(self._may_read(version, derived.derived, name) for name in below):
                    below.add(derived.name.lower())
                    left = True
                    yield derived

    def _may_read(self, version: Version, derived: Derived, name: str) -> bool:
        try:
            read = self._registrar.bind_registered(derived.text, derived.text_epoch).streams
        except Exception:
            return may_read(version, derived.text, name)
        return any(leaf.stream.lower() == name for leaf in read)


def is_spared(slot: int, spared: str) -> bool:
    """Whether a slot is in runs of slots, as `name$shed` has them.

    >>> is_spared(4, "1,3-5"), is_spared(2, "1,3-5"), is_spared(2, "")
    (True, False, False)
    """
    for run in spared.split(",") if spared else ():
        first, _, last = run.partition("-")
        if int(first) <= slot <= int(last or first):
            return True
    return False


def write_runs(slots: list[int]) -> str:
    """Write ascending slots as runs, as `is_spared` reads them.

    >>> write_runs([1, 3, 4, 5])
    '1,3-5'
    """
    runs: list[list[int]] = []
    for slot in slots:
        if runs and runs[-1][1] == slot - 1:
            runs[-1][1] = slot
        else:
            runs.append([slot, slot])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
