"""What is read to its end is read on when the connection breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator

import httpx
import pyarrow as pa
import pytest

from millpond.api import change_forms, encode
from millpond.api.client import feed_calls, handle_calls, steps
from millpond.api.client.asynchronous import AsyncConnection
from millpond.api.client.blocking import Connection
from millpond.api.client.steps import ATTEMPTS, Items
from millpond.errors import MillpondError
from millpond.service.results import Changes

CHANGE = {"event": "change", "query": "q", "id": 1, "number": 7, "change": "+", "timestamp": None}
EVENTS = [{**CHANGE, "cursor": str(n), "row": {"k": n}} for n in (1, 2, 3)]
MARK = {"event": "mark", "cursor": "4"}
PAGE = Changes(
    pa.table(
        {"cursor": pa.array([1]), "timestamp": pa.array([7]), "change": ["+"], "k": pa.array([1])}
    ),
    query="q",
    cursor="1.1",
    newest=1,
    as_of=7,
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(feed_calls, "_PAUSE_SECONDS", 0.001)


class _Breaking(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Gives pieces of an answer, and breaks behind them."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = list(pieces)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        raise httpx.RemoteProtocolError("peer closed connection")

    async def __aiter__(self):
        for piece in self:
            yield piece


class Server:
    """A server of a feed and of pages, whose first connections break."""

    def __init__(self, breaks: int, given: int = 0) -> None:
        self.breaks, self._given = breaks, given
        self.asked: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        after = request.url.params.get("after")
        self.asked.append(after)
        rest = [e for e in EVENTS if int(e["cursor"]) > int(after or 0)]
        lines = [json.dumps(event).encode() + b"\n" for event in (*rest, MARK)]
        if len(self.asked) <= self.breaks:
            if not self._given:
                raise httpx.ReadError("reset")
            return httpx.Response(200, stream=_Breaking([*lines[: self._given], b'{"event": "ch']))
        if request.url.path == "/v1/changes":
            return httpx.Response(200, content=b"".join(lines))
        return httpx.Response(200, content=change_forms.encode_page(PAGE, encode.ARROW))


@pytest.fixture(params=["blocking", "asyncio"])
def read(request: pytest.FixtureRequest) -> Callable[[Server, Items], list]:
    """Gives what reads all that a call gives."""

    def blocking(server: Server, items: Items) -> list:
        http = httpx.Client(transport=httpx.MockTransport(server), base_url="http://a")
        return list(Connection(http).iterate(items))

    def with_asyncio(server: Server, items: Items) -> list:
        async def collect() -> list:
            transport = httpx.MockTransport(server)
            async with httpx.AsyncClient(transport=transport, base_url="http://a") as http:
                return [item async for item in AsyncConnection(http).iterate(items)]

        return asyncio.run(collect())

    return blocking if request.param == "blocking" else with_asyncio


@pytest.mark.parametrize(
    ("given", "asked"),
    [(0, [None, None, None]), (1, [None, "1", "2"]), (3, [None, "3"])],
)
def test_a_feed_of_what_is_there_is_read_on(read, given: int, asked: list[str | None]) -> None:
    """It breaks twice, in the middle of a line; what was read is not asked for again."""
    server = Server(2, given)
    events = read(server, feed_calls.subscribe(["q"], follow=False))
    assert [e.cursor for e in events] == ["1", "2", "3", "4"]
    assert server.asked == asked


def test_changes_that_are_there_are_read_on(read) -> None:
    server = Server(ATTEMPTS - 1)
    [change] = read(server, handle_calls.subscribe("/v1/queries/1", None, False))
    assert change.row == (1,)


@pytest.mark.parametrize(
    "items",
    [
        lambda: feed_calls.subscribe(["q"], follow=False),
        lambda: handle_calls.subscribe("/v1/queries/1", None, False),
    ],
)
def test_a_server_that_is_gone_is_an_error(read, items: Callable[[], Items]) -> None:
    server = Server(1000)
    with pytest.raises(MillpondError, match="SERVE-705"):
        read(server, items())
    assert len(server.asked) == ATTEMPTS
