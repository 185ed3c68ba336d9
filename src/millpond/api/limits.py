"""Checks the size of the body of every request before any route runs."""

from __future__ import annotations

import zlib

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.api.problems import problem
from millpond.errors import MillpondError


def body_too_large_error(limit: int) -> MillpondError:
    """The error of a body larger than `limit` bytes."""
    return MillpondError(
        "SERVE-707",
        f"the body has more than {limit:,} bytes",
        hint="Send it in parts; each part has its own Idempotency-Key.",
    )


class BodyLimit:
    """Refuses bodies larger than `limit` bytes, whether announced or only sent."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdigit() and int(announced) > self._limit:
            return await problem(body_too_large_error(self._limit))(scope, receive, send)
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                raise body_too_large_error(self._limit)
            return message

        await self._app(scope, counted, send)


def gunzip(data: bytes, limit: int) -> bytes:
    """The body of a request with `Content-Encoding: gzip`, never more than `limit` bytes of it.

    Raises:
        MillpondError: SERVE-703, the data is not gzip; SERVE-707, there is more of it.

    >>> import gzip
    >>> gunzip(gzip.compress(b"abc"), 10)
    b'abc'
    """
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        plain = inflate.decompress(data, limit + 1)
    except zlib.error as error:
        detail = f"{error}."
        raise MillpondError("SERVE-703", "the body is not gzip", detail=detail) from error
    if len(plain) > limit:
        raise body_too_large_error(limit)
    if not inflate.eof:
        raise MillpondError("SERVE-703", "the body is not gzip", detail="It ends too early.")
    return plain
