"""The program of a confined process: evaluates requests one after the other.

`millpond.confined.processes` runs it, with requests on its standard input. An evaluation that
exceeds its limits is expected to end the process; the process holds nothing anybody else needs.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

import duckdb
import pyarrow as pa

from millpond.confined.processes import Reply, Request, read_table, receive, send, write_table
from millpond.engine.scalars.residual_query import Limits, connect_locked_down, read_answer
from millpond.engine.scalars.user_functions import functions
from millpond.errors import MillpondError

#: Seconds without a request after which the process ends.
_IDLE = 60.0
#: How many bytes a process may have grown since its start and still go on.
_GROWN = 64 << 20
#: Seconds after a request's time is over before the process ends itself, if nobody has ended it.
_GRACE = 5
#: The user-defined functions the database knows.
_taught: set[str] = set()


def main() -> None:
    """Serve requests until the standard input ends or nothing has come for a minute."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A user-defined function may print: keep its output out of the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    connection = _open()
    base = _address_space()
    send(replies, Reply())
    while select.select([requests], [], [], _IDLE)[0]:
        try:
            request = receive(requests)
        except EOFError:
            return
        if not _serve(request, replies, connection, base):
            return


def _serve(
    request: Request, replies: IO[bytes], connection: duckdb.DuckDBPyConnection, base: int
) -> bool:
    """Answer one request; say whether the process is as good as before."""
    signal.alarm(int(min(request.seconds, 1e6)) + _GRACE)
    try:
        _limit_space(base + request.space)
        reply = _evaluate(request, connection)
    except (MemoryError, pa.ArrowMemoryError):
        reply = Reply(error=_out_of_memory(), is_last=True)
    signal.alarm(0)
    _limit_space(None)
    if not reply.is_last and _address_space() > base + _GROWN:
        reply = Reply(reply.rows, reply.columns, reply.error, reply.usage, is_last=True)
    send(replies, reply)
    return not reply.is_last


def _evaluate(request: Request, database: duckdb.DuckDBPyConnection) -> Reply:
    for definition in request.definitions:
        functions.add(definition)
    try:
        functions.teach(database, _taught, [request.sql])
        with database.cursor() as connection:
            for statement in request.schema:
                connection.execute(statement)
            for name, data in request.tables.items():
                connection.register(name, read_table(data))
            if request.bind_only:
                bound = connection.sql(request.sql)
                types = map(str, bound.types)
                return Reply(columns=list(zip(bound.columns, types, strict=True)))
            limits = Limits(request.seconds, request.rows, request.memory)
            answer = read_answer(connection, request.sql, limits)
            # The answer's size is checked; copies made for sending do not count against the limit.
            _limit_space(None)
            rows = write_table(answer)
        return Reply(rows=rows, usage=functions.take_usage())
    except MillpondError as error:
        return Reply(error=error, usage=functions.take_usage())
    except (duckdb.Error, OSError) as error:
        if "bad_alloc" in str(error) or isinstance(error, duckdb.OutOfMemoryException):
            return Reply(error=_out_of_memory(), is_last=True)
        name = type(error).__name__ if isinstance(error, duckdb.Error) else "Error"
        is_broken = isinstance(error, duckdb.FatalException | duckdb.InternalException)
        return Reply(error=(name, str(error)), usage=functions.take_usage(), is_last=is_broken)


def _out_of_memory() -> tuple[str, str]:
    return (
        "OutOfMemoryException",
        "Out of Memory Error: a value made in it is larger than the memory it may use",
    )


def _open() -> duckdb.DuckDBPyConnection:
    """Open the database for all requests, and load now whatever the first request would load.

    DuckDB's own memory limit is not used here: the limit of the process counts everything.
    """
    connection = connect_locked_down(1 << 40)
    with connection.cursor() as first:
        first.register("t", pa.table({"a": [1]}))
        write_table(first.sql("SELECT a, 'x' || a AS b FROM t").to_arrow_table())
    return connection


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def _limit_space(size: int | None) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = hard if size is None else size
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the caller has gone
        main()
