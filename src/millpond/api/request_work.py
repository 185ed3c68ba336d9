"""Ends a request's work when its time is over, or when its client goes away."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated

from fastapi import Query
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.api.document import Absent
from millpond.errors import MillpondError
from millpond.work import Work, begin_work, current_work, finish_work

#: Up to so many bytes of answers a request is never refused for the memory of others.
_SMALL = 1 << 20


class AnswerMemory:
    """The answers that are being computed: together they have at most so many bytes.

    Attributes:
        most: How many; one alone may have more rows, but is not sent with more.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._held = 0
        self._lock = threading.Lock()

    def check(self, held: int, more: int) -> None:
        """Count `more` bytes of a request whose answers have `held` bytes with these.

        Less than nothing is what it lets go of.

        Raises:
            MillpondError: SERVE-715, there is no room for them.
        """
        with self._lock:
            self._held += more
            is_full = self._held > self.most and held > _SMALL and held < self._held and more > 0
        if is_full:
            raise MillpondError(
                "SERVE-715",
                f"the answers of all requests have more than {self.most:,} bytes",
                hint="Ask again in a second, or for fewer rows; answer_memory says how much they"
                " may have.",
            )

    def release(self, work: Work) -> None:
        """Let go of the answers of a request that is done."""
        with self._lock:
            self._held -= work.held


class WorkForRequest:
    """Runs each request as a piece of work that ends when the client goes away."""

    def __init__(self, app: ASGIApp, max_seconds: float | None, memory: AnswerMemory) -> None:
        self._app = app
        self._max_seconds = max_seconds
        self._memory = memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        work = Work(self._max_seconds, self._memory.check, most_body=self._memory.most)
        ahead = _ReadAhead(receive, work)
        reading = asyncio.create_task(ahead.read())
        token = begin_work(work)
        try:
            await self._app(scope, ahead.receive, send)
        finally:
            finish_work(token)
            reading.cancel()
            self._memory.release(work)


class _ReadAhead:
    """Reads a client's messages one ahead, to notice at once that the client has gone."""

    def __init__(self, receive: Receive, work: Work) -> None:
        self._receive = receive
        self._work = work
        self._next: asyncio.Queue[Message] = asyncio.Queue(1)

    async def read(self) -> None:
        message: Message = {}
        while message.get("type") != "http.disconnect":
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._work.end()
            await self._next.put(message)

    async def receive(self) -> Message:
        message = await self._next.get()
        if message["type"] == "http.disconnect":
            self._next.put_nowait(message)  # the client has gone for good
        return message


#: The parameter of calls whose client may say how long they take.
MaxSeconds = Annotated[float | Absent, Query(gt=0, description="seconds the request may take")]


def limit_seconds(max_seconds: float | None) -> None:
    """A client may give its request less time than the operator does, and not more."""
    work = current_work()
    if work is not None and max_seconds is not None:
        work.limit(max_seconds if work.seconds is None else min(max_seconds, work.seconds))


def lift_limit() -> None:
    """The response goes on as long as its client is there."""
    work = current_work()
    if work is not None:
        work.limit(None)
