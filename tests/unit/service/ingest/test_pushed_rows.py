"""Waiting for pushed rows: as long as one may, and no longer than they can still come."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.ingest import pushed_rows
from millpond.service.ingest.pushed_rows import PushedRows


class Pushes:
    """An intake and a runtime: pushes become visible as the runtime is looked at."""

    def __init__(self, visible: int = 0, each_look: int = 0, trouble: str | None = None) -> None:
        self.visible, self.each_look, self.looks, self.woken = visible, each_look, 0, 0
        self.trouble = MillpondError(trouble, "trouble") if trouble else None

    def wait(self, upto: int, timeout: float) -> bool:
        assert 0 <= timeout <= 0.5
        self.looks += 1
        self.visible += self.each_look
        return self.visible >= upto

    def wake_inbox(self) -> None:
        self.woken += 1


def wait_on(pushes: Pushes) -> PushedRows:
    given: Any = pushes
    return PushedRows(given, given)


def test_nothing_pushed_is_not_waited_for() -> None:
    pushes = Pushes()
    wait_on(pushes).wait_for_stated()
    assert pushes.looks == 1


def test_the_last_push_of_a_statement_is_waited_for_whatever_the_order() -> None:
    pushes = Pushes(each_look=1)
    pushed = wait_on(pushes)
    pushed.note(5)
    pushed.note(3)
    assert pushes.woken == 2
    pushed.wait_for_stated()
    assert pushes.looks == 5


def test_without_a_timeout_the_wait_goes_on() -> None:
    pushes = Pushes(each_look=1)
    assert wait_on(pushes).wait(200, None)
    assert pushes.looks == 200


def test_the_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pushes = Pushes()
    assert not wait_on(pushes).wait(1, 0.0)
    assert not wait_on(pushes).wait(1, -1.0)
    monkeypatch.setattr(pushed_rows, "STATED_SECONDS", 0.0)
    pushed = wait_on(pushes)
    pushed.note(1)
    with pytest.raises(MillpondError, match="POND-405: rows inserted before are not visible yet"):
        pushed.wait_for_stated()


def test_rows_that_cannot_come_any_more_are_not_waited_for() -> None:
    with pytest.raises(MillpondError, match="POND-415"):
        wait_on(Pushes(trouble="POND-415")).wait(1, None)


def test_another_trouble_may_pass() -> None:
    assert wait_on(Pushes(each_look=1, trouble="POND-403")).wait(3, None)
