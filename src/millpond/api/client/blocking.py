"""A pond behind HTTP: `connect(url)` gives the pond's own surface."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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


class Connection:
    """Takes the steps of calls, and has the thread wait; safe to use from several threads."""

    def __init__(self, http: httpx.Client, urls: Sequence[httpx.URL] = ()) -> None:
        self.http, self._urls = http, urls

    def run(self, steps: Steps[_T]) -> _T:
        """Make a call and return what it gives."""
        reader = _LineReader(self.http, self._urls)
        try:
            step = next(steps)
            while True:
                try:
                    found = reader.take(step)
                except MillpondError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(found)
        except StopIteration as end:
            given: _T = end.value
            return given

    def iterate(self, steps: Items[_T]) -> Iterator[_T]:
        """Make a call and yield what it gives."""
        reader = _LineReader(self.http, self._urls)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Give):
                    yield step.item
                    step = next(steps)
                    continue
                try:
                    found = reader.take(step)
                except MillpondError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(found)
        except StopIteration:
            return
        finally:
            reader.close()


class _LineReader:
    """Takes steps one by one; holds the answer that is read line by line."""

    def __init__(self, http: httpx.Client, urls: Sequence[httpx.URL] = ()) -> None:
        self._http, self._urls = http, urls
        self._response: httpx.Response | None = None
        self._lines: Iterator[str] = iter(())

    def take(self, step: Step) -> Any:
        """Take a step and return what it gives."""
        match step:
            case Lines(request):
                self.close()
                self._response = self._send(request, stream=True)
                if not self._response.is_success:
                    check(self._response)
                self._lines = self._response.iter_lines()
                return None
            case NextLine():
                try:
                    return next(self._lines, None)
                except httpx.TransportError as error:
                    raise unreachable_error(self._http, error) from error
            case Pause(seconds):
                return time.sleep(seconds)
        return self._send(step)

    def _send(self, request: HttpRequest, stream: bool = False) -> httpx.Response:
        """Send a request to the server that leads."""
        turns = ServerTurns(self._urls, self._http)
        while True:
            try:
                response = self._http.send(request.build(self._http), stream=stream)
                if not response.is_success:
                    response.read()
                wait = turns.wait_before_next(response)
            except (httpx.TransportError, httpx.UnsupportedProtocol) as error:
                failed = unreachable_error(self._http, error)
                if (wait := turns.wait_after(error)) is None:
                    raise failed from error
            else:
                if wait is None:
                    return response
            time.sleep(wait)

    def close(self) -> None:
        """Close the answer that is read."""
        if self._response is not None:
            self._response.close()
            self._response = None


def _call(call: Callable[_P, Steps[_T]]) -> Callable[Concatenate[Any, _P], _T]:
    """The method of a pond that makes a call."""

    def method(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return _connection_of(self).run(call(*args, **kwargs))

    return dress(method, call)


def _call_many(call: Callable[_P, Items[_T]]) -> Callable[Concatenate[Any, _P], Iterator[_T]]:
    """The method of a pond that yields what a call gives."""

    def method(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
        return _connection_of(self).iterate(call(*args, **kwargs))

    return dress(method, call)


def _of_handle(
    call: Callable[Concatenate[str, _P], Steps[_T]],
) -> Callable[Concatenate[Any, _P], _T]:
    """The method of a handle that makes a call."""

    def method(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return _connection_of(self).run(call(self._path, *args, **kwargs))

    return dress(method, call)


def _many_of_handle(
    call: Callable[Concatenate[str, _P], Items[_T]],
) -> Callable[Concatenate[Any, _P], Iterator[_T]]:
    """The method of a handle that yields what a call gives."""

    def method(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
        return _connection_of(self).iterate(call(self._path, *args, **kwargs))

    return dress(method, call)


def _connection_of(held: Any) -> Connection:
    connection: Connection = held._connection
    return connection


class RemotePond:
    """The pond's surface over HTTP; safe to use from several threads."""

    def __init__(self, http: httpx.Client, urls: Sequence[httpx.URL] = ()) -> None:
        self._connection = Connection(http, urls)

    def __enter__(self) -> RemotePond:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemotePond {self._connection.http.base_url}>"

    def close(self) -> None:
        """Closes the connections; the pond is the server's."""
        self._connection.http.close()

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
    def ready(self) -> bool:
        """Whether the pond answers queries and takes rows."""
        return self._connection.run(pond_calls.ready())

    def register(self, cql: str, name: str | None = None, **options: Any) -> RemoteHandle:
        """Registers a query."""
        made = self._connection.run(pond_calls.register(cql, name, options))
        return RemoteHandle(self._connection, *made)

    def register_many(self, queries: Sequence[Registration]) -> list[RemoteHandle]:
        """Registers queries all together or not at all."""
        made = self._connection.run(pond_calls.register_many(queries))
        return [RemoteHandle(self._connection, *one) for one in made]

    def register_table(self, cql: str, rows: Any, **options: Any) -> list[RemoteHandle]:
        """Registers one text with parameters once for each row of a table."""
        made = self._connection.run(pond_calls.register_table(cql, rows, options))
        return [RemoteHandle(self._connection, *one) for one in made]

    def query(self, name_or_id: str | int) -> RemoteHandle:
        """The handle of a registered query."""
        return RemoteHandle(self._connection, *self._connection.run(pond_calls.query(name_or_id)))

    def derived(self, name: str) -> RemoteStream:
        """The handle of a derived stream."""
        found = RemoteStream(self._connection, name)
        found.page(None, 0)  # raises CQL-201 if there is none
        return found


class _RemoteFollowable:
    """A standing query or derived stream of a server, whose changes can be followed."""

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection = connection
        self._path = path

    fetch = _of_handle(handle_calls.fetch)
    page = _of_handle(handle_calls.page)
    subscribe = _many_of_handle(handle_calls.subscribe)
    alter = _of_handle(handle_calls.alter)


class RemoteHandle(_RemoteFollowable):
    """A standing query of a server."""

    def __init__(self, connection: Connection, id: int, name: str) -> None:
        super().__init__(connection, f"/v1/queries/{id}")
        self.id = id
        self.name = name

    def __repr__(self) -> str:
        return f"<RemoteHandle {self.id} {self.name!r}>"

    invoke = _of_handle(handle_calls.invoke)
    series = _of_handle(handle_calls.series)
    describe = _of_handle(handle_calls.describe)
    plan = _of_handle(handle_calls.plan)
    unregister = _of_handle(handle_calls.unregister)


class RemoteStream(_RemoteFollowable):
    """The handle of a derived stream of a server."""

    def __init__(self, connection: Connection, name: str) -> None:
        super().__init__(connection, f"/v1/streams/{segment(name)}")
        self.name = name

    def __repr__(self) -> str:
        return f"<RemoteStream {self.name!r}>"

    def plan(self, level: str = "logical") -> str:
        """The plan of what computes its elements."""
        return self._connection.run(pond_calls.explain(self.name, level))


def connect(
    url: str | None = None, token: str | None = None, *, http: httpx.Client | None = None
) -> RemotePond:
    """The pond served at a URL.

    Args:
        url: The server's URL; None for MILLPOND_URL, or http://127.0.0.1:6455. Several with commas
            between them are those of one shared store: whichever leads is asked.
        token: The server's token, if it has one; None for MILLPOND_TOKEN. 'auto' stands for the
            one that `millpond serve --token auto` keeps on this machine.
        http: A client of your own (for proxies, certificates, timeouts) with its `base_url` set.

    Raises:
        MillpondError: SERVE-705, no Millpond server answers at the URL; SERVE-706, not to this
            token.
    """
    pond = RemotePond(*open_client(httpx.Client, url, token, http))
    try:
        pond.check()
    except MillpondError:
        pond.close()
        raise
    return pond
