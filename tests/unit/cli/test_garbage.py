"""A server's collections of garbage leave out what stays, and still find cycles."""

from __future__ import annotations

import gc
import weakref

from millpond.cli.garbage import spare_what_stays


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
