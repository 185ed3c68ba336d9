"""A server's collections of garbage leave out what stays, and its threads take turns often."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref

import pytest

from millpond.cli.interpreter import collecting_nothing, shorten_turns, spare_what_stays


class _Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_stays_is_left_out_and_new_cycles_are_collected() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    held = [_Node()]
    gone = weakref.ref(_Node())
    try:
        gc.set_threshold(700, 10, 10)
        spare_what_stays()
        assert gone() is None
        assert gc.get_freeze_count() > frozen
        assert not any(found is held[0] for found in gc.get_objects())
        later = weakref.ref(_Node())
        gc.collect()
        assert later() is None
        assert gc.get_threshold() > (700, 10, 10)
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_nothing_is_collected_while_code_is_loaded() -> None:
    def load() -> None:
        with collecting_nothing():
            assert not gc.isenabled()
            raise ImportError

    assert gc.isenabled()
    with pytest.raises(ImportError):
        load()
    assert gc.isenabled()
    gc.disable()
    try:
        with collecting_nothing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_thread_that_waits_often_goes_on_beside_one_that_computes() -> None:
    """It wants the interpreter's lock after each of its waits."""
    before, stop = sys.getswitchinterval(), threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(100))

    def count_waits(seconds: float) -> int:
        found, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.0001)
            found += 1
        return found

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        sys.setswitchinterval(0.02)
        seldom = count_waits(0.5)
        shorten_turns()
        often = count_waits(0.5)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
    assert often > 3 * seldom
