"""Windows over one synopsis: the elements are kept once, whatever windows read them (Bulletin 2.2).

STREAM gives each window a synopsis, and keeps of synopses with equal rows the store once, with a
stub for each reader. Here `KeptElements` is the store: the elements of a stream that a selection
lets through, in the order of their timestamps, as long as the longest of its windows may hold one.
A `SharedWindow` is a stub. It keeps no row. It is told in each step which elements are there, and
finds by their timestamps which of them enter and which leave, so windows of all lengths, and of
all columns, share the store.

A `SharedWindow` says that rows leave by negative tuples. So it does the work of a `TimeWindow` and
of an `Expire` over it. Where elements come in the order of their timestamps, the planner puts it in
their place (`planner/optimize/shared_windows.py`).

INV-KEPT-1: of elements that a window may still give, every column is kept that one of its readers
reads. A store of a dataflow that is taken over has the columns of its own readers, back to where
its own windows reach (`absorb`).
INV-KEPT-2: where a dataflow gives a store what the store of an implied selection gives (the lender:
`engine/dataflow/lenders.py`), it keeps of each element that came since no more than its number at
the lender, and the lender keeps the element for its windows, too. A store takes back what is lent
before its lender goes, or takes another's place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from millpond.model.kept_property import kept_property
from millpond.model.patterns import Edge, window_edge
from millpond.model.time import BEGINNING, END
from millpond.model.windows import Window, interval
from millpond.operators.protocol.cost_model import (
    QUEUED,
    STEPPED,
    WINDOWED,
    EdgeEstimate,
    StreamStatistics,
    estimate_wakeups,
)
from millpond.operators.protocol.delta import ChosenDelta, Delta, Ints, with_nulls
from millpond.operators.protocol.node import Node, Operator, Scalars, Unary
from millpond.operators.protocol.precision import Precision
from millpond.operators.structures.element_runs import (
    NOTHING,
    ElementRun,
    LentRun,
    Places,
    TimedRun,
    find_number,
)
from millpond.operators.structures.lifetimes import find_lives
from millpond.operators.structures.window_node import WindowNode

#: Runs of fewer elements are merged, so that small steps do not leave long lists.
_SMALL = 4_096
#: A store that takes over another is laid out anew in runs of so many: a run stays in memory until
#: all of it is dropped.
_LARGE = 1 << 16


@dataclass(frozen=True, eq=False)
class KeptDelta(Delta):
    """The elements of a step, with those that are kept of the steps before.

    Attributes:
        before: The elements of earlier steps that a window may still give, in their order.
        now: The elements of this step.
    """

    before: Sequence[TimedRun] = ()
    now: ElementRun = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, eq=False)
class KeptElements(Unary):
    """The elements of its input, kept for all windows over them.

    Attributes:
        input: The elements, in the order of their timestamps.
    """

    name = "kept elements"
    state = "in the order of time, for the longest window"
    remembers = False
    serves_readers = True
    identity = ()

    @kept_property
    def logical_key(self) -> str:
        return self.input.logical_key

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        return (places,)

    def trace_column(self, place: int) -> int:
        return place

    def find_times(self) -> frozenset[int] | None:
        return self.trace_times()

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        return inputs[0]

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        return QUEUED * own.changes

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return inputs[0]

    def operator(self) -> Operator:
        return KeepingElements(tuple(self.schema.types))


class KeepingElements:
    """Runs `KeptElements`.

    Attributes:
        lender: The key of the node whose operator keeps elements for it: those of a selection that
            its own implies. It is given what that node gives, too (INV-KEPT-2). None: nobody.
    """

    def __init__(self, types: tuple[pa.DataType, ...]) -> None:
        self.lender: str | None = None
        self._types = types
        #: The places of the columns that are read: all, as long as nobody has said.
        self._needed = frozenset(range(len(types)))
        #: The windows that read them; None: any, so that everything is kept.
        self._windows: tuple[Window, ...] | None = None
        #: The elements in their order: its own, and those that the lender keeps.
        self._runs: tuple[ElementRun | Places, ...] = ()
        #: How many elements came before the next.
        self._next = 0
        #: By place, of columns that the oldest elements lack: the timestamp from which it is there.
        self._filled: dict[int, int] = {}
        self._upto = BEGINNING - 1

    def serve(self, needed: Set[int], readers: Sequence[Node]) -> None:
        """Keep from now on what these readers need: these columns, for these windows."""
        windows = [reader.window for reader in readers if isinstance(reader, SharedWindow)]
        self._windows = tuple(dict.fromkeys(windows))
        if self._runs:
            # Whoever reads a column from now on has its values of before, or reads none of them.
            self._filled |= dict.fromkeys(needed - self._needed, self._upto + 1)
        self._needed = frozenset(needed)
        self._filled = {place: ts for place, ts in self._filled.items() if place in needed}
        self._runs = tuple(
            run if isinstance(run, Places) else self._choose_columns(run) for run in self._runs
        )
        self._drop(None)

    def _choose_columns(self, run: ElementRun) -> ElementRun:
        """Give a run the columns that are needed; of those that it lacks, NULLs."""
        columns = {
            place: run.columns[place]
            if place in run.columns
            else pa.nulls(len(run), self._types[place])
            for place in sorted(self._needed)
        }
        return ElementRun(run.ts, columns, run.first)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        delta, *others = inputs
        lent = others[0] if others else None
        assert lent is None or isinstance(lent, KeptDelta)
        before = self._list_runs(lent)
        columns = {place: delta.rows.column(place) for place in sorted(self._needed)}
        now = ElementRun(delta.at, columns, self._next)
        self._next += len(now)
        if len(now):
            self._add(_find_places(delta, lent) or now)
        self._upto = upto
        self._drop(lent)
        return KeptDelta(delta.rows, delta.at, delta.until, delta.weight, before, now)

    def _list_runs(self, lent: KeptDelta | None) -> tuple[TimedRun, ...]:
        """List the elements of the steps before."""
        if not any(isinstance(run, Places) for run in self._runs):
            return cast(tuple[TimedRun, ...], self._runs)
        assert lent is not None
        kept = cast(Sequence[ElementRun], lent.before)
        return tuple(LentRun(run, kept) if isinstance(run, Places) else run for run in self._runs)

    def _add(self, now: ElementRun | Places) -> None:
        """Add the elements of a step."""
        runs, last = self._runs, self._runs[-1] if self._runs else None
        if last is not None and len(last) + len(now) < _SMALL:
            both = _join(last, now)
            if both is not None:
                runs, now = runs[:-1], both
        self._runs = (*runs, now)

    def _find_low(self) -> int:
        """The timestamp from which on every element is kept."""
        lows = [interval(window, self._upto)[0] for window in self._windows or ()]
        known = [low for low in lows if low is not None]
        return min(known) if known and len(known) == len(lows) else BEGINNING

    def _drop(self, lent: KeptDelta | None) -> None:
        """Drop the elements that no window will give any more.

        Which of a lender's are among them is known if its elements are at hand.
        """
        low = self._find_low()
        first, runs = 0, list(self._runs)
        number = None
        if lent is not None:
            others = [*cast(Sequence[ElementRun], lent.before), *([lent.now] if lent.now else [])]
            number = find_number(others, low, "left") if others else lent.now.first
        while first < len(runs):
            run = runs[first]
            if isinstance(run, ElementRun):
                rest: ElementRun | Places = run
                if run.earliest < low:
                    rest = run.between(low, END) if run.latest >= low else run.slice(0, 0)
            elif number is None:
                break
            else:
                rest = run.slice(run.find(number), len(run))
            if len(rest):
                runs[first] = rest
                break
            first += 1
        self._runs = tuple(runs[first:])
        self._filled = {place: ts for place, ts in self._filled.items() if ts > low}

    def take_back(self, lender: KeepingElements) -> None:
        """Copy what the lender keeps; it is no lender any more."""
        kept = cast(tuple[ElementRun, ...], lender._runs)
        runs: list[ElementRun] = []
        first = self._next
        for run in reversed(self._runs):
            if isinstance(run, Places):
                rest = run.slice(run.find(kept[0].first), len(run)) if kept else run.slice(0, 0)
                if not len(rest):
                    break
                run = LentRun(rest, kept).to_own(self._needed)
            first -= len(run)
            runs.append(replace(run, first=first))
        self._runs = tuple(reversed(runs))
        self.lender = None

    def absorb(self, other: KeepingElements) -> None:
        """Take over the columns and the elements that only an operator of an equal node keeps.

        Neither has a lender. Of a column that both have, the one that goes back further is taken.
        The elements keep their numbers.

        Raises:
            ValueError: they do not keep the same elements, as far as both reach.
        """
        stores = sorted((self, other), key=KeepingElements._find_low)
        longer, shorter = (store._list_stamps() for store in stores)
        gap = len(longer) - len(shorter)
        if gap < 0 or not np.array_equal(longer[gap:], shorter):
            raise ValueError("the elements kept for windows differ from those of another dataflow")
        columns: dict[int, pa.ChunkedArray] = {}
        filled: dict[int, int] = {}
        for store in stores:
            low = store._find_low()
            for place in sorted(store._needed):
                since = max(store._filled.get(place, low), low)
                if place not in columns or since < filled[place]:
                    type_ = self._types[place]
                    missing = pa.nulls(len(longer) - store.size(), type_)
                    parts = [missing, *(run.columns[place] for run in store._list_own())]
                    columns[place] = pa.chunked_array(parts, type_)
                    filled[place] = since
        begin = self._next - len(longer)
        self._runs = tuple(
            ElementRun(
                longer[start : start + _LARGE].copy(),
                {p: _take_slice(c, start, _LARGE) for p, c in columns.items()},
                begin + start,
            )
            for start in range(0, len(longer), _LARGE)
        )
        self._needed = frozenset(columns)
        low = stores[0]._find_low()
        self._filled = {place: since for place, since in filled.items() if since > low}

    def _list_own(self) -> tuple[ElementRun, ...]:
        """List the elements of a store that has no lender."""
        assert self.lender is None
        return cast(tuple[ElementRun, ...], self._runs)

    def _list_stamps(self) -> Ints:
        """The timestamps of all elements."""
        return np.concatenate([NOTHING.ts, *(run.ts for run in self._list_own())])

    def size(self) -> int:
        return sum(map(len, self._runs))


def _join(one: ElementRun | Places, other: ElementRun | Places) -> ElementRun | Places | None:
    """Put elements behind others; None if only one of them keeps its elements itself."""
    if isinstance(one, Places):
        return one.join(other) if isinstance(other, Places) else None
    return one.join(other) if isinstance(other, ElementRun) else None


def _find_places(delta: Delta, lent: KeptDelta | None) -> Places | None:
    """Find which of a lender's elements those of a step are; None if that is not known."""
    if lent is None or not isinstance(delta, ChosenDelta) or delta.source_at is not lent.at:
        return None
    return Places.of(lent.now.first + delta.chosen)


def _take_slice(column: pa.ChunkedArray, start: int, length: int) -> pa.Array:
    """Take a slice of a column, in one piece."""
    chunks = column.slice(start, length).chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


@dataclass(frozen=True, eq=False)
class SharedWindow(WindowNode):
    """A window other than ROWS over kept elements; that rows leave, negative tuples say.

    Its elements enter and leave in the order of their timestamps.
    """

    is_stateless = True
    carries_expirations = False
    announces = True

    @property
    def edge(self) -> Edge:
        return window_edge(self.window)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (repr(self.window), self.keep)

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        return (frozenset(self.kept[p] for p in places),)

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        given = super().estimate(inputs, known)
        return replace(given, arrivals=given.changes, negatives=given.changes)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        return WINDOWED * own.changes + STEPPED * estimate_wakeups(own.changes, known)

    def operator(self) -> Operator:
        return SharedWindowing(self.window, self.kept, self.schema)


class SharedWindowing:
    """Runs `SharedWindow`: finds which elements enter and which leave; keeps none."""

    def __init__(self, window: Window, keep: tuple[int, ...], schema: pa.Schema) -> None:
        self.needed: Set[int] | None = None
        self._window, self._keep, self._schema = window, keep, schema
        #: The last instant of the step before.
        self._upto = BEGINNING - 1

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        assert isinstance(delta, KeptDelta)
        before, now = delta.before, delta.now
        left, entered = interval(self._window, self._upto)
        leaves, enters = interval(self._window, upto)
        self._upto = upto
        coming = [*_find_runs(before, entered + 1, enters), now.between(BEGINNING, enters)]
        going = []
        if left is not None and leaves is not None:
            going = [*_find_runs(before, left, leaves - 1), now.between(left, leaves - 1)]
        parts = [part for run in coming if (part := self._find_part(run, 1)) is not None]
        parts += [part for run in going if (part := self._find_part(run, -1)) is not None]
        return self._put_together(parts) if parts else Delta.empty(self._schema)

    def _find_part(self, run: TimedRun, weight: int) -> _Part | None:
        """Find which elements of a run come or go, and when; None if none does."""
        if not len(run):
            return None
        at, until, is_in = find_lives(self._window, run.ts)
        if not is_in.any():
            return None
        return _Part(run.where(is_in), (at if weight > 0 else until)[is_in], weight)

    def _put_together(self, parts: Sequence[_Part]) -> Delta:
        """Put rows that come and rows that go into the order of their instants."""
        at = np.concatenate([part.at for part in parts])
        weight = np.concatenate([np.full(len(part.at), part.weight, np.int64) for part in parts])
        order = None
        if not bool((at[1:] >= at[:-1]).all()):
            order = np.argsort(at, kind="stable")
            at, weight = at[order], weight[order]
        given: dict[int, pa.Array] = {}
        for place, source in enumerate(self._keep):
            if self.needed is None or place in self.needed:
                columns = [part.run.column(source) for part in parts]
                column = columns[0] if len(columns) == 1 else pa.concat_arrays(columns)
                given[place] = column if order is None else column.take(pa.array(order))
        return Delta.of(with_nulls(given, self._schema, len(at)), at, None, weight)

    def size(self) -> int:
        return 0


@dataclass(frozen=True, eq=False)
class _Part:
    """Elements that come (weight 1) or go (-1), each at an instant, which ascend."""

    run: TimedRun
    at: Ints
    weight: int


def _find_runs(runs: Sequence[TimedRun], low: int, high: int) -> Iterator[TimedRun]:
    """Find the elements with timestamps from `low` up to `high`."""
    if high < low:
        return
    first = bisect_left(runs, low, key=lambda run: run.latest)
    for run in runs[first:]:
        if run.earliest > high:
            return
        yield run.between(low, high)
