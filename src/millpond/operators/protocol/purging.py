"""When an operator purges: drops expired rows from its state.

The update-pattern paper's lazy expiration (2.1, 5.4.2): a join skips rows that have expired, so it
may keep them for a while. Purging seldom costs less time and more memory. An operator purges

- after intervals, at the first step that reaches a multiple of an interval; or
- by share, when as many rows have expired as are alive: then the state is at most twice as large
  as needed, and a row is copied a few times in all.

INV-PURGE-1: an operator's output does not depend on when it purges.
"""

from __future__ import annotations

from collections.abc import Iterable


class Purging:
    """When one operator purges; a shared operator purges whenever one of its readers' plans would.

    Attributes:
        by_share: Whether the operator purges when as many rows have expired as are alive.
    """

    def __init__(self) -> None:
        self.by_share = True
        self._every: int | None = None
        self._passed: int | None = None

    def set_intervals(self, intervals: Iterable[int | None]) -> None:
        """Purge from now on at the intervals of the operator's readers.

        Args:
            intervals: One for each reader, at least one: microseconds; 0 to purge at every step;
                None to purge when as many rows have expired as are alive.
        """
        distinct = set(intervals)
        every = min((i for i in distinct if i is not None), default=None)
        self.by_share = None in distinct
        if every != self._every:
            self._every, self._passed = every, None

    def is_due(self, upto: int) -> bool:
        """Whether an interval has passed; call it once a step, with the step's last instant."""
        if self._every is None:
            return False
        passed = upto // self._every if self._every else upto
        due = passed != self._passed
        self._passed = passed
        return due
