"""What answers in parts share: the leaf that is looked at, and the budget."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.engine.joins.keys import Axis
from millpond.engine.matching.find_matches import find_matches
from millpond.engine.predicates.factors import Factors
from millpond.engine.promising.value_index import Elements, ValueIndex, take_elements
from millpond.model.budget import Budget
from millpond.planner.bind.bound_query import StreamLeaf
from millpond.service.answers.leaf_scan import LeafView
from millpond.synopses.summaries.stream_summary import StreamSummary

#: The probes of the first step of a budget in time; each further step has twice as many.
_FIRST_STEP = 256


@dataclass(frozen=True, eq=False)
class LookedLeaf:
    """A stream leaf of a query that is answered in parts.

    Attributes:
        leaf: The leaf.
        stream: Its stream.
        factors: Its predicate; None if every element matches.
        views: The kept segments.
        low: The window's first instant.
        high: Its last instant.
        before: Only elements with a smaller arrival number are seen.
        summary: What ranks it, if anything does.
    """

    leaf: StreamLeaf
    stream: StreamDef
    factors: Factors | None
    views: Sequence[LeafView]
    low: int
    high: int
    before: int
    summary: StreamSummary | None

    def index(self, column: str, axis: Axis) -> ValueIndex:
        """Its elements by the values of a column."""
        return ValueIndex(self.views, column, axis, self.low, self.high, self.before)

    def take(self, elements: Elements) -> tuple[pa.Table, np.ndarray]:
        """The rows of elements that match, and which of the elements those are."""
        names = self.stream.schema.names if self.factors is not None else self.leaf.columns
        names = tuple(dict.fromkeys((*names, *self.leaf.columns))) or self.stream.schema.names[:1]
        if not self.views:
            empty = self.stream.schema.to_arrow().empty_table().select(list(names))
            return empty.select(list(self.leaf.columns)), np.empty(0, np.int64)
        table = take_elements(self.views, elements, names)
        kept = np.arange(table.num_rows)
        if self.factors is not None and table.num_rows:
            kept = find_matches(table, self.factors, self.stream.schema)
            table = table.take(pa.array(kept))
        return table.select(list(self.leaf.columns or names[:1])), kept


def spend(budget: Budget, begun: float) -> Iterator[int]:
    """Give the sizes of the steps, in probes, that a budget allows: one at least.

    A budget in time counts from `begun` (of `time.perf_counter`), so what ranking takes is part of
    it; each step ends before the time is looked at again.
    """
    if budget.probes is not None:
        yield int(budget.probes)
        return
    assert budget.microseconds is not None
    step, end = _FIRST_STEP, begun + budget.microseconds / 1e6
    while True:
        yield step
        if time.perf_counter() >= end:
            return
        step *= 2
