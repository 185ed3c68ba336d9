"""Who may call the server: under which host names, and from the pages of which origins.

A browser lets any page call any server, this machine's own too. A server without a token trusts
everybody who reaches it, so requests that other pages make have to be told from others: by Host
(a page whose name has been pointed at this machine sends its own name), by Origin, and by
`Sec-Fetch-Site`, which browsers send with every request and pages cannot change.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.api.problems import SAFE_HEADERS, problem
from millpond.console.page import PAGES
from millpond.errors import MillpondError

#: The loopback names, which every machine has.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

#: Headers a page of another origin may send, and may read.
_SENT = (
    "Accept",
    "Authorization",
    "Content-Encoding",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
)
#: The headers of answers that pages of other origins may read.
EXPOSED = (
    "Location",
    "Millpond-As-Of",
    "Millpond-Bounds",
    "Millpond-Epoch",
    "Millpond-Estimated",
    "Millpond-Exact",
    "Millpond-Final",
    "Millpond-Loss",
    "Millpond-Part",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-Id",
)

#: The values of `Sec-Fetch-Site` of requests that no other origin's page has made.
_OWN_SITE = ("same-origin", "none")


@dataclass(frozen=True)
class Access:
    """The settings that say who may call a server.

    Attributes:
        token: A token that may do everything; None if there is none.
        tokens: The file of all other tokens; None if there is none.
        jwt: The file that says which JSON Web Tokens are taken; None if none is. Without this,
            `tokens` and `token`, calls need no token.
        hosts: The names under which the server is reached, besides the loopback names and the
            address a connection comes to.
        origins: The origins whose pages may call the server, besides its own.
    """

    token: str | None = None
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    tokens: Path | None = None
    jwt: Path | None = None

    @property
    def needs_token(self) -> bool:
        """Whether a call needs a token."""
        return bool(self.token or self.tokens or self.jwt)

    @classmethod
    def of(
        cls,
        token: str | None = None,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        tokens: Path | None = None,
        jwt: Path | None = None,
    ) -> Access:
        """Access by names and origins as people write them.

        Raises:
            MillpondError: SERVE-712, a name is not a host name or an origin not an origin.
        """
        named = frozenset(_check_host(host) for host in hosts)
        return cls(token or None, named, frozenset(map(_check_origin, origins)), tokens, jwt)


class HostGate:
    """Answers only requests to a name the server knows; every answer has `SAFE_HEADERS`."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = LOOPBACK | hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        asked = Headers(scope=scope).getlist("host")
        if len(asked) == 1 and self._is_known(host_of(asked[0]), scope):
            return await self._app(scope, receive, send_safely)
        error = MillpondError(
            "SERVE-710",
            f'this server is not "{host_of(asked[0])}"' if asked else "the request names no host",
            hint="Start it with --allow-host NAME if that is its name.",
        )
        await problem(error)(scope, receive, send_safely)

    def _is_known(self, host: str, scope: Scope) -> bool:
        # The address the connection came to is the server's, whichever address it listens on.
        came_to = scope.get("server")
        return host in self._hosts or bool(came_to and _is_address(host) and host == came_to[0])


class SiteGate:
    """Refuses requests that pages of other origins make, unless they are allowed to."""

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._may_call(scope):
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        origin, host = headers.get("origin"), headers.get("host", "")
        error = MillpondError(
            "SERVE-711",
            "a page of another origin may not call this server",
            detail=f'The request comes from "{origin}", and is sent to "{host}".'
            if origin
            else None,
            hint="Start the server with --allow-origin ORIGIN if the page may.",
        )
        await problem(error)(scope, receive, send)

    def _may_call(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None:
            own = urlsplit(origin).netloc == headers.get("host", "").lower()
            return origin in self._origins or (own and site in (None, *_OWN_SITE))
        # A link from another page may open a page of the console: that changes nothing.
        follows_link = scope["path"] in PAGES and headers.get("sec-fetch-mode") == "navigate"
        return site is None or site in _OWN_SITE or follows_link


class PathPrefix:
    """Serves under a path that a reverse proxy has it under, whether the proxy takes it off or not.

    What the server says of its own paths has the prefix.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def send_with_prefix(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get("location", "").startswith("/"):
                    headers["location"] = self._prefix + headers["location"]
            await send(message)

        path = scope["path"]
        if path == self._prefix:
            # The console's page names its files relative to itself.
            return await RedirectResponse("/", 308)(scope, receive, send_with_prefix)
        if path.startswith(f"{self._prefix}/"):
            path = path[len(self._prefix) :]
            # In place: the access log reads who has called, which the scope is told further in.
            scope["path"], scope["raw_path"] = path, path.encode()
        await self._app(scope, receive, send_with_prefix)


def allow_origins(app: ASGIApp, origins: frozenset[str]) -> ASGIApp:
    """Wrap the application so that it allows browsers to call it from pages of these origins."""
    return CORSMiddleware(
        app,
        allow_origins=sorted(origins),
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=_SENT,
        expose_headers=EXPOSED,
        allow_private_network=True,
    )


def host_of(header: str) -> str:
    """The host a Host header names, without its port.

    >>> host_of("Localhost:6455"), host_of("[::1]:6455"), host_of("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_host(host: str) -> str:
    name = host.strip().lower()
    plain = name.replace("-", "").replace(".", "").replace("_", "")
    if not _is_address(name) and not (plain.isascii() and plain.isalnum()):
        raise MillpondError(
            "SERVE-712",
            f'"{host}" is not a host name',
            hint="Write it without a scheme and a port, like --allow-host pond.example.org.",
        )
    return name


def _check_origin(origin: str) -> str:
    text = origin.strip().lower()
    try:
        parts = urlsplit(text)
        port = parts.port
        plain = f"{parts.scheme}://{parts.netloc}" == text and parts.hostname is not None
    except ValueError:
        plain, port = False, None
    if not plain or parts.scheme not in ("http", "https") or "@" in text or "*" in text:
        raise MillpondError(
            "SERVE-712",
            f'"{origin}" is not an origin',
            hint="Write scheme and host, as a browser does: --allow-origin https://example.org.",
        )
    # A browser leaves out the port that the scheme has anyway.
    usual = {"http": 80, "https": 443}[parts.scheme]
    return text.rpartition(":")[0] if port == usual else text
