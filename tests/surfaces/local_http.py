"""An HTTP client that calls an application directly, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.types import ASGIApp


class AppTransport(httpx.BaseTransport):
    """Sends requests into an application that runs in a portal's event loop."""

    def __init__(self, app: ASGIApp, portal: BlockingPortal) -> None:
        # An error that is raised again after it was answered is the server's to log.
        self._inner = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._portal = portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._portal.call(self._call, request, request.read())

    async def _call(self, request: httpx.Request, content: bytes) -> httpx.Response:
        asked = httpx.Request(request.method, request.url, headers=request.headers, content=content)
        answered = await self._inner.handle_async_request(asked)
        body = b"".join([piece async for piece in answered.aiter_raw()])
        return httpx.Response(answered.status_code, headers=answered.headers, content=body)


@contextmanager
def local_client(app: ASGIApp, base_url: str = "http://127.0.0.1") -> Iterator[httpx.Client]:
    """A client of an application that is served at a URL."""
    with (
        start_blocking_portal() as portal,
        httpx.Client(transport=AppTransport(app, portal), base_url=base_url) as client,
    ):
        yield client
