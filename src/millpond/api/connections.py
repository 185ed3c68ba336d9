"""How many connections a server keeps: as many as leave it descriptors for its own files.

Every connection needs a descriptor of the process, and so do files and processes. Without a bound,
idle connections would leave none: nothing could be written, and nobody could connect.
"""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Descriptors that are left for files, processes and Spark; half of what there is if that is less.
_RESERVED = 256

_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)


def most_connections() -> int:
    """How many connections the process's limit of descriptors allows at once."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 16
    return limit - min(_RESERVED, limit // 2)


class BoundedConnection(H11Protocol):
    """A connection that takes the place of the longest idle one when there are too many.

    If no connection is idle, the new one is told to come again.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._is_refused = False
        self.since = time.monotonic()
        if len(self.connections) >= most_connections():
            idle = [c for c in self.connections if isinstance(c, BoundedConnection) and c.is_idle]
            if not idle:
                self._is_refused = True
                transport.write(_REFUSAL)
                transport.close()
                return
            oldest = min(idle, key=lambda connection: connection.since)
            oldest.transport.abort()
            self.connections.discard(oldest)
        super().connection_made(transport)

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way, as far as one has come whole."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            self.since = time.monotonic()
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_refused:
            super().connection_lost(exc)

    def eof_received(self) -> Any:
        return None if self._is_refused else super().eof_received()
