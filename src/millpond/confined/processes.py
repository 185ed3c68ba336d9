"""Processes in which DuckDB evaluates what may grow without bound, so that it can be ended.

Each process of Millpond (the server, each of Spark's workers) has at most two such processes of its
own, started when first needed. One evaluates one request at a time, with a ceiling on its address
space; what takes too long is ended by killing it. A process that was killed or ran out of memory
is replaced; the process that asked is untouched.
"""

from __future__ import annotations

import atexit
import io
import math
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import IO, Any

import duckdb
import pyarrow as pa

from millpond.catalog.objects import FunctionDef
from millpond.confined.deadline import Interrupt, deadlines
from millpond.confined.room import Room
from millpond.errors import MillpondError
from millpond.work import check_work, current_work

#: What one evaluation may use beyond twice what it is given and what the process has at rest.
MEMORY = 256 << 20
#: What an answer may have.
ANSWER = 128 << 20
#: What an evaluation may take where no query says so.
SECONDS = 5.0
_PROCESSES = 2
#: Seconds to wait for a process that starts.
_PATIENCE = 60.0
_MODULE = "millpond.engine.scalars.confined_process"
_SIZE = struct.Struct("<Q")

#: Column names and types.
Columns = list[tuple[str, str]]
#: Limits the time of what is done inside it: is given what interrupts that.
Watch = Callable[[Callable[[], None]], AbstractContextManager[object]]


@dataclass(frozen=True)
class Request:
    """What is to be evaluated.

    Attributes:
        sql: One SELECT.
        tables: The tables it names, each a stream of Arrow's IPC.
        definitions: The user-defined functions it calls.
        schema: Statements that create the tables it is bound over.
        bind_only: Whether its columns are wanted, and not its rows.
        seconds: How long it may take.
        rows: How many rows may be answered; one more is given where there are more.
        memory: How many bytes may be answered.
        space: How many bytes of memory it may use.
    """

    sql: str
    tables: dict[str, bytes] = field(default_factory=dict)
    definitions: tuple[FunctionDef, ...] = ()
    schema: tuple[str, ...] = ()
    bind_only: bool = False
    seconds: float = SECONDS
    rows: int = sys.maxsize
    memory: int = ANSWER
    space: int = MEMORY


@dataclass(frozen=True)
class Reply:
    """What became of it: rows (a stream of Arrow's IPC) or columns or an error.

    Attributes:
        usage: What user-defined functions have cost, by name.
        is_last: Whether the process ends after it.
    """

    rows: bytes | None = None
    columns: Columns | None = None
    error: MillpondError | tuple[str, str] | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    is_last: bool = False


def write_table(table: pa.Table | pa.RecordBatch) -> bytes:
    """A table as a stream of Arrow's IPC."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


def read_table(data: bytes) -> pa.Table:
    """The table of a stream of Arrow's IPC."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def send(pipe: IO[bytes], message: object) -> None:
    """Write a message to a pipe."""
    data = pickle.dumps(message, protocol=5)
    pipe.write(_SIZE.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """The next message of a pipe.

    Raises:
        EOFError: whoever writes it has gone.
    """
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    (size,) = _SIZE.unpack(head)
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.load(io.BytesIO(data))


class _Process:
    """One process, used by one thread at a time."""

    def __init__(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            # Address space is counted: none is set aside for threads there are not.
            "MALLOC_ARENA_MAX": "1",
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._popen = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd="/",
        )
        self.was_interrupted = False
        self._is_ready = False

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def interrupt(self) -> None:
        """End it, from any thread, whatever it does."""
        self.was_interrupted = True
        self._popen.kill()

    def wait_until_ready(self) -> None:
        """Return when it has started, which takes a second; raises EOFError if it cannot."""
        if not self._is_ready:
            assert self._popen.stdout is not None
            with _within(_PATIENCE, self.interrupt):
                self._is_ready = isinstance(receive(self._popen.stdout), Reply)

    def ask(self, request: Request) -> Reply:
        """Its reply.

        Raises:
            EOFError: it has ended without one.
        """
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        try:
            send(self._popen.stdin, request)
        except OSError:
            raise EOFError from None
        reply = receive(self._popen.stdout)
        assert isinstance(reply, Reply)
        return reply

    def close(self, patience: float = 0.0) -> int:
        """End it, if it does not do so by itself; its exit code."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(patience)
        if self.is_alive:
            self._popen.kill()
        code = self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return code


class ConfinedProcesses:
    """The processes of this process; safe to use from many threads."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """After a fork: the processes there are belong to the parent."""
        self._room = Room(
            _PROCESSES,
            "too many queries whose values may grow wait to be evaluated",
            "Ask again in a second.",
            smallest=1,
        )
        self._lock = threading.Lock()
        self._idle: list[_Process] = []

    def ask(self, request: Request, watch: Watch | None = None) -> Reply:
        """What becomes of a request in one of them.

        Args:
            request: What is to be evaluated, in `request.seconds`.
            watch: Interrupts it for other reasons than its time.

        Raises:
            duckdb.Error: it failed; an `InterruptException` or an `OutOfMemoryException` where it
                took too long or too much.
            MillpondError: the answer is beyond its limits; SERVE-715, it is for a request and many
                wait; POND-405, the request ends before it is its turn.
        """
        with self._room.hold(1):
            given = sum(map(len, request.tables.values()))
            reply = self._ask(replace(request, space=request.space + 2 * given), watch)
        if isinstance(reply.error, MillpondError):
            raise reply.error
        if reply.error is not None:
            name, text = reply.error
            kind = getattr(duckdb, name, duckdb.Error)
            raise kind(text)
        return reply

    def _ask(self, request: Request, watch: Watch | None) -> Reply:
        while True:
            process = self._take()
            keep = False
            try:
                with watch(process.interrupt) if watch is not None else nullcontext():
                    process.wait_until_ready()
                    with _within(request.seconds, process.interrupt):
                        reply = process.ask(request)
                keep = not reply.is_last and not process.was_interrupted
                return reply
            except EOFError:
                code = process.close(patience=1.0)
                if process.was_interrupted:
                    raise _interrupted(request) from None
                if code == 0:
                    continue  # it had been idle for long and was about to go
                raise duckdb.OutOfMemoryException(
                    "Out of Memory Error: the process that evaluated it ended "
                    f"({'signal' if code < 0 else 'exit code'} {abs(code)})"
                ) from None
            finally:
                if keep:
                    with self._lock:
                        self._idle.append(process)
                else:
                    process.close()

    def _take(self) -> _Process:
        while True:
            with self._lock:
                process = self._idle.pop() if self._idle else None
            if process is None:
                return _Process()
            if process.is_alive:
                return process
            process.close()

    def close(self) -> None:
        """End those that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.close()


@contextmanager
def _within(seconds: float, interrupt: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _interrupted(request: Request) -> duckdb.InterruptException:
    return duckdb.InterruptException(
        f"INTERRUPT Error: it took longer than {request.seconds:.3g} seconds"
    )


#: The processes of this process.
confined = ConfinedProcesses()
atexit.register(confined.close)
os.register_at_fork(after_in_child=confined.forget)


def evaluate_confined(
    sql: str, tables: Mapping[str, pa.Table | pa.RecordBatch], request: Request
) -> Reply:
    """The reply to a SELECT over tables; errors as of `ConfinedProcesses.ask`.

    It is interrupted too when the request this thread works for is to end.
    """
    written = {name: write_table(table) for name, table in tables.items()}
    work = current_work()

    def watch(interrupt: Interrupt) -> AbstractContextManager[None]:
        # The process watches the evaluation's own time; the request's may be over before.
        return deadlines.within(math.inf, interrupt, work)

    asked = replace(request, sql=sql, tables=written)
    return confined.ask(asked, None if work is None else watch)


def bind_confined(
    sql: str,
    *,
    schema: Sequence[str] = (),
    tables: Mapping[str, pa.Table] | None = None,
    definitions: Sequence[FunctionDef] = (),
) -> Columns:
    """The columns of a SELECT; binding computes constants, which may be large.

    Raises:
        duckdb.Error: it cannot be bound.
        MillpondError: POND-405, a constant in it takes too long or too much, or the request this
            thread works for is to end.
    """
    request = Request(sql, schema=tuple(schema), definitions=tuple(definitions), bind_only=True)
    try:
        columns = evaluate_confined(sql, tables or {}, request).columns
    except (duckdb.InterruptException, duckdb.OutOfMemoryException) as error:
        check_work()
        raise MillpondError(
            "POND-405",
            "a constant in the query needs more time or memory than a query may use",
            detail=str(error).partition(": ")[2],
            hint="Write what it is to be, or compute less.",
        ) from error
    assert columns is not None
    return columns
