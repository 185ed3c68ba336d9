"""A pond behind HTTP for asyncio: `await connect_async(url)` gives the surface to be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx

from millpond.api.client import feed_calls, handle_calls, pond_calls
from millpond.api.client.methods import dress
from millpond.api.client.reach import ServerTurns, open_client
from millpond.api.client.steps import (
    Give,
    HttpRequest,
    Items,
    Lines,
    NextLine,
    Pause,
    Step,
    Steps,
    check,
    segment,
    unreachable_error,
)
from millpond.errors import MillpondError
from millpond.service.queries.given_registration import Registration

_P = ParamSpec("_P")
_T = TypeVar("_T")


class AsyncConnection:
    """Takes the steps of calls in an event loop."""

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[httpx.URL] = ()) -> None:
        self.http, self._urls = http, urls

    async def run(self, steps: Steps[_T]) -> _T:
        """Make a call and return what it gives."""
        reader = _AsyncLineReader(self.http, self._urls)
        try:
            step = next(steps)
            while True:
                try:
                    found = await reader.take(step)
                except MillpondError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(found)
        except StopIteration as end:
            given: _T = end.value
            return given

    async def iterate(self, steps: Items[_T]) -> AsyncIterator[_T]:
        """Make a call and yield what it gives."""
        reader = _AsyncLineReader(self.http, self._urls)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Give):
                    yield step.item
                    step = next(steps)
                    continue
                try:
                    found = await reader.take(step)
                except MillpondError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(found)
        except StopIteration:
            return
        finally:
            await reader.close()


class _AsyncLineReader:
    """Takes steps one by one; holds the answer that is read line by line."""

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[httpx.URL] = ()) -> None:
        self._http, self._urls = http, urls
        self._response: httpx.Response | None = None
        self._lines: AsyncIterator[str] | None = None

    async def take(self, step: Step) -> Any:
        """Take a step and return what it gives."""
        match step:
            case Lines(request):
                await self.close()
                self._response = await self._send(request, stream=True)
                if not self._response.is_success:
                    check(self._response)
                self._lines = self._response.aiter_lines()
                return None
            case NextLine():
                assert self._lines is not None
                try:
                    return await anext(self._lines, None)
                except httpx.TransportError as error:
                    raise unreachable_error(self._http, error) from error
            case Pause(seconds):
                return await asyncio.sleep(seconds)
        return await self._send(step)

    async def _send(self, request: HttpRequest, stream: bool = False) -> httpx.Response:
        """Send a request to the server that leads."""
        turns = ServerTurns(self._urls, self._http)
        while True:
            try:
                response = await self._http.send(request.build(self._http), stream=stream)
                if not response.is_success:
                    await response.aread()
                wait = turns.wait_before_next(response)
            except (httpx.TransportError, httpx.UnsupportedProtocol) as error:
                failed = unreachable_error(self._http, error)
                if (wait := turns.wait_after(error)) is None:
                    raise failed from error
            else:
                if wait is None:
                    return response
            await asyncio.sleep(wait)

    async def close(self) -> None:
        """Close the answer that is read."""
        if self._response is not None:
            await self._response.aclose()
            self._response = None


def _call(
    call: Callable[_P, Steps[_T]],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]:
    """The method of a pond that makes a call."""

    async def method(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await _connection_of(self).run(call(*args, **kwargs))

    return dress(method, call)


def _call_many(call: Callable[_P, Items[_T]]) -> Callable[Concatenate[Any, _P], AsyncIterator[_T]]:
    """The method of a pond that yields what a call gives."""

    def method(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> AsyncIterator[_T]:
        return _connection_of(self).iterate(call(*args, **kwargs))

    return dress(method, call)


def _of_handle(
    call: Callable[Concatenate[str, _P], Steps[_T]],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]:
    """The method of a handle that makes a call."""

    async def method(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await _connection_of(self).run(call(self._path, *args, **kwargs))

    return dress(method, call)


def _many_of_handle(
    call: Callable[Concatenate[str, _P], Items[_T]],
) -> Callable[Concatenate[Any, _P], AsyncIterator[_T]]:
    """The method of a handle that yields what a call gives."""

    def method(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> AsyncIterator[_T]:
        return _connection_of(self).iterate(call(self._path, *args, **kwargs))

    return dress(method, call)


def _connection_of(held: Any) -> AsyncConnection:
    connection: AsyncConnection = held._connection
    return connection


class AsyncRemotePond:
    """The pond's surface over HTTP, for asyncio; of one event loop."""

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[httpx.URL] = ()) -> None:
        self._connection = AsyncConnection(http, urls)

    async def __aenter__(self) -> AsyncRemotePond:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncRemotePond {self._connection.http.base_url}>"

    async def close(self) -> None:
        """Closes the connections; the pond is the server's."""
        await self._connection.http.aclose()

    check = _call(pond_calls.check_server)
    execute = _call(pond_calls.execute)
    ask = _call(pond_calls.ask)
    explain = _call(pond_calls.explain)
    ingest = _call(pond_calls.ingest)
    ingest_text = _call(pond_calls.ingest_text)
    stage = _call(pond_calls.stage)
    unstage = _call(pond_calls.unstage)
    ingest_batch = _call(pond_calls.ingest_batch)
    streams = _call(pond_calls.streams)
    relations = _call(pond_calls.relations)
    queries = _call(pond_calls.queries)
    alter_queries = _call(pond_calls.alter_queries)
    drop_queries = _call(pond_calls.drop_queries)
    export_plan = _call(pond_calls.export_plan)
    compare_plan = _call(pond_calls.compare_plan)
    adopt_plan = _call(pond_calls.adopt_plan)
    adopted_plans = _call(pond_calls.adopted_plans)
    undo_plan = _call(pond_calls.undo_plan)
    begin_backup = _call(pond_calls.begin_backup)
    backups = _call(pond_calls.backups)
    backup = _call(pond_calls.backup)
    cancel_backup = _call(pond_calls.cancel_backup)
    functions = _call(pond_calls.functions)
    status = _call(pond_calls.status)
    alter_stream = _call(pond_calls.alter_stream)
    reset_clock = _call(pond_calls.reset_clock)
    catch_up = _call(pond_calls.catch_up)
    subscribe = _call_many(feed_calls.subscribe)

    @property
    def ready(self) -> Coroutine[Any, Any, bool]:
        """Whether the pond answers queries and takes rows, to be awaited."""
        return self._connection.run(pond_calls.ready())

    async def register(
        self, cql: str, name: str | None = None, **options: Any
    ) -> AsyncRemoteHandle:
        """Registers a query."""
        made = await self._connection.run(pond_calls.register(cql, name, options))
        return AsyncRemoteHandle(self._connection, *made)

    async def register_many(self, queries: Sequence[Registration]) -> list[AsyncRemoteHandle]:
        """Registers queries all together or not at all."""
        made = await self._connection.run(pond_calls.register_many(queries))
        return [AsyncRemoteHandle(self._connection, *one) for one in made]

    async def register_table(self, cql: str, rows: Any, **options: Any) -> list[AsyncRemoteHandle]:
        """Registers one text with parameters once for each row of a table."""
        made = await self._connection.run(pond_calls.register_table(cql, rows, options))
        return [AsyncRemoteHandle(self._connection, *one) for one in made]

    async def query(self, name_or_id: str | int) -> AsyncRemoteHandle:
        """The handle of a registered query."""
        found = await self._connection.run(pond_calls.query(name_or_id))
        return AsyncRemoteHandle(self._connection, *found)

    async def derived(self, name: str) -> AsyncRemoteStream:
        """The handle of a derived stream."""
        found = AsyncRemoteStream(self._connection, name)
        await found.page(None, 0)  # raises CQL-201 if there is none
        return found


class _AsyncRemoteFollowable:
    """A standing query or derived stream of a server, whose changes can be followed."""

    def __init__(self, connection: AsyncConnection, path: str) -> None:
        self._connection = connection
        self._path = path

    fetch = _of_handle(handle_calls.fetch)
    page = _of_handle(handle_calls.page)
    subscribe = _many_of_handle(handle_calls.subscribe)
    alter = _of_handle(handle_calls.alter)


class AsyncRemoteHandle(_AsyncRemoteFollowable):
    """A standing query of a server, for asyncio."""

    def __init__(self, connection: AsyncConnection, id: int, name: str) -> None:
        super().__init__(connection, f"/v1/queries/{id}")
        self.id = id
        self.name = name

    def __repr__(self) -> str:
        return f"<AsyncRemoteHandle {self.id} {self.name!r}>"

    invoke = _of_handle(handle_calls.invoke)
    series = _of_handle(handle_calls.series)
    describe = _of_handle(handle_calls.describe)
    plan = _of_handle(handle_calls.plan)
    unregister = _of_handle(handle_calls.unregister)


class AsyncRemoteStream(_AsyncRemoteFollowable):
    """The handle of a derived stream of a server, for asyncio."""

    def __init__(self, connection: AsyncConnection, name: str) -> None:
        super().__init__(connection, f"/v1/streams/{segment(name)}")
        self.name = name

    def __repr__(self) -> str:
        return f"<AsyncRemoteStream {self.name!r}>"

    async def plan(self, level: str = "logical") -> str:
        """The plan of what computes the stream's elements."""
        return await self._connection.run(pond_calls.explain(self.name, level))


async def connect_async(
    url: str | None = None, token: str | None = None, *, http: httpx.AsyncClient | None = None
) -> AsyncRemotePond:
    """As `connect`, for asyncio: `async with await connect_async() as mp: …`."""
    pond = AsyncRemotePond(*open_client(httpx.AsyncClient, url, token, http))
    try:
        await pond.check()
    except MillpondError:
        await pond.close()
        raise
    return pond
