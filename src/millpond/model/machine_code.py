"""Machine code on disk, kept by what it was compiled from.

Numba keeps a function's machine code until the function's own file changes, although functions and
constants of other files are compiled into it. Here the name of the file on disk holds a digest of
everything that is compiled in: the bytecode of the function and of every function it refers to,
directly or not, the constants they refer to, the signature, and the versions of the libraries. So
after any change, wherever it is, the next process compiles only the functions that depend on it.

- **What is read**: bytecode, since Numba compiles that; a comment or a moved line changes
  nothing. Every name of a function's bytecode is looked up among its globals, so an attribute with
  a global's name counts as that global: at worst a function is compiled once too often.
- **What cannot be read** is refused when the module is imported: an object of another kind, or a
  module of this project (whose functions are to be imported by name). Only functions registered
  with `numba.extending.overload` go unseen, because no name refers to them.
- **Processes at once**: a file's name says all that is in it, and a file appears whole. Two
  processes that compile the same function write the same file.
- **Superseded files** are removed when the function is next saved: a function has one file for
  each kind of machine, Python and compiler setting. (So two functions of one name in one file would
  be compiled in turns; and a function that was deleted leaves its last file.)
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core import config
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.serialize import dumps

#: Libraries whose functions are identified by the library's version.
_LIBRARIES = ("builtins", "math", "numpy", "numba", "llvmlite")
_VERSIONS = f"numba {numba.__version__} llvmlite {llvmlite.__version__} numpy {np.__version__}"


class KeptKernel:
    """A compiled function whose machine code is on disk, and is loaded when it is first called.

    To load one takes 10 ms, and a process calls few of the hundred that its modules have.
    """

    __slots__ = ("_call", "_dispatcher", "_signature")

    def __init__(self, dispatcher: Any, signature: Any) -> None:
        self._dispatcher = dispatcher
        self._signature = signature
        self._call = self._load_and_call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def _load_and_call(self, *arguments: Any) -> Any:
        return self.load()(*arguments)

    def read(self) -> Iterator[str | FunctionType]:
        """What is compiled into a function that calls this one, as if this one was loaded."""
        yield repr(sorted(self._dispatcher.targetoptions.items()))
        yield repr([self._signature])
        yield self._dispatcher.py_func

    def load(self) -> Any:
        """Load the machine code unless it is loaded; return Numba's function."""
        # Numba's own lock: it holds it, too, while it compiles a caller, and asks for this one.
        with global_compiler_lock:
            if self._call is not self._dispatcher:
                self._dispatcher.compile(self._signature)
                self._dispatcher.disable_compile()
                self._call = self._dispatcher
        return self._dispatcher

    @property
    def _numba_type_(self) -> Any:
        """What compiled functions take it for that call it."""
        return self.load()._numba_type_

    def __getattr__(self, name: str) -> Any:
        return getattr(self.load(), name)


def is_kept(dispatcher: Any, signature: Any) -> bool:
    """Whether the cache of a function, which `cache_of` made, has its machine code."""
    cache = dispatcher._cache
    key = cache._index_key(signature, dispatcher.targetctx.codegen())
    return bool(cache._cache_file.has(key))


def cache_of(function: FunctionType) -> FunctionCache:
    """Make Numba's cache of a function, its file named by its contents instead of by an index.

    Raises:
        RuntimeError: There is no folder that can be written.
        TypeError: The function refers to an object of which no digest can be computed.
    """
    cache = FunctionCache(function)
    name = function.__qualname__.replace("<", "").replace(">", "")
    stem = f"{Path(function.__code__.co_filename).stem}.{name}.{sys.implementation.cache_tag}"
    cache._cache_file = _Files(Path(cache.cache_path), stem, read_contents(function))
    return cache


def read_contents(function: FunctionType) -> bytes:
    """Compute a digest of all that is compiled into a function, the same in every process."""
    digest = blake2b(_VERSIONS.encode(), digest_size=16)
    reached = {function: None}
    waiting = [function]
    for found in waiting:
        own, callees = _read_function(found)
        digest.update(own)
        new = [callee for callee in callees if callee not in reached]
        reached.update(dict.fromkeys(new))
        waiting.extend(dict.fromkeys(new))
    return digest.digest()


@functools.cache
def _read_function(function: FunctionType) -> tuple[bytes, tuple[FunctionType, ...]]:
    """Compute a digest of one function's own code, and list the functions it refers to."""
    texts: list[str] = []
    callees: list[FunctionType] = []
    for part in _read_parts(function):
        if isinstance(part, str):
            texts.append(part)
        else:
            callees.append(part)
    return blake2b("\0".join(texts).encode(), digest_size=16).digest(), tuple(callees)


def _read_parts(function: FunctionType) -> Iterator[str | FunctionType]:
    globals_, closed = function.__globals__, function.__closure__ or ()
    referred = dict(zip(function.__code__.co_freevars, closed, strict=True))
    values = {name: cell.cell_contents for name, cell in referred.items()}
    for code in _nested(function.__code__):
        yield from _read_code(code)
        values |= {name: globals_[name] for name in code.co_names if name in globals_}
    values["defaults"] = function.__defaults__
    values["keyword defaults"] = tuple((function.__kwdefaults__ or {}).items())
    for name, value in values.items():
        yield name
        try:
            yield from _read_value(value)
        except TypeError as error:
            raise TypeError(f"{function.__qualname__} refers to {name}: {error}") from None


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _read_code(code: CodeType) -> Iterator[str]:
    yield repr((code.co_code, code.co_exceptiontable, code.co_flags, code.co_names))
    yield repr((code.co_varnames, code.co_cellvars, code.co_freevars))
    yield repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount))
    for constant in code.co_consts:
        if isinstance(constant, frozenset):  # in another order in every process
            yield repr(sorted(map(repr, constant)))
        elif not isinstance(constant, CodeType):
            yield repr(constant)


def _read_value(value: object) -> Iterator[str | FunctionType]:
    if isinstance(value, KeptKernel):
        yield from value.read()
    elif isinstance(value, Dispatcher):
        yield repr(sorted(value.targetoptions.items()))
        # A function compiled for given types: they decide what its arguments are cast to.
        given = not value._can_compile  # type: ignore[attr-defined]
        yield repr(value.nopython_signatures) if given else ""
        yield value.py_func
    elif isinstance(value, _Intrinsic):
        yield value._defn
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        yield repr(value)
    elif type(value) is tuple:
        yield str(len(value))
        for item in value:
            yield from _read_value(item)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {blake2b(value.tobytes()).hexdigest()}"
    else:
        module = str(value.__name__ if isinstance(value, ModuleType) else value.__module__)
        if module.partition(".")[0] in _LIBRARIES:
            name = getattr(value, "__qualname__", None)  # its repr may hold an address
            yield repr(value) if name is None else f"{module}.{name}"
        elif isinstance(value, FunctionType):
            yield value
        else:
            raise TypeError(f"machine code cannot be kept by the contents of {value!r}")


class _Files:
    """A function's machine code, one file for each signature and kind of machine.

    Stands in for the index of `FunctionCache`, which makes the keys and calls `load` and `save`.
    """

    def __init__(self, folder: Path, stem: str, contents: bytes) -> None:
        self._folder = folder
        self._stem = stem
        self._contents = contents

    def has(self, key: tuple[Any, ...]) -> bool:
        """Whether something was saved under this key."""
        return (self._folder / self._name(key)).is_file()

    def load(self, key: tuple[Any, ...]) -> Any:
        """Load what was saved under this key; None if there is nothing, or only half of it."""
        with suppress(OSError, EOFError, pickle.UnpicklingError):
            return pickle.loads((self._folder / self._name(key)).read_bytes())
        return None

    def save(self, key: tuple[Any, ...], data: Any) -> None:
        """Save, and remove what was saved for the same machine from other contents.

        Code that cannot be saved is compiled again by the next process, which is no error. Another
        process may remove the file while it is written, having written its own.
        """
        name = self._name(key)
        beginning = name.rpartition("-")[0] + "-"
        written = self._folder / f"{name}.{uuid.uuid4().hex}"
        with suppress(OSError):
            written.write_bytes(dumps(data))
            os.replace(written, self._folder / name)
            for entry in os.listdir(self._folder):
                if entry.startswith(beginning) and entry != name:
                    (self._folder / entry).unlink(missing_ok=True)

    def _name(self, key: tuple[Any, ...]) -> str:
        signature, machine, _ = key  # the third is of the function's own bytecode alone
        settings = (machine, config.OPT, config.BOUNDSCHECK, config.DEBUGINFO_DEFAULT)
        kind = blake2b(repr(settings).encode(), digest_size=4).hexdigest()
        contents = blake2b(self._contents + repr(signature).encode(), digest_size=12).hexdigest()
        return f"{self._stem}-{kind}-{contents}.nbc"
