"""User-defined functions: Python over Arrow arrays, called by DuckDB wherever it evaluates CQL.

A function gets its arguments as Arrow arrays, a batch of rows at a time (at most 2,048, DuckDB's
vectors), and gives back an array of as many values. Connections learn a function when the first
expression that calls it is put to them (`Functions.teach`). Workers find what they have not seen
in the folder the pond keeps its functions in; names are of content (`model.function_names`), so
what was loaded under a name once is right for ever.

What a function does is its author's: it may raise, give what was not promised, or never come back.
All of that becomes a `FunctionFault`, which DuckDB reports as the failure of the one evaluation:

- INV-UDF-1: a call returns to DuckDB within its limit. It is made in a thread of its own, which is
  left behind if it does not come back in time.
- INV-UDF-2: what reaches DuckDB has as many values as there were rows, of the type promised.
"""

from __future__ import annotations

import ctypes
import pickle
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from millpond.catalog.objects import FunctionDef
from millpond.errors import MillpondError
from millpond.model.function_names import names_inside
from millpond.model.schema import arrow_type
from millpond.planner.resolve.user_functions import create_in

#: Seconds after a call was given up during which the function is not called again with nearly as
#: many rows: the parts of a failed evaluation are tried one by one, and few of them are to wait as
#: long again. With half the rows or fewer it may be in time, and is given the chance.
_REST_SECONDS = 5.0
#: Seconds a row is taken to cost in a function of which nothing is known.
_UNKNOWN_PRICE = 10e-6
_TOO_LONG = "took longer than"
_FAULT = re.compile(r"FunctionFault: (.*)", re.DOTALL)
#: What every fault's text begins with.
_SUBJECT = 'function "'


class FunctionFault(Exception):
    """A function did not do what its author promised; the text says which and what."""


class _CallGivenUp(BaseException):
    """Raised inside a call that took too long, so that a loop in Python ends."""


@dataclass(frozen=True)
class Usage:
    """What a function cost: calls, the rows they were given, the seconds they took."""

    calls: int = 0
    rows: int = 0
    seconds: float = 0.0

    def plus(self, other: Usage) -> Usage:
        return Usage(self.calls + other.calls, self.rows + other.rows, self.seconds + other.seconds)

    def minus(self, other: Usage) -> Usage:
        return Usage(self.calls - other.calls, self.rows - other.rows, self.seconds - other.seconds)


class Functions:
    """The functions this process knows, by their names inside; safe to use from many threads."""

    def __init__(self) -> None:
        self._known: dict[str, _GuardedFunction] = {}
        self._folders: list[Path] = []
        self._usage: dict[str, Usage] = {}
        self._lock = threading.Lock()

    def add(self, definition: FunctionDef) -> None:
        """Make a function known."""
        with self._lock:
            if definition.inside not in self._known:
                self._known[definition.inside] = _GuardedFunction(definition, self._add_usage)

    def look_in(self, folder: Path) -> None:
        """Where to look for functions that are not known."""
        with self._lock:
            if folder not in self._folders:
                self._folders.append(folder)

    def find(self, inside: str) -> _GuardedFunction | None:
        """A function by its name inside, loaded if it has to be."""
        found = self._known.get(inside)
        if found is None:
            for folder in list(self._folders):
                try:
                    self.add(load(folder / inside))
                except OSError:
                    continue
                found = self._known.get(inside)
        return found

    def cost(self, inside: str) -> float | None:
        """What the author said a row costs."""
        found = self.find(inside)
        return found.definition.cost if found is not None else None

    def price(self, inside: str) -> float:
        """Seconds a row costs: as measured, else as its author said (in µs), else a guess."""
        with self._lock:
            spent = self._usage.get(inside)
        if spent is not None and spent.rows:
            return spent.seconds / spent.rows
        said = self.cost(inside)
        return _UNKNOWN_PRICE if said is None else said * 1e-6

    def teach(
        self, connection: duckdb.DuckDBPyConnection, taught: set[str], sqls: Iterable[str]
    ) -> None:
        """Make the functions some SQL calls known to a connection; `taught` is what it knows."""
        for sql in sqls:
            for inside in names_inside(sql) - taught:
                function = self.find(inside)
                if function is not None:
                    create_in(connection, function.definition, function)
                    taught.add(inside)

    def usage(self) -> dict[str, Usage]:
        """What calls have cost so far, by name inside."""
        with self._lock:
            return dict(self._usage)

    def take_usage(self) -> dict[str, Usage]:
        """What calls have cost since this was last called: what a worker reports."""
        with self._lock:
            usage, self._usage = self._usage, {}
            return usage

    def report(self, usage: Mapping[str, Usage]) -> None:
        """Add what calls have cost in another process."""
        with self._lock:
            for inside, spent in usage.items():
                self._usage[inside] = self._usage.get(inside, Usage()).plus(spent)

    def _add_usage(self, inside: str, spent: Usage) -> None:
        with self._lock:
            self._usage[inside] = self._usage.get(inside, Usage()).plus(spent)


#: The functions of this process.
functions = Functions()


def save(definition: FunctionDef, folder: Path) -> None:
    """Write a function where workers look for it; a reader sees all of the file or none."""
    path = folder / definition.inside
    if not path.exists():
        folder.mkdir(exist_ok=True)
        part = path.with_suffix(f".{threading.get_ident()}")
        part.write_bytes(pickle.dumps(definition, protocol=5))
        part.replace(path)


def load(path: Path) -> FunctionDef:
    """The function `save` wrote; the store is trusted like the code."""
    definition = pickle.loads(path.read_bytes())
    assert isinstance(definition, FunctionDef)
    return definition


def fault_of(error: BaseException) -> str | None:
    """What a function did wrong, if that is why an evaluation by DuckDB failed."""
    match = _FAULT.search(str(error))
    return match[1].split("\n\nLINE ")[0].strip() if match else None


def took_too_long(error: BaseException) -> bool:
    """Whether an evaluation by DuckDB failed because it, or a call in it, was given up."""
    slow = (fault_of(error) or "").partition(_TOO_LONG)[1]
    return bool(slow) or isinstance(error, duckdb.InterruptException)


def is_fault(text: str) -> bool:
    """Whether the reason of a failure is a function's fault."""
    return text.startswith(_SUBJECT)


def function_failed_error(fault: str) -> MillpondError:
    """The error of an answer that cannot be given because of a function's fault."""
    return MillpondError(
        "POND-411",
        "a user-defined function failed",
        detail=fault[0].upper() + fault[1:],
        hint="Mend the function, define it anew, and ALTER QUERY … SET (active = true).",
    )


class _GuardedFunction:
    """A function as DuckDB calls it: limited, checked and measured."""

    def __init__(self, definition: FunctionDef, measured: Callable[[str, Usage], None]) -> None:
        self.definition = definition
        self._add_usage = measured
        self._type = arrow_type(definition.returns)
        self._function: Callable[..., Any] | None = None
        self._rests_until = 0.0
        #: Rows of the call that was given up.
        self._gave_up_on = 0

    def __call__(self, *columns: Any) -> pa.Array:
        arrays = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
        rows = len(arrays[0])
        if time.monotonic() < self._rests_until and 2 * rows > self._gave_up_on:
            raise self._fault(self._describe_timeout())
        started = time.perf_counter()
        try:
            given = self._call(arrays)
        finally:
            spent = Usage(1, rows, time.perf_counter() - started)
            self._add_usage(self.definition.inside, spent)
        return self._check(given, rows)

    def _call(self, arrays: list[pa.Array]) -> Any:
        function = self._load()
        outcome = _in_time(lambda: function(*arrays), self.definition.max_seconds)
        if outcome is None:
            self._rests_until = time.monotonic() + _REST_SECONDS
            self._gave_up_on = len(arrays[0])
            raise self._fault(self._describe_timeout())
        value, error = outcome
        if error is not None:
            text = str(error).split("\n", 1)[0].strip()
            said = f"{type(error).__name__}: {text}" if text else type(error).__name__
            raise self._fault(f"raised {said[:300]}")
        return value

    def _load(self) -> Callable[..., Any]:
        if self._function is None:
            try:
                self._function = cloudpickle.loads(self.definition.code)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                said = f"{type(error).__name__}: {error}".split("\n", 1)[0]
                raise self._fault(f"cannot be loaded here: {said[:300]}") from None
        assert self._function is not None
        return self._function

    def _check(self, given: Any, rows: int) -> pa.Array:
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        if not isinstance(given, pa.Array):
            raise self._fault(f"gave {_a(type(given).__name__)} instead of an Arrow array")
        if len(given) != rows:
            raise self._fault(f"gave {_count(len(given), 'value')} for {_count(rows, 'row')}")
        if given.type == self._type:
            return given
        alike = pa.types.is_null(given.type) or (_is_number(given.type) and _is_number(self._type))
        alike |= pa.types.is_large_string(given.type) and pa.types.is_string(self._type)
        try:
            if alike:
                return pc.cast(given, self._type)
        except pa.ArrowException:
            pass
        raise self._fault(
            f"gave values of type {given.type} where {self.definition.returns} was promised"
        )

    def _describe_timeout(self) -> str:
        return f"{_TOO_LONG} {self.definition.max_seconds:g} seconds for one call"

    def _fault(self, what: str) -> FunctionFault:
        return FunctionFault(f'{_SUBJECT}{self.definition.name}" {what}')


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# -- calls that end in time ------------------------------------------------------------------------

_Outcome = tuple[Any, BaseException | None]


class _Caller:
    """A thread that makes one thread's calls, so that these can be given up."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="user-functions", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Any], seconds: float) -> _Outcome | None:
        """What a call gave or raised; None if it did not end in time: then this is used up."""
        self._calls.put(function)
        try:
            return self._outcomes.get(timeout=min(seconds, threading.TIMEOUT_MAX / 2))
        except queue.Empty:
            self._give_up()
            return None

    def _give_up(self) -> None:
        # Ends what runs in Python; what waits in C ends when it comes back, and then the thread.
        ident = ctypes.c_ulong(self._thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_CallGivenUp))

    def _serve(self) -> None:
        try:
            while True:
                function = self._calls.get()
                try:
                    outcome: _Outcome = function(), None
                except _CallGivenUp:
                    return
                except BaseException as error:
                    outcome = None, error
                self._outcomes.put(outcome)
                del function, outcome  # arrays are not to be kept until the next call
        except _CallGivenUp:
            return


_callers = threading.local()


def _in_time(function: Callable[[], Any], seconds: float) -> _Outcome | None:
    caller = getattr(_callers, "caller", None)
    if caller is None:
        caller = _callers.caller = _Caller()
    outcome: _Outcome | None = caller.call(function, seconds)
    if outcome is None:
        _callers.caller = None
    return outcome
