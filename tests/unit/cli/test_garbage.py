"""A server's collections of garbage leave out what stays, and still find cycles."""

from __future__ import annotations

import gc
import weakref

import pytest

from millpond.cli.garbage import collecting_nothing, spare_what_stays


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
