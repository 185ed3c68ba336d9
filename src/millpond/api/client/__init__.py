"""A client of a served pond: with the pond's own surface, blocking or for asyncio.

`pond_calls`, `handle_calls` and `feed_calls` say once what each call asks of the server and how its
answer is read, as generators of `steps` that know no connection. `blocking` and `asynchronous` take
those steps on a connection, and give each call as a method. A program needs neither Spark nor
DuckDB for a client: the distribution `millpond-client` has what these modules import and no more.
"""

from __future__ import annotations

from millpond.api.client.asynchronous import (
    AsyncRemoteHandle,
    AsyncRemotePond,
    AsyncRemoteStream,
    connect_async,
)
from millpond.api.client.blocking import RemoteHandle, RemotePond, RemoteStream, connect

__all__ = [
    "AsyncRemoteHandle",
    "AsyncRemotePond",
    "AsyncRemoteStream",
    "RemoteHandle",
    "RemotePond",
    "RemoteStream",
    "connect",
    "connect_async",
]
