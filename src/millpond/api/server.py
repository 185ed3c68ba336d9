"""Serving a pond: one line when ready, a graceful end."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn

from millpond.api.access import Access
from millpond.api.app import MAX_BODY, create_app
from millpond.api.certificates import CertificateFiles
from millpond.api.client_limits import ClientLimits
from millpond.api.connections import limit_connections, watch_connections
from millpond.api.listening import Transport, bind, refuse_exposure, url_of
from millpond.api.surface import ServedPond
from millpond.errors import MillpondError
from millpond.service.definitions.access_policy import CLOSED, AccessPolicy

log = logging.getLogger("millpond.server")

#: "mill" on a telephone's keys.
DEFAULT_PORT = 6455

#: How long requests under way may take to end once the server is told to stop, in seconds.
GRACE = 10


def serve(
    pond: ServedPond,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    access: Access | None = None,
    *,
    insecure: bool = False,
    listener: socket.socket | None = None,
    max_body: int = MAX_BODY,
    max_seconds: float | None = None,
    policy: AccessPolicy = CLOSED,
    transport: Transport | None = None,
    limits: ClientLimits | None = None,
    access_log: bool = False,
    on_ready: Callable[[str], None] | None = None,
) -> int | None:
    """Serves a pond until SIGTERM or SIGINT; the pond stays the caller's to close.

    Args:
        pond: What is served.
        host: Where to listen, unless `listener` is given.
        port: The same; 0 takes any free port.
        access: Who may call it.
        insecure: Serve without a token even where other machines reach the server.
        listener: A socket from `listening.bind`.
        max_body: The largest request body, in bytes.
        max_seconds: How long a request may take.
        policy: What the statements of clients may have the pond read; nothing by default.
        transport: How requests reach the server; plain HTTP without a proxy by default.
        limits: What the server bears from its clients.
        access_log: Whether each request is a line of the log.
        on_ready: Called with the server's URL once it answers and Spark runs, instead of printing a
            line.

    Returns:
        The signal that ended it, or None.

    Raises:
        MillpondError: SERVE-701; SERVE-712, other machines reach it and there is no token; why the
            pond will not work again (POND-415, for one), once the server has ended because of it.
    """
    access = access or Access()
    listener = listener or bind(host, port)
    if not insecure:
        refuse_exposure(listener, access)
    transport = transport or Transport()
    limits = limits or ClientLimits.of()
    app = create_app(
        pond,
        access=access,
        max_body=max_body,
        max_seconds=max_seconds,
        policy=policy,
        prefix=transport.prefix,
        limits=limits,
        access_log=access_log,
    )
    config = uvicorn.Config(
        app,
        http=limit_connections(limits),
        # There are no web sockets here, whatever is installed.
        ws="none",
        timeout_keep_alive=limits.keep_alive,  # type: ignore[arg-type]
        # What fails in a request is logged with the request by `problems`.
        log_level="critical",
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE,
        server_header=False,
        proxy_headers=bool(transport.proxies),
        forwarded_allow_ips=list(transport.proxies),
        ssl_certfile=transport.cert,
        ssl_keyfile=transport.key,
    )
    url = url_of(listener, transport.scheme)
    server = Server(config, url, on_ready or announce, pond, limits)
    if transport.cert is not None and transport.key is not None:
        server.certificate = CertificateFiles(transport.cert, transport.key)
    server.on_shutdown = app.state.followers.close
    server.run(sockets=[listener])
    if server.failure is not None:
        raise server.failure
    return server.ended_by


def announce(url: str) -> None:
    """The one line a server prints."""
    print(f"Millpond is ready: console {url}/  API {url}/v1  metrics {url}/metrics", flush=True)


class Server(uvicorn.Server):
    """uvicorn that says when it is up, and leaves it to the caller what a signal ends in."""

    def __init__(
        self,
        config: uvicorn.Config,
        url: str,
        on_ready: Callable[[str], None],
        pond: ServedPond,
        limits: ClientLimits,
    ) -> None:
        super().__init__(config)
        self.url = url
        #: Why the server ended by itself; None if it did not.
        self.failure: MillpondError | None = None
        self._pond = pond
        self._limits = limits
        self.ended_by: int | None = None
        self._on_ready = on_ready
        self._has_announced = False
        #: Followers would keep the server from stopping; they can go on at the next server.
        self.on_shutdown: Callable[[], None] = lambda: None
        #: The files of the certificate, if the server speaks TLS.
        self.certificate: CertificateFiles | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and not self._announce():
            log.info("%s answers from what is kept; Spark is starting", self.url)

    def _announce(self) -> bool:
        """Say that the server is ready, once Spark runs; whether it was said."""
        trouble = self._pond.trouble
        starts = trouble is not None and trouble.code == "POND-419"
        # Asked last: a Spark that could not be started is no trouble that passes.
        if not self._has_announced and not starts and self._pond.failure is None:
            self._has_announced = True
            self._on_ready(self.url)
        return self._has_announced

    async def on_tick(self, counter: int) -> bool:
        """End slow connections, read a new certificate, and end the server if the pond is lost.

        uvicorn calls it ten times a second.
        """
        if counter % 10 == 0:
            watch_connections(self.server_state.connections, self._limits)
            if self.certificate is not None and self.config.ssl is not None:
                self.certificate.reload(self.config.ssl)
            if self.failure is None:
                self.failure = self._pond.failure
        if not self._has_announced and self.failure is None:
            self._announce()
        return await super().on_tick(counter) or self.failure is not None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.on_shutdown()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        # uvicorn raises the signal anew once it has stopped, which would end the process before
        # the pond is closed.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, self.handle_exit) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if self._captured_signals:
                self.ended_by = self._captured_signals[0]
                log.info("stopping")
