"""When state drops rows that have expired and that nobody needs to read at once.

The update-pattern paper's lazy expiration (2.1, 5.4.2): a join skips rows that have expired, so it
may keep them for a while. Dropping them seldom costs less time and more memory. How often is

- after intervals, at the first step that comes to a multiple of one; or
- by share, when as many rows have expired as are alive: no more than twice what is needed is kept,
  and a row is copied a few times in all.

INV-PURGE-1: when it is done does not show in what an operator gives.
"""

from __future__ import annotations

from collections.abc import Iterable


class Purging:
    """When one operator purges; what is shared purges whenever one of its readers' plans would.

    Attributes:
        by_share: Whether it does when as many rows have expired as are alive.
    """

    def __init__(self) -> None:
        self.by_share = True
        self._every: int | None = None
        self._passed: int | None = None

    def set_intervals(self, intervals: Iterable[int | None]) -> None:
        """Purge from now on as its readers want it.

        Args:
            intervals: What each of them says, at least one: microseconds, 0 for every step, or
                None for by share.
        """
        said = set(intervals)
        every = min((i for i in said if i is not None), default=None)
        self.by_share = None in said
        if every != self._every:
            self._every, self._passed = every, None

    def is_due(self, upto: int) -> bool:
        """Whether an interval has passed; asked once a step, of the instant it goes to."""
        if self._every is None:
            return False
        passed = upto // self._every if self._every else upto
        due = passed != self._passed
        self._passed = passed
        return due
