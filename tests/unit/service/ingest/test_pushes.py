"""Waiting for pushed rows: as long as one may, and no longer than they can still come."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.ingest import pushes
from millpond.service.ingest.pushes import Pushes


class Intake:
    """An intake and a runtime: pushes become visible as the runtime is looked at."""

    def __init__(self, visible: int = 0, each_look: int = 0, trouble: str | None = None) -> None:
        self.visible, self.each_look, self.looks, self.woken = visible, each_look, 0, 0
        self.starts = 0
        self.trouble = MillpondError(trouble, "trouble") if trouble else None

    def wait(self, upto: int, timeout: float) -> bool:
        assert 0 <= timeout <= 0.5
        self.looks += 1
        self.visible += self.each_look
        return self.visible >= upto

    def wake_inbox(self) -> None:
        self.woken += 1

    def wait_until_started(self) -> None:
        self.starts += 1


def wait_on(intake: Intake) -> Pushes:
    given: Any = intake
    return Pushes(given, given)


def test_nothing_pushed_is_not_waited_for() -> None:
    intake = Intake()
    wait_on(intake).wait_for_stated()
    assert (intake.looks, intake.starts) == (1, 0)


def test_the_last_push_of_a_statement_is_waited_for_whatever_the_order() -> None:
    intake = Intake(each_look=1)
    pushed = wait_on(intake)
    pushed.note(5)
    pushed.note(3)
    assert intake.woken == 2
    pushed.wait_for_stated()
    assert (intake.looks, intake.starts) == (5, 1)  # the minute begins when Spark runs


def test_visible_rows_do_not_wait_for_spark() -> None:
    intake = Intake(visible=5)
    pushed = wait_on(intake)
    pushed.note(5)
    pushed.wait_for_stated()
    assert intake.starts == 0


def test_without_a_timeout_the_wait_goes_on() -> None:
    intake = Intake(each_look=1)
    assert wait_on(intake).wait(200, None)
    assert intake.looks == 200


def test_the_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    intake = Intake()
    assert not wait_on(intake).wait(1, 0.0)
    assert not wait_on(intake).wait(1, -1.0)
    monkeypatch.setattr(pushes, "STATED_SECONDS", 0.0)
    pushed = wait_on(intake)
    pushed.note(1)
    with pytest.raises(MillpondError, match="POND-405: rows inserted before are not visible yet"):
        pushed.wait_for_stated()


def test_rows_that_cannot_come_any_more_are_not_waited_for() -> None:
    with pytest.raises(MillpondError, match="POND-415"):
        wait_on(Intake(trouble="POND-415")).wait(1, None)


def test_another_trouble_may_pass() -> None:
    assert wait_on(Intake(each_look=1, trouble="POND-403")).wait(3, None)
