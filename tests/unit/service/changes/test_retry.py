"""Retries: when stopped streams are tried again."""

from __future__ import annotations

from millpond.errors import MillpondError
from millpond.service.changes.retry import FIRST_SECONDS, MOST_SECONDS, Retries

ERROR = MillpondError("POND-404", "no")


def test_each_failure_waits_twice_as_long() -> None:
    now = [0.0]
    stopped = Retries(lambda: now[0])
    assert (stopped.get(1), stopped.is_backing_off(1), stopped.seconds_until_retry({1})) == (
        None,
        False,
        None,
    )
    waits = []
    for _ in range(9):
        stopped.note(1, ERROR)
        wait = stopped.seconds_until_retry({1})
        assert wait is not None
        waits.append(wait)
        assert stopped.is_backing_off(1)
        now[0] += wait
        assert not stopped.is_backing_off(1)
        assert stopped.get(1) is ERROR
    assert waits[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert waits[-1] == MOST_SECONDS


def test_one_may_be_tried_at_once_or_go_on() -> None:
    stopped = Retries(lambda: 0.0)
    stopped.note(1, ERROR)
    stopped.note(2, ERROR)
    stopped.retry(1)
    stopped.retry(3)
    assert (stopped.is_backing_off(1), stopped.is_backing_off(2), stopped.get(3)) == (
        False,
        True,
        None,
    )
    stopped.note(1, ERROR)
    assert stopped.seconds_until_retry({1, 2}) == FIRST_SECONDS
    stopped.clear(1)
    assert stopped.get(1) is None


def test_what_is_dropped_is_forgotten() -> None:
    stopped = Retries(lambda: 0.0)
    stopped.note(1, ERROR)
    assert stopped.seconds_until_retry({2}) is None
    assert stopped.get(1) is None
