"""Where the servers are, and who the client is to them: given, or from the environment.

Several servers may wait beside the one that leads a shared store. A client of them sends each
request to the one that led last, and to the next one when that cannot be connected to, or says that
it waits: neither has done anything with the request then. A request whose answer was lost may have
been done, and so may one that was answered by a server that ceased to lead (a script stops in its
middle): that is an error, or the request is made again, by the rules there are for one server.
"""

from __future__ import annotations

import os
import socket
import time
import urllib.request
from collections.abc import Callable, Sequence
from typing import TypeVar

import httpx

from millpond.api import tokens
from millpond.api.client.steps import CONNECT_TIMEOUT, unreachable_error
from millpond.errors import MillpondError

#: Where a server listens if nobody says otherwise.
DEFAULT_URL = "http://127.0.0.1:6455"

#: How long several servers are asked in turn until one of them leads, and the seconds between two
#: rounds. A driver that waits takes over after five seconds of silence.
PATIENCE = 60.0
_PAUSE_SECONDS = 0.25

#: When a connection is silent: seconds until the first question and between questions, and how many
#: stay without an answer. A question is a packet that the other system answers by itself. The last
#: is how many milliseconds what was sent may stay unacknowledged. Not every system has all.
SIGNS_OF_LIFE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, int(getattr(socket, name)), value)
        for name, value in (
            ("TCP_KEEPIDLE", 5),
            ("TCP_KEEPINTVL", 2),
            ("TCP_KEEPCNT", 4),
            ("TCP_USER_TIMEOUT", 13_000),
        )
        if hasattr(socket, name)
    ),
]

_C = TypeVar("_C", httpx.Client, httpx.AsyncClient)


class ServerTurns:
    """Which server one request is sent to, until one of them has done it."""

    def __init__(self, urls: Sequence[httpx.URL], http: httpx.Client | httpx.AsyncClient) -> None:
        self._urls, self._http = urls, http
        self._asked = http.base_url
        self._end = time.monotonic() + PATIENCE
        self._tried = 0

    def wait_after(self, error: Exception) -> float | None:
        """Turn to the next server after a failure: seconds to wait; None if that is no use."""
        return self._turn(isinstance(error, httpx.ConnectError | httpx.ConnectTimeout))

    def wait_before_next(self, response: httpx.Response) -> float | None:
        """Turn to the next server if another than this one leads; None if it has answered.

        Raises:
            MillpondError: SERVE-705, the server ceased to lead while it did the request.
        """
        if len(self._urls) < 2 or response.is_success:
            return None
        match _code_of(response):
            case "STORE-607":
                return self._turn(True)
            case "STORE-606":
                failed = unreachable_error(self._http, "Another server leads since")
                self._turn(False)
                raise failed
        return None

    def _turn(self, undone: bool) -> float | None:
        if len(self._urls) < 2:
            return None
        if self._http.base_url == self._asked:  # else another thread has found who leads
            at = self._urls.index(self._asked) if self._asked in self._urls else -1
            self._http.base_url = self._urls[(at + 1) % len(self._urls)]
        self._asked = self._http.base_url
        self._tried += 1
        if not undone or time.monotonic() > self._end:
            return None
        return _PAUSE_SECONDS if self._tried % len(self._urls) == 0 else 0.0


def _code_of(response: httpx.Response) -> str | None:
    try:
        return str(response.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return None


def list_urls(url: str | None) -> list[str]:
    """The servers' URLs, which stand between commas; None for MILLPOND_URL, or this machine.

    Raises:
        MillpondError: SERVE-705, there is none in what was given.
    """
    given = url or os.environ.get("MILLPOND_URL") or DEFAULT_URL
    if not (urls := [one.strip().rstrip("/") for one in given.split(",") if one.strip()]):
        raise MillpondError("SERVE-705", f'"{given}" is not a URL')
    return urls


def open_client(
    kind: Callable[..., _C], url: str | None, token: str | None, http: _C | None
) -> tuple[_C, list[httpx.URL]]:
    """The client for a pond's servers, with its token, and their URLs.

    Args:
        kind: The class of the client.
        url: The server's URL, or several with commas between them; None for MILLPOND_URL, or this
            machine.
        token: The token; None for MILLPOND_TOKEN, or none.
        http: A client to use; None for one of its own.

    Raises:
        MillpondError: SERVE-705, the URL is none; SERVE-712, there is no token 'auto' here.
    """
    if http is None:
        http = _make_client(kind)
        found = []
        for one in reversed(list_urls(url)):
            try:
                http.base_url = one
            except httpx.InvalidURL as error:
                raise MillpondError("SERVE-705", f'"{one}" is not a URL') from error
            found.append(http.base_url)
        urls = found[::-1]
    else:
        urls = [http.base_url]
    token = token or os.environ.get("MILLPOND_TOKEN")
    if token:
        token = tokens.read_token() if token == tokens.AUTO else token
        http.headers["Authorization"] = f"Bearer {token}"
    return http, urls


def _make_client(kind: Callable[..., _C]) -> _C:
    """Make a client that notices within seconds that the server's machine is gone.

    A machine that loses its power or its network closes no connection, and an answer may take any
    time; so the system is told to ask for a sign of life.
    """
    timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT)
    if urllib.request.getproxies():
        return kind(timeout=timeout)  # httpx finds proxies only where the transport is its own
    blocks = kind is httpx.Client
    transport = httpx.HTTPTransport if blocks else httpx.AsyncHTTPTransport
    return kind(timeout=timeout, transport=transport(socket_options=SIGNS_OF_LIFE))
