"""Serves a pond of this process over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from millpond.api.app import create_app
from millpond.service.pond import Pond


@contextmanager
def serve(pond: Pond, port: int = 0) -> Iterator[str]:
    """Serve a pond and give its address; port 0 stands for a free one."""
    server = uvicorn.Server(uvicorn.Config(create_app(pond), port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    bound = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{bound}"
    finally:
        server.should_exit = True
        thread.join()
