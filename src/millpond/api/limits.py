"""Checks the size of the body of every request, and of all bodies together, before a route runs."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.api.problems import problem
from millpond.errors import MillpondError

#: What zlib calls gzip.
_GZIP = zlib.MAX_WBITS | 16
#: The bytes that are unpacked at once: what is behind the end of a gzip file is copied each time.
_STEP = 1 << 12
#: Of how many unpacked bytes note is taken at once.
_HELD_AT_ONCE = 1 << 20
#: Where a request's scope has what takes note of the bytes that its body unpacks to.
HOLD = "millpond.hold"


def body_too_large_error(limit: int) -> MillpondError:
    """The error of a body larger than `limit` bytes."""
    return MillpondError(
        "SERVE-707",
        f"the body has more than {limit:,} bytes",
        hint="Send it in parts; each part has its own Idempotency-Key.",
    )


def _full_error(most: int) -> MillpondError:
    return MillpondError(
        "SERVE-715",
        f"the bodies of all requests have more than {most:,} bytes",
        hint="Send it again in a second; body_memory says how much they may have.",
    )


@dataclass(eq=False)
class _Body:
    """A body that is coming, or that is worked on.

    Attributes:
        began_at: When its request came, in seconds.
        size: How many bytes of it are held: as it came, and unpacked.
        reader: The task that waits for more of it; None while it is worked on.
        is_ended: Whether it has given way to others.
    """

    began_at: float = field(default_factory=time.monotonic)
    size: int = 0
    reader: asyncio.Task[object] | None = None
    is_ended: bool = False


class BodyMemory:
    """The bodies of all requests: at most so many bytes of them are held at once.

    When there are more, a body that has been coming for longer than `patience` seconds gives way.
    If there is none, the request that asks for more is refused.
    """

    def __init__(self, most: int, patience: float) -> None:
        self._most = most
        self._patience = patience
        self._held = 0
        #: In the order in which they began to come.
        self._bodies: dict[_Body, None] = {}

    def add(self, body: _Body, size: int) -> None:
        """Hold more of a body. Raises SERVE-715 if there is no room for it."""
        self._bodies.setdefault(body)
        body.size += size
        self._held += size
        if self._held <= self._most or body.size == self._held:
            return
        now = time.monotonic()
        for other in self._bodies:
            is_slow = other.reader is not None and now - other.began_at > self._patience
            if is_slow and other.size and other is not body and not other.is_ended:
                other.is_ended = True
                assert other.reader is not None
                other.reader.cancel()
                return
        raise _full_error(self._most)

    def release(self, body: _Body) -> None:
        """Let go of a body."""
        if body in self._bodies:
            del self._bodies[body]
            self._held -= body.size

    async def read(self, body: _Body, receive: Receive) -> Message:
        """Wait for more of a body. Raises SERVE-715 if it has to give way meanwhile."""
        body.reader = asyncio.current_task()
        try:
            message = await receive()
        except asyncio.CancelledError:
            if not body.is_ended or body.reader is None:
                raise
            body.reader.uncancel()
            raise _full_error(self._most) from None
        finally:
            body.reader = None
        if part := len(message.get("body", b"")):
            self.add(body, part)
        return message


class BodyLimit:
    """Refuses bodies larger than `limit` bytes, announced or only sent, and more than `memory`."""

    def __init__(self, app: ASGIApp, limit: int, memory: BodyMemory) -> None:
        self._app = app
        self._limit = limit
        self._memory = memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdigit() and int(announced) > self._limit:
            return await problem(body_too_large_error(self._limit))(scope, receive, send)
        body = _Body()
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await self._memory.read(body, receive)
            received += len(message.get("body", b""))
            if received > self._limit:
                raise body_too_large_error(self._limit)
            return message

        scope[HOLD] = partial(self._memory.add, body)
        try:
            await self._app(scope, counted, send)
        finally:
            self._memory.release(body)


def gunzip(data: bytes, limit: int, hold: Callable[[int], None]) -> bytes:
    """The body of a request with `Content-Encoding: gzip`, never more than `limit` bytes of it.

    Args:
        data: The body as it came.
        limit: The most bytes it may have.
        hold: Takes note of so many bytes more; an error it raises ends the work.

    Raises:
        MillpondError: SERVE-703, the data is not gzip; SERVE-707, there is more of it.

    >>> import gzip
    >>> gunzip(gzip.compress(b"abc") + gzip.compress(b"de"), 10, lambda size: None)
    b'abcde'
    """
    plain = bytearray()
    held = 0
    inflate = zlib.decompressobj(wbits=_GZIP)
    for at in range(0, len(data), _STEP):
        part = data[at : at + _STEP]
        while part:
            if inflate.eof:  # gzip files one behind the other are a gzip file
                inflate = zlib.decompressobj(wbits=_GZIP)
            try:
                plain += inflate.decompress(part, limit + 1 - len(plain))
            except zlib.error as error:
                detail = f"{error}."
                raise MillpondError("SERVE-703", "the body is not gzip", detail=detail) from error
            if len(plain) > limit:
                raise body_too_large_error(limit)
            if len(plain) - held > _HELD_AT_ONCE:
                hold(len(plain) - held)
                held = len(plain)
            part = inflate.unused_data
    if not inflate.eof:
        raise MillpondError("SERVE-703", "the body is not gzip", detail="It ends too early.")
    hold(len(plain) - held)
    return bytes(plain)
