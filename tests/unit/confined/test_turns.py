"""Evaluations begin quick and small; what is not goes on in its turn, or begins anew."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest

from millpond.confined.turns import NeedsMoreError, Turn, Turns
from millpond.engine.scalars.residual_query import Limits, Residual
from millpond.errors import MillpondError
from millpond.work import Work, begin_work, finish_work, keeping_rows

MB = 1 << 20
#: Eight million pairs, kept in groups: beyond what a quick evaluation may keep.
LARGE = "SELECT count(*) AS c FROM (SELECT DISTINCT a.n, b.n FROM t AS a, t AS b WHERE a.k = b.k)"
ROWS = pa.table({"n": list(range(1200)), "k": [n % 2 for n in range(1200)]})


def test_each_beginning_has_more_memory_and_the_last_one_all() -> None:
    begun: list[tuple[int, bool]] = []

    def compute(turn: Turn) -> int:
        begun.append((turn.memory >> 20, turn.has_most))
        if not turn.has_most:
            raise NeedsMoreError
        return len(begun)

    turns = Turns(512 * MB)
    assert turns.run(compute) == 3
    assert begun == [(16, False), (128, False), (512, True)]
    begun.clear()
    assert turns.run(compute, 100 * MB) == 2
    assert begun == [(16, False), (100, True)]
    begun.clear()
    assert turns.run(compute, 4 * MB) == 1
    assert begun == [(4, True)]


def test_rows_that_are_made_count_and_are_half_of_it_at_most() -> None:
    def compute(turn: Turn) -> int:
        assert turn.use(6 * MB)
        if not turn.use(6 * MB):
            return -1
        return turn.memory >> 20

    assert Turns(512 * MB).run(compute) == 128
    assert Turns(16 * MB).run(compute) == -1


def spin(turn: Turn) -> bool:
    """Work for longer than a quick turn; whether it was never interrupted."""
    ended = threading.Event()
    with turn.watch(ended.set):
        until = time.thread_time() + 0.2
        while time.thread_time() < until and not ended.is_set():
            pass
    if turn.is_over:
        raise NeedsMoreError
    return not ended.is_set()


def test_a_long_evaluation_goes_on_where_there_is_room_and_waits_where_there_is_none() -> None:
    turns = Turns(512 * MB)
    begun: list[Turn] = []

    def compute(turn: Turn) -> bool:
        begun.append(turn)
        return spin(turn)

    assert turns.run(compute)
    assert len(begun) == 1
    with ThreadPoolExecutor(1) as threads:
        with turns.long.hold(512 * MB):
            waiting = threads.submit(turns.run, compute)
            while len(begun) < 2 or not begun[1].is_over:
                time.sleep(0.01)
            assert turns.run(lambda turn: 7) == 7  # quick ones do not wait for long ones
            assert not waiting.done()
        assert waiting.result(60)
    assert [turn.memory >> 20 for turn in begun[1:]] == [16, 128]


def test_all_turns_are_given_back() -> None:
    turns = Turns(64 * MB)

    def fail(turn: Turn) -> None:
        turn.leave()
        raise MillpondError("POND-404", "it failed")

    for _ in range(40):
        with pytest.raises(MillpondError):
            turns.run(fail)
    assert turns.quick._held == turns.long._held == 0


def test_an_equality_of_few_values_is_evaluated_again_with_more_memory() -> None:
    residual = Residual()
    assert residual.evaluate(LARGE, {"t": ROWS}).to_pylist() == [{"c": 720_000}]
    # The large database is closed; the quick one came to its limit, and is too.
    assert residual._idle == []
    with pytest.raises(MillpondError, match="POND-405: the query needs more memory"):
        residual.evaluate(LARGE, {"t": ROWS}, Limits(memory=8 * MB))


def test_what_a_request_held_of_an_answer_is_let_go_of_when_it_begins_anew() -> None:
    held: list[tuple[int, int]] = []
    work = Work(check_memory=lambda sum, more: held.append((sum, more)))
    token = begin_work(work)

    def compute(turn: Turn) -> None:
        work.hold(100)
        if not turn.has_most:
            raise NeedsMoreError

    try:
        Turns(512 * MB).run(compute)
    finally:
        finish_work(token)
    assert work.held == 100
    assert held == [(100, 100), (0, -100), (100, 100), (0, -100), (100, 100)]


def test_many_long_ones_of_requests_are_refused() -> None:
    turns = Turns(64 * MB)

    def compute(turn: Turn) -> bool:
        return turn.has_most or spin(turn)

    def ask() -> str:
        token = begin_work(Work())
        try:
            turns.run(compute)
        except MillpondError as error:
            return error.code
        finally:
            finish_work(token)
        return "answered"

    with turns.long.hold(64 * MB), ThreadPoolExecutor(20) as threads:
        asked = [threads.submit(ask) for _ in range(20)]
        while sum(future.done() for future in asked) < 4:
            time.sleep(0.01)
        assert {future.result() for future in asked if future.done()} == {"SERVE-715"}
        turns.long.leave(64 * MB)
        assert sorted({future.result(120) for future in asked}) == ["SERVE-715", "answered"]
        turns.long.enter(64 * MB)


def test_the_rows_of_a_long_evaluation_keep_their_room_until_a_request_has_sent_them() -> None:
    turns = Turns(64 * MB)

    def compute(turn: Turn) -> pa.Table:
        if not turn.has_most:
            raise NeedsMoreError
        return pa.table({"n": range(1_000_000)})

    turns.run(compute)
    assert turns.long._held == 0  # for no request
    work = Work()
    token = begin_work(work)
    try:
        rows = turns.run(compute)
        assert turns.long._held == 0  # a request that follows, say, and does not end
        with keeping_rows():
            rows = turns.run(compute)
            assert turns.long._held == rows.nbytes == 8_000_000
            turns.run(compute)  # the second one needs all, and does not wait for the first
            assert turns.long._held == rows.nbytes
            turns.run(lambda turn: rows)  # a quick one's are few
            assert turns.long._held == rows.nbytes
        assert turns.long._held == turns.quick._held == 0
    finally:
        finish_work(token)


def test_two_requests_never_wait_for_the_rows_of_each_other() -> None:
    turns = Turns(512 * MB)
    met = threading.Barrier(2)

    def compute(least: int, turn: Turn) -> pa.Table:
        if turn.memory < least:
            raise NeedsMoreError
        return pa.table({"n": range(1_000_000)})

    def ask_twice() -> int:
        token = begin_work(Work())
        try:
            with keeping_rows():
                turns.run(partial(compute, 128 * MB))
                met.wait(60)  # both keep the room of rows, and both need all the room now
                return int(turns.run(partial(compute, 512 * MB)).num_rows)
        finally:
            finish_work(token)

    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(ask_twice) for _ in range(2)]
        assert [future.result(60) for future in asked] == [1_000_000] * 2
    assert turns.long._held == 0
