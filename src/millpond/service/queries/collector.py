"""Keeps Python's cycle collector away from large registrations, and gives back their memory."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: From how many queries on the collector waits, and from how many on it never looks at them.
_MANY, _VERY_MANY = 100, 10_000


def _give_back_memory() -> None:
    """Have the C library give the system what it keeps free; one without such a call keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def pause_collector(queries: int) -> Iterator[None]:
    """Keep the collector away while so many queries are registered.

    Hundreds of thousands of objects that stay are made at once, and the collector would walk all
    of them again and again: a third of the time of 10,000 registrations. With 100,000, even one
    walk behind them holds everything up for half a second. So very many are taken out of
    collections for good; they are freed all the same when their queries are dropped, since they
    form no cycles. Behind very many, the memory that registering them took is given back.
    """
    paused = queries > _MANY and gc.isenabled()
    if paused:
        if queries >= _VERY_MANY:
            gc.collect()  # no garbage of before is taken out with them
        gc.disable()
    try:
        yield
        if paused and queries >= _VERY_MANY:
            gc.freeze()
    finally:
        if paused:
            gc.enable()
        if queries >= _VERY_MANY:
            _give_back_memory()
