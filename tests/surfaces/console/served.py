"""A pond served on a port of this machine, by a thread of this process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.service.pond import Pond


@dataclass(frozen=True)
class Served:
    """Where a pond is served, and what serves it."""

    url: str
    port: int
    app: FastAPI


@contextmanager
def serve(
    pond: Pond, access: Access | None = None, port: int = 0, prefix: str = ""
) -> Iterator[Served]:
    """Serve a pond until the block ends."""
    app = create_app(pond, access=access, prefix=prefix)
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        app,
        log_level="critical",
        log_config=None,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield Served(f"http://127.0.0.1:{port}", port, app)
    finally:
        app.state.followers.close()
        server.should_exit = True
        thread.join()
        listening.close()
