"""Keeps Python's interpreter from halting a server, and a start.

A collection of all objects holds the interpreter's lock. Modules and compiled functions alone are
200,000 objects, which took 0.1 s a collection on an idle machine and half a second on a busy one;
all requests wait meanwhile. They live as long as the server, so they need not be looked at.

A thread that computes keeps the lock for 5 ms when others want it, and a push or an answer wants it
again after each of a dozen reads and writes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: Of how many new objects the youngest are collected, and of how many collections of the younger
#: the older. A request makes some thousand objects and leaves hardly any cycle.
_THRESHOLDS = (20_000, 10, 20)
#: How long a thread keeps the lock when others want it. Beside the registration of 50,000 queries a
#: push took 250 ms at the median with Python's 5 ms, and takes 114 with this; who computes is
#: slowed down by what the others get done meanwhile.
_TURN_SECONDS = 0.0005


def spare_what_stays() -> None:
    """Leave all objects there are now out of collections, and collect less often.

    Call it once, when everything is loaded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextmanager
def collecting_nothing() -> Iterator[None]:
    """Collect no garbage while code is loaded: nearly all that is made then stays.

    Looking for garbage meanwhile is a tenth of the time that loading takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def shorten_turns() -> None:
    """Let threads that wait for the interpreter's lock have it soon."""
    sys.setswitchinterval(_TURN_SECONDS)
