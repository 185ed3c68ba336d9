"""What a plan asks of a window over time, whatever keeps its elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from millpond.model.time import END
from millpond.model.windows import Window, interval
from millpond.operators.protocol.cost_model import EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import positional_schema
from millpond.operators.protocol.node import Unary
from millpond.operators.protocol.precision import Precision
from millpond.operators.structures.lifetimes import lifetimes


@dataclass(frozen=True, eq=False)
class WindowNode(Unary):
    """A window other than ROWS over a stream's elements.

    Attributes:
        input: The elements.
        window: Which window.
        text: The window as CQL, for EXPLAIN.
        names: The names of its input's columns, for EXPLAIN.
        keep: Places of the columns that are in the output; None for all.
    """

    window: Window
    text: str = ""
    names: tuple[str, ...] = ()
    keep: tuple[int, ...] | None = None

    name = "window"
    remembers = False
    is_window = True

    @property
    def kept(self) -> tuple[int, ...]:
        """The places of the columns that are in the output."""
        return tuple(range(len(self.input.schema))) if self.keep is None else self.keep

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

    def choose_columns(self, places: tuple[int, ...]) -> WindowNode | None:
        if not places:
            return None
        keep = tuple(self.kept[p] for p in places)
        every = tuple(range(len(self.input.schema)))
        return replace(self, keep=None if keep == every else keep)

    def reach(self, at: int) -> int | None:
        return interval(self.window, at)[0]

    def trace_column(self, place: int) -> int | None:
        return self.kept[place]

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        at, until = lifetimes(self.window, np.zeros(1, np.int64))
        life = math.inf if until[0] >= END else float(until[0] - at[0]) / 1e6
        columns = tuple(given.columns[p] for p in self.kept)
        return replace(given, life=min(given.life, life), columns=columns)

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return inputs[0]
