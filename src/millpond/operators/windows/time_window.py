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

from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.model.patterns import WEAK, Edge, Pattern, window_edge
from millpond.model.time import BEGINNING
from millpond.model.windows import Now, Range, Rows, Unbounded, Window
from millpond.operators.protocol.cost_model import WINDOWED, EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.node import Operator, Scalars
from millpond.operators.structures.lifetimes import find_lives
from millpond.operators.structures.window_node import WindowNode


@dataclass(frozen=True, eq=False)
class TimeWindow(WindowNode):
    """A window other than ROWS over a stream's elements.

    Attributes:
        in_order: Whether no element comes after a step that went beyond its timestamp.
    """

    in_order: bool = True

    def __post_init__(self) -> None:
        assert not isinstance(self.window, Rows)

    @property
    def edge(self) -> Edge:
        edge = window_edge(self.window)
        return edge if self.in_order or edge.pattern <= Pattern.MONOTONIC else WEAK

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        # Elements that have not entered are kept, and a later reader may need any of their columns.
        return (frozenset(self.kept if self.keeps_elements else (self.kept[p] for p in places)),)

    @property
    def keeps_elements(self) -> bool:
        """Whether it keeps elements until they enter: not where they enter as they come."""
        at_once = isinstance(self.window, Unbounded | Now)
        return not (at_once or (isinstance(self.window, Range) and self.window.slide is None))

    @property
    def carries_expirations(self) -> bool:
        return not isinstance(self.window, Unbounded)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (repr(self.window), self.keep, *(() if self.in_order else ("late",)))

    def find_times(self) -> frozenset[int] | None:
        keeps = self.in_order and isinstance(self.window, Unbounded)
        return self.trace_times() if keeps else None

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        return WINDOWED * own.changes

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
