"""Gives each request an id, which its answer and all lines of the log about it have.

The access log has one line a request, with the path and never the query string, in which a ticket
may stand.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.api.rights.gate import CALLER
from millpond.service.observe.spans import follow_caller
from millpond.work import current_request

log = logging.getLogger("millpond.access")

#: The header of requests and answers. A client's or proxy's id is kept if it looks like one.
HEADER = "X-Request-Id"
#: The headers in which a caller names its span.
_TRACE = (b"traceparent", b"tracestate")
_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")


class RequestLog:
    """Names each request, and writes a line about each if that is wanted."""

    def __init__(self, app: ASGIApp, writes_lines: bool = False) -> None:
        self._app = app
        self._writes_lines = writes_lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = _read_id(scope) or uuid.uuid4().hex[:16]
        began, status, size = time.monotonic(), 0, 0

        async def send_and_count(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request
            else:
                size += len(message.get("body", b""))
            await send(message)

        token = current_request.set(request)
        try:
            with follow_caller(_read_trace(scope)):
                await self._app(scope, receive, send_and_count)
        finally:
            if self._writes_lines:
                caller, client = scope.get(CALLER), scope.get("client")
                log.info(
                    "%s %s %s %s %d %d bytes %.1f ms",
                    client[0] if client else "-",
                    caller.owner if caller and caller.owner else "-",
                    scope["method"],
                    quote(scope["path"], errors="replace"),
                    status,
                    size,
                    1000 * (time.monotonic() - began),
                )
            current_request.reset(token)


def _read_id(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ID.fullmatch(value):
            return str(value.decode())
    return None


def _read_trace(scope: Scope) -> dict[str, str]:
    return {n.decode(): v.decode("latin-1") for n, v in scope["headers"] if n in _TRACE}
