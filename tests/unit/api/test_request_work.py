"""The answers that are being computed have a limit together."""

from __future__ import annotations

import pytest

from millpond.api.request_work import AnswerMemory
from millpond.errors import MillpondError
from millpond.work import Work, begin_work, finish_work, hold_memory

MB = 1 << 20


def test_an_answer_for_which_there_is_no_room_is_refused() -> None:
    memory = AnswerMemory(10 * MB)
    first, second, small = (Work(check_memory=memory.check) for _ in range(3))
    first.hold(9 * MB)
    second.hold(MB // 2)
    with pytest.raises(MillpondError, match="SERVE-715"):
        second.hold(MB)
    memory.release(second)
    small.hold(MB)  # a small one never has to wait for the large ones of others
    small_again = Work(check_memory=memory.check)
    small_again.hold(MB)
    memory.release(small)
    memory.release(small_again)
    memory.release(first)
    Work(check_memory=memory.check).hold(10 * MB)


def test_one_answer_alone_may_be_larger() -> None:
    Work(check_memory=AnswerMemory(MB).check).hold(5 * MB)


def test_rows_are_counted_for_the_request_a_thread_works_for() -> None:
    hold_memory(MB)  # without a request, nobody counts
    work = Work()
    token = begin_work(work)
    hold_memory(MB)
    finish_work(token)
    assert work.held == MB
