"""What a server answers while another driver leads its shared store: where to go instead."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

from millpond.api.listening import Transport, url_of
from millpond.api.problems import SAFE_HEADERS, problem
from millpond.state.shared.leader import LOOK_SECONDS, Leader, wait_to_lead, waiting_error
from millpond.state.shared.shared_store import SharedStore
from millpond.state.store import FORMAT, hold_directory

log = logging.getLogger("millpond.server")


def await_lead(
    url: str,
    directory: Path,
    listener: socket.socket,
    transport: Transport,
    advertise: str | None = None,
) -> SharedStore | None:
    """Wait until this process leads a shared store, and answer requests meanwhile.

    Every request is answered with STORE-607, which names the driver that leads; /healthz says that
    this process is well. Call it from the main thread: SIGTERM and SIGINT end the wait.

    Args:
        url: The shared store's place.
        directory: This process's own directory.
        listener: A socket from `listening.bind`, which stays open.
        transport: How requests reach the server.
        advertise: Where clients reach this process; None: where it listens.

    Returns:
        The shared store, which this process leads; None if a signal ended the wait.

    Raises:
        MillpondError: STORE-601, another process leads or waits with this directory; STORE-602, the
            log is damaged; STORE-603, the storage gives no answer; STORE-604, the place or the
            directory is something else.
    """
    with hold_directory(directory):
        return _await_lead(url, directory, listener, transport, advertise)


def _await_lead(
    url: str,
    directory: Path,
    listener: socket.socket,
    transport: Transport,
    advertise: str | None,
) -> SharedStore | None:
    shared = SharedStore.open(url, directory, FORMAT)
    fold = shared.follow()
    stop = threading.Event()
    waiting = _WaitingServer(listener, transport)

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {s: signal.signal(s, end) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        leads = False
        while not leads and wait_to_lead(shared.place, fold, waiting.tell, stop):
            leads = shared.claim(advertise or url_of(listener, transport.scheme))
            if not leads:
                stop.wait(LOOK_SECONDS)  # a storage that can be read, and not written
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        waiting.close()
    if not leads:
        shared.close()
        return None
    return shared


class _WaitingServer:
    """Answers on a copy of a listening socket, once another driver is known to lead."""

    def __init__(self, listener: socket.socket, transport: Transport) -> None:
        self._listener, self._transport = listener, transport
        self._leader: Leader | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def tell(self, leader: Leader) -> None:
        """Send clients to that leader from now on."""
        self._leader = leader
        own = url_of(self._listener, self._transport.scheme)
        log.info("%s waits: %s", own, waiting_error(leader).primary)
        if self._server is None:
            config = uvicorn.Config(
                self._make_app(),
                ws="none",
                log_level="critical",
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
                server_header=False,
                ssl_certfile=self._transport.cert,
                ssl_keyfile=self._transport.key,
            )
            self._server = uvicorn.Server(config)
            sockets = [self._listener.dup()]
            self._thread = threading.Thread(
                target=self._server.run, kwargs={"sockets": sockets}, name="waiting", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Answer no more; connections that come meanwhile wait for the server that follows."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()

    def _make_app(self) -> FastAPI:
        app = FastAPI(
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        )

        @app.api_route("/healthz", methods=["GET", "HEAD"])
        def healthz() -> Response:
            return JSONResponse({"status": "waiting"}, headers=SAFE_HEADERS)

        @app.api_route(
            "/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        )
        def refuse(request: Request, path: str) -> Response:
            return problem(waiting_error(self._leader))

        return app
