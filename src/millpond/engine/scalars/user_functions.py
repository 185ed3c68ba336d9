"""User-defined functions: Python over Arrow arrays, called by DuckDB wherever it evaluates CQL.

A function gets its arguments as Arrow arrays, a batch of rows at a time (at most 2,048, DuckDB's
vectors), and returns an array of as many values. A connection learns a function when the first
expression that calls it is evaluated (`Functions.teach`). Workers load unknown functions from the
folder the pond keeps its functions in. Names are made from content (`model.function_names`), so
a function that was loaded under a name once is right for ever.

A function is its author's code: it may raise, return values other than declared, or never end. Each
of these becomes a `FunctionFault`, which DuckDB reports as the failure of that one evaluation:

- INV-UDF-1: a call returns to DuckDB within its limit. It is made in a thread of its own, which is
  left behind if the call does not end in time.
- INV-UDF-2: DuckDB gets as many values as there were rows, of the declared type.
"""

from __future__ import annotations

import ctypes
import json
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
from millpond.model.function_names import name_inside, names_inside
from millpond.model.owner_only import make_directory, write_owner_only
from millpond.model.schema import arrow_type
from millpond.planner.resolve.user_functions import create_in

#: Seconds after a call was given up during which the function is not called again with nearly as
#: many rows: the parts of a failed evaluation are tried one by one, and few of these should wait as
#: long again. A call with half the rows or fewer may end in time, and is made.
_REST_SECONDS = 5.0
#: Seconds a row is taken to cost in a function that was never measured and has no stated cost.
_UNKNOWN_PRICE = 10e-6
_TOO_LONG = "took longer than"
_FAULT = re.compile(r"FunctionFault: (.*)", re.DOTALL)
#: What is wrong with a function whose code is withheld.
UNTRUSTED = (
    "is not trusted: no key of yours has sealed its code, which `millpond trust` lists and seals"
)
#: The beginning of every fault's text.
_SUBJECT = 'function "'


class FunctionFault(Exception):
    """A function did not do what its author declared; the text says which function and what."""


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
        self._folders: dict[Path, Callable[[Path], bool]] = {}
        self._usage: dict[str, Usage] = {}
        self._lock = threading.Lock()

    def add(self, definition: FunctionDef) -> None:
        """Make a function known; one whose code is withheld fails when it is called."""
        with self._lock:
            known = self._known.get(definition.inside)
            if known is None:
                self._known[definition.inside] = _GuardedFunction(definition, self._add_usage)
            elif definition.code and not known.definition.code:
                known.definition = definition

    def look_in(self, folder: Path, fetch: Callable[[Path], bool]) -> None:
        """Set the folder from which unknown functions are loaded, and who fetches files of it."""
        with self._lock:
            self._folders[folder] = fetch

    def find(self, inside: str) -> _GuardedFunction | None:
        """Find a function by its name inside; load it if necessary."""
        found = self._known.get(inside)
        if found is None:
            for folder, fetch in list(self._folders.items()):
                file = folder / inside
                try:
                    if file.exists() or fetch(file):
                        self.add(load(file))
                except (OSError, ValueError, KeyError, TypeError):
                    continue
                found = self._known.get(inside)
        return found

    def cost(self, inside: str) -> float | None:
        """Return the cost of a row as the function's author stated it."""
        found = self.find(inside)
        return found.definition.cost if found is not None else None

    def price(self, inside: str) -> float:
        """Estimate the seconds a row costs: measured, else stated (in µs), else guessed."""
        with self._lock:
            spent = self._usage.get(inside)
        if spent is not None and spent.rows:
            return spent.seconds / spent.rows
        stated = self.cost(inside)
        return _UNKNOWN_PRICE if stated is None else stated * 1e-6

    def teach(
        self, connection: duckdb.DuckDBPyConnection, taught: set[str], sqls: Iterable[str]
    ) -> None:
        """Let a connection call the functions in some SQL; `taught` holds those it can call."""
        for sql in sqls:
            for inside in names_inside(sql) - taught:
                function = self.find(inside)
                if function is not None:
                    create_in(connection, function.definition, function)
                    taught.add(inside)

    def usage(self) -> dict[str, Usage]:
        """Return what calls have cost so far, by name inside."""
        with self._lock:
            return dict(self._usage)

    def take_usage(self) -> dict[str, Usage]:
        """Return what calls have cost since the last `take_usage`: a worker reports this."""
        with self._lock:
            usage, self._usage = self._usage, {}
            return usage

    def report(self, usage: Mapping[str, Usage]) -> None:
        """Add the cost of calls in another process."""
        with self._lock:
            for inside, spent in usage.items():
                self._usage[inside] = self._usage.get(inside, Usage()).plus(spent)

    def _add_usage(self, inside: str, spent: Usage) -> None:
        with self._lock:
            self._usage[inside] = self._usage.get(inside, Usage()).plus(spent)


#: The functions of this process.
functions = Functions()


def save(definition: FunctionDef, folder: Path) -> Path:
    """Write a function where workers look for it; a reader sees all of the file or none."""
    path = folder / definition.inside
    make_directory(folder)
    part = path.with_suffix(f".{threading.get_ident()}")
    write_owner_only(part, json.dumps({"id": definition.id, **definition.to_json()}).encode())
    part.replace(path)
    return path


def load(path: Path) -> FunctionDef:
    """Read a function that `save` wrote; nothing of its code is unpickled.

    Who asks for a function has its name inside from the pond, which verified the function, and the
    name is made of the function's content. So a file with other code is not what was asked for.

    Raises:
        OSError, ValueError, KeyError, TypeError: there is no such function.
    """
    body = json.loads(path.read_text())
    definition = FunctionDef.from_json(body.pop("id"), body)
    if definition.inside != path.name or (
        definition.code and name_content(definition) != definition.inside
    ):
        raise ValueError(f"{path.name} is not what its name says")
    return definition


def name_content(definition: FunctionDef) -> str:
    """Make the name inside that belongs to a function's code and signature."""
    d = definition
    signature = repr((d.arguments, d.returns, d.cost, d.max_seconds)).encode()
    return name_inside(d.name, [d.code, signature])


def fault_of(error: BaseException) -> str | None:
    """Return what a function did wrong, if that is why an evaluation by DuckDB failed."""
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
    """Make the error of an answer that a function's fault prevents."""
    return MillpondError(
        "POND-411",
        "a user-defined function failed",
        detail=fault[0].upper() + fault[1:],
        hint="Mend the function, define it anew, and ALTER QUERY … SET (active = true).",
    )


class _GuardedFunction:
    """A function as DuckDB calls it: limited in time, checked and measured."""

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
            result = self._call(arrays)
        finally:
            spent = Usage(1, rows, time.perf_counter() - started)
            self._add_usage(self.definition.inside, spent)
        return self._check(result, rows)

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
            reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
            raise self._fault(f"raised {reason[:300]}")
        return value

    def _load(self) -> Callable[..., Any]:
        if not self.definition.code:
            raise self._fault(UNTRUSTED)
        if self._function is None:
            try:
                self._function = cloudpickle.loads(self.definition.code)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
                raise self._fault(f"cannot be loaded here: {reason[:300]}") from None
        assert self._function is not None
        return self._function

    def _check(self, result: Any, rows: int) -> pa.Array:
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if not isinstance(result, pa.Array):
            raise self._fault(f"gave {_a(type(result).__name__)} instead of an Arrow array")
        if len(result) != rows:
            raise self._fault(f"gave {_count(len(result), 'value')} for {_count(rows, 'row')}")
        if result.type == self._type:
            return result
        alike = pa.types.is_null(result.type) or (
            _is_number(result.type) and _is_number(self._type)
        )
        alike |= pa.types.is_large_string(result.type) and pa.types.is_string(self._type)
        try:
            if alike:
                return pc.cast(result, self._type)
        except pa.ArrowException:
            pass
        raise self._fault(
            f"gave values of type {result.type} where {self.definition.returns} was promised"
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
    """A thread that makes one thread's calls, so that a call can be given up."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="user-functions", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Any], seconds: float) -> _Outcome | None:
        """Return what a call gave or raised; None if it did not end in time.

        After None this caller is used up.
        """
        self._calls.put(function)
        try:
            return self._outcomes.get(timeout=min(seconds, threading.TIMEOUT_MAX / 2))
        except queue.Empty:
            self._give_up()
            return None

    def _give_up(self) -> None:
        # Ends a call that runs in Python; a call that waits in C ends when it returns to Python.
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
                del function, outcome  # do not keep the arrays until the next call
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
