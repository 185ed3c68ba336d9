"""A relation's rows, each with the interval in which it holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.model.kept_property import kept_property
from millpond.model.time import BEGINNING, END


@dataclass(frozen=True)
class VersionedRows:
    """A relation's rows with `__rid`, `__from`, `__to`, and the instants at which it changes.

    `next_rid` is above every `__rid` in the relation's deltas. A row that ended at the instant it
    began is in no folded delta, but its end still lies in an earlier delta, and would end a later
    row with the same number.
    """

    table: pa.Table
    starts: np.ndarray
    ends: np.ndarray
    next_rid: int = 0

    @kept_property
    def latest(self) -> int:
        """The last known instant at which it changes; before all instants if it never does."""
        change_instants = [self.starts, self.ends[self.ends < END]]
        return max((int(at.max()) for at in change_instants if len(at)), default=BEGINNING - 1)

    def changes_within(self, after: int, upto: int) -> bool:
        """Whether a row comes or goes at an instant of (after, upto]."""
        return any(bool(((at > after) & (at <= upto)).any()) for at in (self.starts, self.ends))

    def at(self, instant: int, columns: tuple[str, ...]) -> pa.Table:
        """R(τ), only the given columns."""
        alive = (self.starts <= instant) & (instant < self.ends)
        chosen = self.table.select(list(columns))
        return chosen if alive.all() else chosen.filter(pa.array(alive))

    def versions(self, columns: tuple[str, ...], interval: tuple[str, ...]) -> pa.Table:
        """All rows it ever held, each with its interval under the two names of `interval`."""
        chosen = self.table.select([*columns, "__from", "__to"])
        return chosen.rename_columns([*columns, *interval])
