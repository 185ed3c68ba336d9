"""Followers: clients that wait over HTTP for changes to come.

A follower costs a place in a set and one event of the server's loop: no thread, and nothing in the
pond. A commit of changes wakes the follower. It looks for changes after its cursor and reads them a
page at a time, as fast as its client takes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool

from millpond.api import change_forms, feed_forms
from millpond.api.surface import Followable
from millpond.errors import MillpondError
from millpond.service.changes.feeds.feed import Feed
from millpond.service.results import Changes

#: Seconds after which an idle connection gets a sign of life.
IDLE_SECONDS = 15.0
#: Changes sent at a time.
_PAGE = 1_000
#: Threads that read and encode for followers: reading and encoding need the interpreter's lock.
_THREADS = 2

P = ParamSpec("P")
T = TypeVar("T")


class Subscribers:
    """The followers of one application; for use within its event loop."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()
        self._closed = False
        self._threads: CapacityLimiter | None = None

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do a follower's work in one of the threads that followers have.

        Other requests have threads of their own, and do not wait behind a thousand followers.
        """
        if self._threads is None:
            self._threads = CapacityLimiter(_THREADS)
        return await to_thread.run_sync(partial(work, *args, **kwargs), limiter=self._threads)

    def close(self) -> None:
        """End all followers' responses: the server is stopping; clients go on at the next one."""
        self._closed = True
        for event in self._waiting:
            event.set()

    async def next_page(
        self, handle: Followable, after: str | int | None, limit: int, seconds: float
    ) -> Changes:
        """Read a page after a cursor; if it would be empty, wait so many seconds for changes."""
        async with _ChangeListener(self, handle) as ear:
            page: Changes = await run_in_threadpool(handle.page, after, limit)
            if not len(page) and limit:
                await ear.wait_for_changes(page.position, seconds)
                page = await run_in_threadpool(handle.page, page.cursor, limit)
            return page

    async def follow(
        self, handle: Followable, after: str | int | None, limit: int | None, form: str
    ) -> AsyncIterator[bytes]:
        """The changes after a cursor and those to come; at most `limit`, if it is given."""
        left = limit
        try:
            async with _ChangeListener(self, handle) as ear:
                while not self._closed and left != 0:
                    most = _PAGE if left is None else min(_PAGE, left)
                    page = await self._run(handle.page, after, most)
                    after = page.cursor
                    left = None if left is None else left - len(page)
                    if len(page):
                        yield b"".join(await self._run(change_forms.encode_piece, page, form))
                    elif not await ear.wait_for_changes(page.position, IDLE_SECONDS):
                        yield change_forms.IDLE[form]
        except MillpondError as error:
            yield change_forms.encode_failure(error, form)

    async def follow_feed(
        self, feed: Feed, listen: Callable[[Callable[[], None]], Callable[[], None]], form: str
    ) -> AsyncIterator[bytes]:
        """The events of a feed and those to come, for ever."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended; so has the follower
                loop.call_soon_threadsafe(news.set)

        end = listen(wake)
        self.enter(news)
        try:
            while not self._closed:
                news.clear()
                events = await self._run(feed.read)
                if events:
                    yield await self._run(feed_forms.encode_events, events, form)
                    continue
                try:
                    await asyncio.wait_for(news.wait(), IDLE_SECONDS)
                except TimeoutError:
                    yield change_forms.IDLE[form]
        except MillpondError as error:
            yield change_forms.encode_failure(error, form)
        finally:
            end()
            self.leave(news)

    @property
    def closed(self) -> bool:
        return self._closed

    def enter(self, event: asyncio.Event) -> None:
        self._waiting.add(event)

    def leave(self, event: asyncio.Event) -> None:
        self._waiting.discard(event)


class _ChangeListener:
    """One follower's event; a commit of changes sets it, from whatever thread commits."""

    def __init__(self, followers: Subscribers, handle: Followable) -> None:
        self._followers = followers
        self._handle = handle
        self._event = asyncio.Event()

    async def __aenter__(self) -> _ChangeListener:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended; so has the follower
                loop.call_soon_threadsafe(self._event.set)

        self._end = self._handle.listen(wake)
        self._followers.enter(self._event)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()
        self._followers.leave(self._event)

    async def wait_for_changes(self, position: int, seconds: float) -> bool:
        """Wait for changes after that number; False if the time is over or the server stops."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._followers.closed:
            self._event.clear()
            if self._handle.has_more(position):
                return True
            left = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._event.wait(), max(left, 0.0))
            except TimeoutError:
                return False
        return False
