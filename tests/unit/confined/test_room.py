"""Large pieces of work hold room, wait for it in their order, and small ones never do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.confined.room import LARGE, Room
from millpond.errors import MillpondError
from millpond.testing.local_runtime import open_local
from millpond.work import Work, begin_work, finish_work, limit_work


def new_room(memory: int, **settings: int) -> Room:
    return Room(memory, "many wait", "Ask again.", **settings)


class Counted:
    """Threads that hold room: how many do now, and how many did at most."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.now = self.most = 0
        self._lock = threading.Lock()

    def hold(self, size: int) -> None:
        with self.room.hold(size):
            with self._lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(0.02)
            with self._lock:
                self.now -= 1


@contextmanager
def work_of(work: Work) -> Iterator[None]:
    token = begin_work(work)
    try:
        yield
    finally:
        finish_work(token)


@pytest.mark.parametrize(("size", "most"), [(LARGE, 2), (4 * LARGE, 1), (LARGE - 1, 12)])
def test_so_many_run_at_once(size: int, most: int) -> None:
    counted = Counted(new_room(2 * LARGE))
    with ThreadPoolExecutor(12) as threads:
        list(threads.map(counted.hold, [size] * 12))
    assert counted.most <= most
    assert counted.now == 0
    counted.hold(size)


def test_without_memory_each_runs_alone() -> None:
    counted = Counted(new_room(0))
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(counted.hold, [LARGE] * 6))
    assert counted.most == 1


def test_they_run_in_the_order_in_which_they_came() -> None:
    room, order = new_room(LARGE), []

    def run(number: int, size: int) -> None:
        with room.hold(size):
            order.append(number)

    with ThreadPoolExecutor(4) as threads, room.hold(LARGE):
        for number, size in enumerate((9 * LARGE, LARGE, LARGE)):
            threads.submit(run, number, size)
            time.sleep(0.05)
        threads.submit(run, 3, 10).result(60)  # a small one
    assert order == [3, 0, 1, 2]


def test_of_requests_few_wait() -> None:
    room = new_room(LARGE, most_waiting=1)

    def wait() -> None:
        with work_of(Work()), room.hold(LARGE):
            pass

    def hold_within(seconds: float) -> None:
        with limit_work(seconds), room.hold(LARGE):
            pass

    with ThreadPoolExecutor(3) as threads:
        with room.hold(LARGE):
            waiting = threads.submit(wait)
            time.sleep(0.1)
            with work_of(Work()), pytest.raises(MillpondError, match="SERVE-715"), room.hold(LARGE):
                pass
            other = threads.submit(Counted(room).hold, LARGE)  # for no request
            own = threads.submit(hold_within, 60.0)  # for a program with a limit of seconds
            time.sleep(0.1)
            assert not waiting.done()
            assert not other.done()
        waiting.result(60)
        other.result(60)
        own.result(60)


def test_who_waits_goes_when_the_request_ends() -> None:
    room = new_room(LARGE)
    with room.hold(LARGE):
        for work in (Work(0.1), Work()):
            timer = threading.Timer(0.2, work.end)
            timer.start()
            with work_of(work), pytest.raises(MillpondError, match="POND-405"), room.hold(LARGE):
                pass
            timer.join()
    Counted(room).hold(LARGE)


SELECTS = (
    "SELECT * FROM s",
    "SELECT t, n FROM s WHERE n >= 0",
    "SELECT upper(t) AS t FROM s",
    "SELECT * FROM s ORDER BY t, n",
    "SELECT t, n, count(*) AS c FROM s GROUP BY t, n HAVING count(*) > 0",
    "SELECT x.t, y.n FROM s AS x, s AS y WHERE x.n = y.n",
    "SELECT t, n FROM s [ROWS 50000]",
    "SELECT t, n FROM s [PARTITION BY n ROWS 1]",
    "SELECT t, n FROM r",
)


@pytest.mark.parametrize("select", SELECTS)
def test_an_evaluation_of_many_rows_holds_room(
    tmp_path: Path, select: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    hold = Room.hold

    def watched(room: Room, size: int):  # type: ignore[no-untyped-def]
        asked.append(size)
        return hold(room, size)

    monkeypatch.setattr(Room, "hold", watched)
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM s (n BIGINT, t STRING); CREATE RELATION r (n BIGINT, t STRING)")
        rows = pa.table({"n": pa.array(range(50_000)), "t": pa.array(["x" * 40] * 50_000)})
        if select.endswith("r"):
            values = ", ".join(f"({n}, '{'x' * 4_000}')" for n in range(500))
            pond.execute(f"INSERT INTO r VALUES {values}")
        pond.ingest("s", rows)
        pond.catch_up(30)
        asked.clear()
        assert pond.ask(select).table.num_rows in (50_000, 500)
        assert max(asked) > LARGE
        asked.clear()
        pond.ask("SELECT n, t FROM s [ROWS 9] WHERE n > 5")
        assert asked == [] or max(asked) < LARGE
        if select.endswith("FROM s"):
            asked.clear()
            part = pond.register("SELECT t, n FROM s", "q").invoke(budget="50000 probes")
            assert part.table.num_rows > 25_000
            assert max(asked) > LARGE
