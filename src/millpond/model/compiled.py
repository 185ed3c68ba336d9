"""Functions compiled to machine code when their module is imported, and kept on disk.

Compiling takes seconds, loading compiled code milliseconds; what is on disk is loaded when it is
first called. Machine code is kept beside the source if that folder can be written, else in the
user's cache directory (or `NUMBA_CACHE_DIR`), under a digest of everything that was compiled into
it (`machine_code`). Where nothing can be written, the function is compiled anew in each process.

Meanwhile nothing else happens. So `CompileProgress` says that functions are compiled once it has
taken two seconds, then every ten seconds, and at its end. Where the log takes `info` (`millpond
serve`), these are its lines; otherwise a terminal gets the first of them.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from numba import njit, types

from millpond.model.machine_code import KeptKernel, cache_of, is_kept

log = logging.getLogger("millpond.compile")

#: How many seconds of compiling are a while, and how many pass between two lines.
LONG = 2.0
EVERY = 10.0

_BEGINS = "compiles its inner loops, once in an installation: a minute or two"


class CompileProgress:
    """How much was compiled in this process, and what was said of it. Safe from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._functions = 0
        self._unkept = 0
        self._spent = 0.0
        self._began = 0.0
        self._said_at: float | None = None

    def add(self, seconds: float, *, kept: bool) -> None:
        """Count one function that was compiled just now, in so many seconds.

        Args:
            seconds: How long compiling it took.
            kept: Whether its machine code could be kept on disk, for the next process.
        """
        with self._lock:
            now = self._clock()
            if not self._functions:
                self._began = now - seconds
            self._functions += 1
            self._unkept += not kept
            self._spent += seconds
            if self._said_at is None:
                if self._spent >= LONG:
                    self._said_at = now
                    self._say_beginning()
            elif now - self._said_at >= EVERY:
                self._said_at = now
                log.info("compiled %d functions in %.0f s", self._functions, now - self._began)

    def finish(self) -> None:
        """Say how long compiling took, if it was said that it began."""
        with self._lock:
            functions, unkept, took = self._functions, self._unkept, self._clock() - self._began
            told = self._said_at is not None
            self._reset()
        if told:
            log.info("compiled all %d functions in %.0f s", functions, took)
        if told and unkept:
            log.warning(
                "%d compiled functions cannot be kept on disk, so every start compiles them again:"
                " set NUMBA_CACHE_DIR to a directory that can be written",
                unkept,
            )

    @staticmethod
    def _say_beginning() -> None:
        if log.isEnabledFor(logging.INFO) and log.hasHandlers():
            log.info("Millpond %s", _BEGINS)
        elif sys.stderr.isatty():
            print(f"Millpond {_BEGINS}", file=sys.stderr, flush=True)


#: What is compiled in this process.
progress = CompileProgress()

#: The functions of this process whose machine code is on disk.
kernels: list[KeptKernel] = []


def load_kernels() -> None:
    """Load all machine code now, for the processes that are forked from this one."""
    for kernel in kernels:
        kernel.load()


#: Arrays a function only reads: the type takes writable arrays too, so one version is enough.
READ_U8 = types.Array(types.uint8, 1, "C", readonly=True)
READ_I32 = types.Array(types.int32, 1, "C", readonly=True)
READ_U32 = types.Array(types.uint32, 1, "C", readonly=True)
READ_I64 = types.Array(types.int64, 1, "C", readonly=True)
READ_U64 = types.Array(types.uint64, 1, "C", readonly=True)
READ_F64 = types.Array(types.float64, 1, "C", readonly=True)
#: Arrays a function writes.
U8 = types.Array(types.uint8, 1, "C")
I32 = types.Array(types.int32, 1, "C")
U32 = types.Array(types.uint32, 1, "C")
I64 = types.Array(types.int64, 1, "C")
U64 = types.Array(types.uint64, 1, "C")
F64 = types.Array(types.float64, 1, "C")


def called(function: Any) -> Any:
    """Compile a function that compiled functions call, and that makes no array.

    Numba counts the references to every array that a function is called with, up and down, by
    instructions that lock memory: where little is done in a call they take most of its time. No
    array can be freed in a function that makes none, so here they are not counted.
    """
    return njit(_nrt=False)(function)


def compiled(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for one signature; it runs without the interpreter's lock."""

    def compile_function(function: Any) -> Any:
        kernel = njit(nogil=True)(function)
        if kernel is function:  # NUMBA_DISABLE_JIT
            return function
        kept = True
        try:
            kernel._cache = cache_of(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            kept = False
        if kept and is_kept(kernel, signature):
            kernels.append(KeptKernel(kernel, signature))
            return kernels[-1]
        began = time.monotonic()
        kernel.compile(signature)
        if kernel.stats.cache_misses:
            progress.add(time.monotonic() - began, kept=kept)
        kernel.disable_compile()
        return kernel

    return compile_function
