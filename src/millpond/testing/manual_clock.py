"""A clock that moves only when a test moves it, so that tests with time need not sleep."""

from __future__ import annotations

from datetime import timedelta

from millpond.model.time import Instant


class ManualClock:
    """The clock of a pond under test; call it to read the instant it shows.

    It never goes back: arrival times are non-decreasing (SEMANTICS, section 1), so a test that
    turned the clock back would test a case that ponds do not define.

    >>> clock = ManualClock(5)
    >>> clock.advance(timedelta(seconds=1)), clock()
    (1000005, 1000005)
    """

    def __init__(self, at: int = 0) -> None:
        self._at = Instant(at)

    def __call__(self) -> Instant:
        return self._at

    def now(self) -> Instant:
        """The instant the clock shows."""
        return self._at

    def set(self, at: int) -> Instant:
        """Move the clock to an instant.

        Raises:
            ValueError: the instant is before the one the clock shows.
        """
        if at < self._at:
            raise ValueError(f"the clock cannot go back from {self._at} to {at}")
        self._at = Instant(at)
        return self._at

    def advance(self, by: timedelta | int) -> Instant:
        """Move the clock on by a duration, or by a number of microseconds."""
        step = by // timedelta(microseconds=1) if isinstance(by, timedelta) else by
        return self.set(self._at + step)
