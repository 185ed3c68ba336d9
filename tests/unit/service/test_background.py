"""Work in the background: nobody's wish is lost, and nobody waits for work that will not come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from millpond.service.background import Background

#: Longer than any of these tests takes: reached only by what is broken.
PATIENCE = 20.0


class Worker(Background):
    """Counts its rounds; each calls what the test wants."""

    def __init__(self) -> None:
        super().__init__("worker")
        self.rounds = 0
        self.reached = threading.Semaphore(0)
        self.each: Callable[[], object] = lambda: None
        self.seconds: float | None = None

    def wait_seconds(self) -> float | None:
        return self.seconds

    def work(self) -> None:
        self.rounds += 1
        self.reached.release()
        self.each()


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.stop()


def test_it_works_only_when_it_is_woken(worker: Worker) -> None:
    worker.start()
    assert worker.wait_until_idle(PATIENCE)
    assert worker.rounds == 1
    assert worker.wait_until_idle(PATIENCE)
    assert worker.rounds == 2


def test_what_was_asked_before_it_started_is_done(worker: Worker) -> None:
    worker.wake()
    worker.start()
    assert worker.reached.acquire(timeout=PATIENCE)


def test_what_is_asked_during_a_round_has_a_round_of_its_own(worker: Worker) -> None:
    begun, may_end = threading.Event(), threading.Event()
    done: list[int] = []

    def each() -> None:
        done.append(worker._done)
        begun.set()
        may_end.wait(PATIENCE)

    worker.each = each
    worker.start()
    worker.wake()
    assert begun.wait(PATIENCE)
    # The round that runs began before this was asked, so its end is not enough.
    worker.wake()
    may_end.set()
    for _ in range(2):
        assert worker.reached.acquire(timeout=PATIENCE)
    assert worker.wait_until_idle(PATIENCE)
    assert done[:2] == [0, 1]


def test_it_looks_again_by_itself_after_a_while(worker: Worker) -> None:
    worker.seconds = 0.0
    worker.start()
    for _ in range(3):
        assert worker.reached.acquire(timeout=PATIENCE)


def test_who_waits_gives_up_after_the_timeout_and_when_it_stops(worker: Worker) -> None:
    assert not worker.wait_until_idle(timeout=0)
    worker.stop()
    assert worker.wait_until_idle(PATIENCE)
    assert worker.rounds == 0


def test_a_defect_does_not_end_the_thread(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.service.background._AFTER_DEFECT_SECONDS", 0.0)

    def fail() -> None:
        worker.each = lambda: None
        raise KeyError("a defect")

    worker.each = fail
    worker.start()
    worker.wake()
    for _ in range(2):
        assert worker.reached.acquire(timeout=PATIENCE)
    assert worker.wait_until_idle(PATIENCE)
    assert not worker.has_died


def test_work_of_many_pieces_ends_with_the_piece_that_is_done(worker: Worker) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    pieces: list[int] = []

    def each() -> None:
        for piece in range(10):
            worker.check_going()
            pieces.append(piece)
            begun.set()
            may_go_on.wait(PATIENCE)

    worker.each = each
    worker.start()
    worker.wake()
    assert begun.wait(PATIENCE)
    worker.end()
    assert not worker.has_ended(0.0)
    may_go_on.set()
    assert worker.has_ended(PATIENCE)
    assert pieces == [0]
    assert not worker.has_died


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ended_by_itself_has_died(worker: Worker) -> None:
    def end() -> None:
        raise SystemExit

    worker.each = end
    worker.start()
    worker.wake()
    assert worker.reached.acquire(timeout=PATIENCE)
    assert worker._thread is not None
    worker._thread.join(PATIENCE)
    assert worker.has_died
