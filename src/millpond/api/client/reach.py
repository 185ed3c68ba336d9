"""Where the server is, and who the client is to it: given, or from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from millpond.api import tokens
from millpond.api.client.steps import CONNECT_TIMEOUT
from millpond.errors import MillpondError

#: Where a server listens if nobody says otherwise.
DEFAULT_URL = "http://127.0.0.1:6455"

_C = TypeVar("_C", httpx.Client, httpx.AsyncClient)


def open_client(kind: Callable[..., _C], url: str | None, token: str | None, http: _C | None) -> _C:
    """The client for a server, with its token.

    Args:
        kind: The class of the client.
        url: The server's URL; None for MILLPOND_URL, or this machine.
        token: The token; None for MILLPOND_TOKEN, or none.
        http: A client to use; None for one of its own.

    Raises:
        MillpondError: SERVE-705, the URL is none; SERVE-712, there is no token 'auto' here.
    """
    url = url or os.environ.get("MILLPOND_URL") or DEFAULT_URL
    token = token or os.environ.get("MILLPOND_TOKEN")
    if http is None:
        options: dict[str, Any] = {"timeout": httpx.Timeout(None, connect=CONNECT_TIMEOUT)}
        try:
            http = kind(base_url=url.rstrip("/"), **options)
        except httpx.InvalidURL as error:
            raise MillpondError("SERVE-705", f'"{url}" is not a URL') from error
    if token:
        token = tokens.read_token() if token == tokens.AUTO else token
        http.headers["Authorization"] = f"Bearer {token}"
    return http
