"""Ends a request's work when its time is over, or when its client goes away."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.api.document import Absent
from millpond.engine.scalars.work import Work, begin_work, current_work, finish_work


class WorkForRequest:
    """Runs each request as a piece of work that ends when the client goes away."""

    def __init__(self, app: ASGIApp, max_seconds: float | None) -> None:
        self._app = app
        self._max_seconds = max_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        work = Work(self._max_seconds)
        ahead = _ReadAhead(receive, work)
        reading = asyncio.create_task(ahead.read())
        token = begin_work(work)
        try:
            await self._app(scope, ahead.receive, send)
        finally:
            finish_work(token)
            reading.cancel()


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
