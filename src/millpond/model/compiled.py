"""Functions compiled to machine code when their module is imported, and kept on disk.

Compiling takes seconds, loading compiled code milliseconds. Machine code is kept beside the source
if that folder can be written, else in the user's cache directory (or `NUMBA_CACHE_DIR`), under a
digest of everything that was compiled into it (`machine_code`). Where nothing can be written, the
function is compiled anew in each process. Who looks at a terminal meanwhile is told why it takes so
long.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from numba import njit, types

from millpond.model.machine_code import cache_of

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


def compiled(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for one signature; it runs without the interpreter's lock."""

    def compile_function(function: Any) -> Any:
        kernel = njit(nogil=True)(function)
        if kernel is function:  # NUMBA_DISABLE_JIT
            return function
        try:
            kernel._cache = cache_of(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
        began = time.monotonic()
        kernel.compile(signature)
        if kernel.stats.cache_misses:
            _tell_compiling(time.monotonic() - began)
        kernel.disable_compile()
        return kernel

    return compile_function


def _tell_compiling(seconds: float) -> None:
    """Say once what is going on, when compiling has taken a while."""
    before, _spent[0] = _spent[0], _spent[0] + seconds
    if before < _LONG <= _spent[0] and sys.stderr.isatty():
        print(
            "Millpond compiles its inner loops, once in an installation: a minute or two",
            file=sys.stderr,
            flush=True,
        )


#: How many seconds of compiling are a while.
_LONG = 2.0
_spent = [0.0]
