"""A clock that moves only when told to, so that a test with time in it has no sleep in it."""

from __future__ import annotations

from datetime import timedelta

from millpond.model.time import Instant


class ManualClock:
    """The clock of a pond under test; call it for the instant it shows.

    It never goes back: arrival times are non-decreasing (SEMANTICS, section 1), and a test that
    turned its clock back would be testing something no pond promises.

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
        """Moves the clock to an instant.

        Raises:
            ValueError: the instant is before the one the clock shows.
        """
        if at < self._at:
            raise ValueError(f"the clock cannot go back from {self._at} to {at}")
        self._at = Instant(at)
        return self._at

    def advance(self, by: timedelta | int) -> Instant:
        """Moves the clock on by a duration, or by a number of microseconds."""
        step = by // timedelta(microseconds=1) if isinstance(by, timedelta) else by
        return self.set(self._at + step)
