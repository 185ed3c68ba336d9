"""Windows over time: an element's timestamp says when it enters and when it leaves.

    window                     enters at            leaves at
    [RANGE T]                  t                    t + T
    [RANGE T SLIDE L]          ⌈t/L⌉·L              ⌈(t+T)/L⌉·L
    [NOW]                      t                    t + 1µs
    [RANGE UNBOUNDED]          t                    never
    BEGIN NOW+b END NOW+e      max(t, t−e)          t − b + 1µs

(Update patterns, 2.2: exp = ts + size.) The window keeps only the elements that have not entered
yet. Its output rows carry their expirations, so readers know when a row leaves.

Where elements may come late (`in_order` is false), an element that comes after its instant enters
at the instant at which it comes, and leaves when its timestamp says. So the rows are right from
there on; they leave in another order than they came.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.model.patterns import WEAK, Edge, Pattern, window_edge
from millpond.model.time import BEGINNING, END
from millpond.model.windows import Now, Range, Rows, Unbounded, Window, interval
from millpond.operators.protocol.cost_model import WINDOWED, EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars, Unary
from millpond.operators.protocol.precision import Precision
from millpond.operators.structures.lifetimes import find_lives, lifetimes


@dataclass(frozen=True, eq=False)
class TimeWindow(Unary):
    """A window other than ROWS over a stream's elements.

    Attributes:
        input: The elements.
        window: Which window.
        text: The window as CQL, for EXPLAIN.
        names: The names of its input's columns, for EXPLAIN.
        keep: Places of the columns that are in the output; None for all.
        in_order: Whether no element comes after a step that went beyond its timestamp.
    """

    window: Window
    text: str = ""
    names: tuple[str, ...] = ()
    keep: tuple[int, ...] | None = None
    in_order: bool = True

    name = "window"
    remembers = False
    is_window = True

    def __post_init__(self) -> None:
        assert not isinstance(self.window, Rows)

    @property
    def schema(self) -> pa.Schema:
        if self.keep is None:
            return self.input.schema
        return positional_schema([self.input.schema.field(p).type for p in self.keep])

    @property
    def detail(self) -> str:
        if self.keep is None or not self.names:
            return self.text
        return f"{self.text}: {', '.join(self.names[p] for p in self.keep)}"

    @property
    def edge(self) -> Edge:
        edge = window_edge(self.window)
        return edge if self.in_order or edge.pattern <= Pattern.MONOTONIC else WEAK

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        if not self.keeps_elements:
            return (places if self.keep is None else frozenset(self.keep[p] for p in places),)
        # Elements that have not entered are kept, and a later reader may need any of their columns.
        return (frozenset(range(len(self.input.schema)) if self.keep is None else self.keep),)

    @property
    def keeps_elements(self) -> bool:
        """Whether it keeps elements until they enter: not where they enter as they come."""
        at_once = isinstance(self.window, Unbounded | Now)
        return not (at_once or (isinstance(self.window, Range) and self.window.slide is None))

    def choose_columns(self, places: tuple[int, ...]) -> Node | None:
        if not places:
            return None
        every = tuple(range(len(self.input.schema)))
        kept = every if self.keep is None else self.keep
        keep = tuple(kept[p] for p in places)
        return replace(self, keep=None if keep == every else keep)

    @property
    def carries_expirations(self) -> bool:
        return not isinstance(self.window, Unbounded)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (repr(self.window), self.keep, *(() if self.in_order else ("late",)))

    def reach(self, at: int) -> int | None:
        return interval(self.window, at)[0]

    def trace_column(self, place: int) -> int | None:
        return place if self.keep is None else self.keep[place]

    def find_times(self) -> frozenset[int] | None:
        keeps = self.in_order and isinstance(self.window, Unbounded)
        return self.trace_times() if keeps else None

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        at, until = lifetimes(self.window, np.zeros(1, np.int64))
        life = math.inf if until[0] >= END else float(until[0] - at[0]) / 1e6
        columns = given.columns if self.keep is None else [given.columns[p] for p in self.keep]
        return replace(given, life=min(given.life, life), columns=tuple(columns))

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        return WINDOWED * own.changes

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return inputs[0]

    def operator(self) -> Operator:
        return TimeWindowing(self.window, self.keep, self.schema, self.in_order)


class TimeWindowing:
    """Runs `TimeWindow`: keeps the elements that have not entered yet."""

    def __init__(
        self,
        window: Window,
        keep: tuple[int, ...] | None,
        schema: pa.Schema,
        in_order: bool = True,
    ) -> None:
        self._window = window
        self._keep, self._schema = keep, schema
        self._coming: deque[Delta] = deque()
        self._in_order = in_order
        #: The last instant of the step before.
        self._upto = BEGINNING - 1

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        entering = self._stamp(delta)
        if not self._in_order:
            entering = self._admit_late(entering)
        self._upto = upto
        parts = []
        while self._coming and self._coming[0].at[0] <= upto:
            first = self._coming.popleft()
            count = int(np.searchsorted(first.at, upto, side="right"))
            parts.append(first.slice(0, count))
            if count < len(first):
                self._coming.appendleft(first.slice(count, len(first)))
                break
        count = int(np.searchsorted(entering.at, upto, side="right"))
        if count < len(entering):
            self._coming.append(entering.slice(count, len(entering)))
            entering = entering.slice(0, count)
        # The elements that waited came first.
        return Delta.together([*parts, entering]) if parts else entering

    def _admit_late(self, entering: Delta) -> Delta:
        """Have elements that come late enter now, if they have not left yet.

        Elements that wait for their instant are put in order with those that come.
        """
        at = np.maximum(entering.at, self._upto)
        late = Delta(entering.rows, at, entering.until, entering.weight)
        waiting = list(self._coming)
        self._coming.clear()
        return Delta.together([*waiting, late.where(at < late.until).in_order()])

    def _stamp(self, delta: Delta) -> Delta:
        """Select the elements that are ever in the window, and stamp them with their intervals."""
        at, until, is_in = find_lives(self._window, delta.at)
        return Delta(self._choose_columns(delta.rows), at, until, delta.weight).where(is_in)

    def _choose_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Select the columns of the window's output."""
        if self._keep is None:
            return rows
        columns = [rows.column(place) for place in self._keep]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def size(self) -> int:
        return sum(len(d) for d in self._coming)
