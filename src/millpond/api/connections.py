"""The connections of a server: how many it keeps, and how slow a client may be on each.

Every connection needs a descriptor of the process, and so do files and processes. Without a bound,
idle connections would leave none: nothing could be written, and nobody could connect.

uvicorn ends a connection that is idle between two requests. It waits for ever for a request that
does not come whole, for a client that does not take its answer, and for the end of a body whose
request was answered already. `BoundedConnection.watch` ends these; the server calls it for every
connection once a second (`watch_connections`), so a request costs no timer of its own.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from millpond.api.client_limits import ClientLimits
from millpond.api.encode import JSON
from millpond.errors import MillpondError
from millpond.service.json_values import dumps

#: Descriptors that are left for files, processes and Spark; half of what there is if that is less.
_RESERVED = 256
#: A write of so many bytes is held against the limit of all answers at once.
_LARGE_WRITE = 1 << 20
#: So many bytes are given to the transport at a time.
_WRITE_AT_ONCE = 1 << 18


def most_connections() -> int:
    """How many connections the process's limit of descriptors allows at once."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 16
    return limit - min(_RESERVED, limit // 2)


class Phase(Enum):
    """What a connection waits for."""

    #: The next request, of a client whose last one was answered; uvicorn ends it.
    IDLE = auto()
    #: The line and the headers of a request.
    HEADERS = auto()
    #: A request's body.
    BODY = auto()
    #: The rest of a body whose request was answered without it.
    REST = auto()
    #: The server's work on a request.
    WORK = auto()
    #: The client, which has to take what was written.
    ANSWER = auto()


class _CountedTransport:
    """A transport that counts what is written, and is asked how much of it the client has taken."""

    def __init__(self, transport: asyncio.Transport, heed_large: Callable[[], None]) -> None:
        self._transport = transport
        self._heed_large = heed_large
        self.write_plainly = transport.write
        self._written = 0

    def write(self, data: bytes) -> None:
        """Write to the client; a large write is reported after it."""
        self._written += len(data)
        # The transport copies what it cannot send at once, and of a part its rest once more.
        for at in range(0, len(data), _WRITE_AT_ONCE):
            if self._transport.is_closing():
                break
            self.write_plainly(data[at : at + _WRITE_AT_ONCE])
        if len(data) >= _LARGE_WRITE:
            self._heed_large()

    def count_taken(self) -> int:
        """The bytes that have left the process."""
        return self._written - self._transport.get_write_buffer_size()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedConnection(H11Protocol):
    """A connection that takes the place of the longest idle one when there are too many.

    If no connection is idle, the new one is told to come again.
    """

    limits: ClientLimits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._is_refused = False
        self.since = self._phase_since = self._measured_at = time.monotonic()
        self._received = self._measured = 0
        self._watched: tuple[Phase, Any] = (Phase.HEADERS, None)
        most = most_connections()
        if self.limits.max_connections is not None:
            most = min(most, self.limits.max_connections)
        if len(self.connections) >= most:
            idle = [c for c in _ours(self.connections) if c.is_idle]
            if not idle:
                self._is_refused = True
                transport.write(_refusal("503 Service Unavailable", _full_error()))
                transport.close()
                return
            oldest = min(idle, key=lambda connection: connection.since)
            oldest.transport.abort()
            self.connections.discard(oldest)
        self.counted = _CountedTransport(transport, self._make_room_for_answers)
        super().connection_made(self.counted)  # type: ignore[arg-type]

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way, as far as one has come whole."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def phase(self) -> Phase:
        """What the connection waits for."""
        if self.transport.get_write_buffer_size():
            return Phase.ANSWER
        if self.cycle is None or self.cycle.response_complete:
            if self.conn.their_state is h11.SEND_BODY:
                return Phase.REST
            return Phase.HEADERS if self.timeout_keep_alive_task is None else Phase.IDLE
        is_body_awaited = self.cycle.more_body and not self.flow.read_paused
        return Phase.BODY if is_body_awaited else Phase.WORK

    @property
    def waiting_answer(self) -> tuple[float, int]:
        """Since when the client has an answer to take, and how many bytes of it wait."""
        return self._phase_since, self.transport.get_write_buffer_size()

    def watch(self, now: float) -> None:
        """End the connection if its client is slower than the limits allow.

        Headers, and the rest of a body that nobody reads, have `patience` in all. A body and an
        answer move at least `patience * slowest_rate` bytes in every `patience` seconds.
        """
        phase = self.phase
        moved = self.counted.count_taken() if phase is Phase.ANSWER else self._received
        if (phase, self.cycle) != self._watched:
            self._watched = (phase, self.cycle)
            self._phase_since = now
        elif phase not in (Phase.IDLE, Phase.WORK):
            if now - self._measured_at < self.limits.patience:
                return
            wanted = self.limits.patience * self.limits.slowest_rate
            if phase in (Phase.HEADERS, Phase.REST) or moved - self._measured < wanted:
                self._end_slow(phase)
        self._measured_at, self._measured = now, moved

    def _end_slow(self, phase: Phase) -> None:
        is_told = phase is Phase.BODY and not self.cycle.response_started
        if phase is Phase.HEADERS:
            is_told = self.conn.trailing_data[0] != b""
        if is_told and not self.transport.is_closing():
            self.counted.write_plainly(_refusal("408 Request Timeout", _slow_error(self.limits)))
            self.transport.close()
        else:
            self.transport.abort()

    def _make_room_for_answers(self) -> None:
        make_room_for_answers(self.connections, self.limits.answer_memory)

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            self.since = time.monotonic()
            self._received += len(data)
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_refused:
            super().connection_lost(exc)

    def eof_received(self) -> Any:
        return None if self._is_refused else super().eof_received()


def limit_connections(limits: ClientLimits) -> type[BoundedConnection]:
    """The kind of connection that has these limits."""
    return type("LimitedConnection", (BoundedConnection,), {"limits": limits})


def watch_connections(connections: Collection[Any], limits: ClientLimits) -> None:
    """End the connections whose clients are too slow; called once a second."""
    now = time.monotonic()
    for connection in _ours(connections):
        connection.watch(now)
    make_room_for_answers(connections, limits.answer_memory)


def make_room_for_answers(connections: Collection[Any], most: int) -> None:
    """End connections until the answers that wait have at most `most` bytes, the longest first."""
    waiting = [(*c.waiting_answer, c) for c in _ours(connections)]
    held = sum(size for _, size, _ in waiting)
    if held <= most:
        return
    for _, size, connection in sorted(waiting, key=lambda one: one[0]):
        if size and held > most:
            connection.transport.abort()
            held -= size


def _ours(connections: Collection[Any]) -> list[BoundedConnection]:
    return [c for c in connections if isinstance(c, BoundedConnection)]


def _full_error() -> MillpondError:
    return MillpondError(
        "SERVE-715",
        "the server has as many connections as it may have, and none is idle",
        hint="Come again in a second; max_connections says how many there may be.",
    )


def _slow_error(limits: ClientLimits) -> MillpondError:
    return MillpondError(
        "SERVE-715",
        f"the request did not come within {limits.patience:g} seconds",
        hint="Send it faster; patience and slowest_rate say how slow a client may be.",
    )


def _refusal(status: str, error: MillpondError) -> bytes:
    """The answer on a connection that is closed with it."""
    body = dumps(error.to_json())
    head = (
        f"HTTP/1.1 {status}\r\nRetry-After: 1\r\nConnection: close\r\n"
        f"Content-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
