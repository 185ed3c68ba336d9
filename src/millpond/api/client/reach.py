"""Where the servers are, and who the client is to them: given, or from the environment.

Several servers may wait beside the one that leads a shared store. A client of them sends each
request to the one that led last, and to the next one when that cannot be connected to, or says that
another leads: neither has done anything with the request then. A request whose answer was lost may
have been done, so it is an error, or is made again, by the rules there are for one server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import httpx

from millpond.api import tokens
from millpond.api.client.steps import CONNECT_TIMEOUT
from millpond.errors import MillpondError

#: Where a server listens if nobody says otherwise.
DEFAULT_URL = "http://127.0.0.1:6455"

#: How long several servers are asked in turn until one of them leads, and the seconds between two
#: rounds. A driver that waits takes over after five seconds of silence.
PATIENCE = 60.0
_PAUSE_SECONDS = 0.25
#: What a server says that has done nothing with a request, because another leads.
_OTHERS_LEAD = ("STORE-606", "STORE-607")

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
        """Turn to the next server if another than this one leads; None if it has answered."""
        if len(self._urls) < 2 or response.is_success or not _says_that_others_lead(response):
            return None
        return self._turn(True)

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


def _says_that_others_lead(response: httpx.Response) -> bool:
    try:
        return response.json()["error"]["code"] in _OTHERS_LEAD
    except (ValueError, KeyError, TypeError):
        return False


def list_urls(url: str | None) -> list[str]:
    """The servers' URLs, which stand between commas; None for MILLPOND_URL, or this machine."""
    given = url or os.environ.get("MILLPOND_URL") or DEFAULT_URL
    return [one.strip().rstrip("/") for one in given.split(",") if one.strip()] or [DEFAULT_URL]


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
        http = kind(timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT))
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
