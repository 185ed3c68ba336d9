"""Lets requests in: finds who sends each, and holds the caller to rate, time and work under way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.api.problems import problem
from millpond.api.rights.caller import Caller, begin_call, finish_call
from millpond.api.rights.tickets import TICKET_PATH, Tickets, unknown_ticket_error
from millpond.api.rights.token_file import TokenBook
from millpond.console.page import PAGES
from millpond.errors import MillpondError
from millpond.work import current_work

#: The paths that need no token: liveness, readiness, and the console's own pages and files, which
#: hold no data and in which the user types the token.
OPEN_PATHS = frozenset({"/healthz", "/readyz", *PAGES})
OPEN_PREFIXES = ("/console/",)

#: Where the gate writes the caller into a request's scope, for the audit.
CALLER = "millpond.caller"
#: How often an open response looks whether its token is still there, in seconds.
_LOOK_SECONDS = 1.0


class TokenGate:
    """Refuses requests without a token that is known, or beyond what the token allows."""

    def __init__(self, app: ASGIApp, book: TokenBook, tickets: Tickets) -> None:
        self._app = app
        self._book = book
        self._tickets = tickets
        self._traffic = Traffic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_open(scope["path"]):
            return await self._app(scope, receive, send)
        caller = self._find_caller(scope)
        if isinstance(caller, MillpondError):
            return await problem(caller)(scope, receive, send)
        scope[CALLER] = caller
        try:
            self._traffic.enter(caller)
        except MillpondError as error:
            return await problem(error)(scope, receive, send)
        work = current_work()
        if work is not None and caller.quotas.seconds is not None:
            most = caller.quotas.seconds
            work.limit(most if work.seconds is None else min(most, work.seconds))
        token = begin_call(caller)
        try:
            await _End(self._app, lambda: self._book.is_alive(caller))(scope, receive, send)
        finally:
            finish_call(token)
            self._traffic.leave(caller)

    def _find_caller(self, scope: Scope) -> Caller | MillpondError:
        header = Headers(scope=scope).get("authorization", "")
        scheme, _, token = header.partition(" ")
        if not header and scope["path"] == TICKET_PATH and scope["method"] in ("GET", "HEAD"):
            # A browser's EventSource cannot send a header.
            given = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", [""])[0]
            ticket = self._tickets.find(given) if given else None
            if ticket is not None and self._book.is_alive(ticket.caller):
                return ticket.caller
            if given:
                return unknown_ticket_error()
        caller = self._book.find(token) if scheme.lower() == "bearer" and token else None
        if caller is not None:
            return caller
        return MillpondError(
            "SERVE-706",
            "the token is wrong" if token else "the token is missing",
            hint="Send the header Authorization: Bearer TOKEN (--token, or token= in Python).",
        )


class Traffic:
    """How many requests each token sends, and each owner has under way."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        #: By token: how many requests may come at once, and when that was so.
        self._allowance: dict[str, tuple[float, float]] = {}

    def enter(self, caller: Caller) -> None:
        """Count a request in. Raises SERVE-714 if there are too many."""
        rate, most, now = caller.quotas.rate, caller.quotas.running, self._clock()
        with self._lock:
            if most is not None and self._running[caller.owner] >= most:
                raise _busy_error(
                    "running", f'The owner "{caller.owner}" has {most:g} requests under way.'
                )
            if rate is not None:
                burst = max(rate, 1.0)
                left, at = self._allowance.get(caller.id, (burst, now))
                left = min(burst, left + (now - at) * rate)
                if left < 1.0:
                    self._allowance[caller.id] = (left, now)
                    raise _busy_error("rate", f"The token may send {rate:g} requests a second.")
                self._allowance[caller.id] = (left - 1.0, now)
            self._running[caller.owner] += 1

    def leave(self, caller: Caller) -> None:
        """Count a request out."""
        with self._lock:
            self._running[caller.owner] -= 1
            if not self._running[caller.owner]:
                del self._running[caller.owner]


class _End:
    """Ends a response that is still being sent once its token is gone."""

    def __init__(self, app: ASGIApp, is_alive: Callable[[], bool]) -> None:
        self._app = app
        self._is_alive = is_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = ended = False
        waiting: asyncio.Future[Message] | None = None

        async def receive_while_alive() -> Message:
            nonlocal waiting
            if waiting is None:
                waiting = asyncio.ensure_future(receive())
            while True:
                done, _ = await asyncio.wait({waiting}, timeout=_LOOK_SECONDS)
                if done:
                    message = waiting.result()
                    waiting = None
                    return message
                if begun and not self._is_alive():
                    return {"type": "http.disconnect"}

        async def send_while_alive(message: Message) -> None:
            nonlocal begun, ended
            if ended or (begun and not self._is_alive()):
                return
            begun = True
            if message["type"] == "http.response.body":
                ended = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive_while_alive, send_while_alive)
        finally:
            if waiting is not None:
                waiting.cancel()
            if begun and not ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})


def is_open(path: str) -> bool:
    """Whether a path needs no token."""
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIXES)


def _busy_error(quota: str, detail: str) -> MillpondError:
    return MillpondError(
        "SERVE-714",
        f'the quota "{quota}" is used up',
        detail=detail,
        hint="Send the request again later; Retry-After says when.",
    )
