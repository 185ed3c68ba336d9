"""Clients of several servers, of which one leads at a time."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from millpond.api.client import reach
from millpond.api.client.asynchronous import AsyncConnection
from millpond.api.client.blocking import Connection
from millpond.api.client.pond_calls import check_server
from millpond.api.client.reach import SIGNS_OF_LIFE, list_urls, open_client
from millpond.api.client.steps import Give, HttpRequest, Items, Lines, NextLine, get, send
from millpond.errors import MillpondError

URLS = [httpx.URL("http://a/pond/"), httpx.URL("http://b/")]
WAITS = httpx.Response(503, json={"error": {"code": "STORE-607", "message": "another leads"}})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(reach, "PATIENCE", 0.05)


class TwoServers:
    """Two servers: what each does with a request, and what they were asked."""

    def __init__(self, a: str, b: str) -> None:
        self.does = {"a": a, "b": b}
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.url.host}{request.url.path} {request.headers['host']}")
        match self.does[request.url.host]:
            case "refuses":
                raise httpx.ConnectError("refused")
            case "breaks":
                raise httpx.ReadError("reset")
            case "waits" if request.url.path.endswith("/healthz"):  # it is well
                return httpx.Response(200, json={"status": "waiting"})
            case "waits":
                return httpx.Response(503, json=WAITS.json())
            case "stopped leading":
                return httpx.Response(503, json={"error": {"code": "STORE-606", "message": "m"}})
            case "is full":
                return httpx.Response(503, json={"error": {"code": "POND-405", "message": "m"}})
        status = "alive" if request.url.path.endswith("/healthz") else "leads"
        return httpx.Response(200, json={"from": request.url.host, "status": status})


@pytest.fixture(params=["blocking", "asyncio"])
def connect(
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[TwoServers], Callable[..., object]]]:
    """Gives what runs calls over a world, keeping the connection from call to call."""
    loop = asyncio.new_event_loop()

    def make(world: TwoServers) -> Callable[..., object]:
        transport = httpx.MockTransport(world)
        if request.param == "blocking":
            http = httpx.Client(transport=transport, base_url=URLS[0])
            return Connection(http, URLS).run
        there = AsyncConnection(httpx.AsyncClient(transport=transport, base_url=URLS[0]), URLS)
        return lambda steps: loop.run_until_complete(there.run(steps))

    yield make
    loop.close()


@pytest.mark.parametrize("first", ["refuses", "waits"])
def test_a_request_that_was_not_done_is_sent_to_the_next(connect, first: str) -> None:
    world = TwoServers(first, "leads")
    run = connect(world)
    assert run(send("POST", "/v1/queries", {"cql": "…"})).json()["from"] == "b"
    assert world.asked == ["a/pond/v1/queries a", "b/v1/queries b"]
    assert run(get("/v1/status"))["from"] == "b"
    assert world.asked[2:] == ["b/v1/status b"]  # it led last
    world.does = {"a": "leads", "b": "waits"}
    assert run(get("/v1/status"))["from"] == "a"


@pytest.mark.parametrize("first", ["breaks", "stopped leading"])
def test_a_request_that_may_have_been_done_is_not_done_again(connect, first: str) -> None:
    """Of a script, the statements before the one that found another leading have been done."""
    world = TwoServers(first, "leads")
    run = connect(world)
    with pytest.raises(MillpondError, match=r"SERVE-705.*http://a/pond"):
        run(send("POST", "/v1/queries", {"cql": "…"}))
    assert len(world.asked) == 1
    assert run(send("POST", "/v1/queries", {"cql": "…"})).json()["from"] == "b"
    world.does = {"a": "leads", "b": first}
    assert run(get("/v1/status"))["from"] == "a"  # reading may be done twice


def test_the_first_server_may_wait(connect) -> None:
    """A server that waits is well, and not where a client begins."""
    world = TwoServers("waits", "leads")
    run = connect(world)
    run(check_server())
    assert run(get("/v1/status"))["from"] == "b"
    world.does = {"a": "waits", "b": "waits"}
    with pytest.raises(MillpondError, match="STORE-607"):
        run(check_server())


def test_nobody_leads_for_too_long(connect) -> None:
    world = TwoServers("waits", "refuses")
    with pytest.raises(MillpondError, match=r"SERVE-705|STORE-607"):
        connect(world)(get("/v1/status"))
    assert {asked.split("/")[0] for asked in world.asked} == {"a", "b"}


def test_other_refusals_are_answers(connect) -> None:
    world = TwoServers("is full", "leads")
    with pytest.raises(MillpondError, match="POND-405"):
        connect(world)(get("/v1/status"))
    assert len(world.asked) == 1


def test_a_feed_is_read_where_somebody_leads() -> None:
    world = TwoServers("waits", "leads")
    http = httpx.Client(transport=httpx.MockTransport(world), base_url=URLS[0])

    def read() -> Items[str]:
        yield Lines(HttpRequest("GET", "/v1/changes"))
        while (line := (yield NextLine())) is not None:
            yield Give(line)

    told = [json.loads(line) for line in Connection(http, URLS).iterate(read())]
    assert told == [{"from": "b", "status": "leads"}]


def test_urls_stand_between_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_urls(" http://a:1/ , http://b:2/x/ ") == ["http://a:1", "http://b:2/x"]
    monkeypatch.setenv("MILLPOND_URL", "http://c,http://d")
    assert list_urls(None) == ["http://c", "http://d"]
    http, urls = open_client(httpx.Client, "http://a,https://b/x", None, None)
    assert [str(url).rstrip("/") for url in urls] == ["http://a", "https://b/x"]
    assert http.base_url == urls[0]
    for none in ("http://a,http://b:port", ",", " , "):
        with pytest.raises(MillpondError, match="SERVE-705"):
            open_client(httpx.Client, none, None, None)


@pytest.mark.parametrize("kind", [httpx.Client, httpx.AsyncClient])
def test_a_machine_that_is_gone_is_noticed(kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """It closes no connection; so connections ask for a sign of life."""
    monkeypatch.setattr("urllib.request.getproxies", dict)

    def check(answer: httpx.Response) -> None:
        connection = answer.extensions["network_stream"].get_extra_info("socket")
        for level, option, value in SIGNS_OF_LIFE:
            assert connection.getsockopt(level, option) == value

    async def ask() -> None:
        async with http, http.stream("GET", "/") as answer:
            check(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        http, _ = open_client(kind, url, None, None)
        answering = threading.Thread(target=answer_one, args=(server,))
        answering.start()
        if kind is httpx.Client:
            with http, http.stream("GET", "/") as answer:
                check(answer)
        else:
            asyncio.run(ask())
        answering.join()
    assert len(SIGNS_OF_LIFE) == 5


def test_a_proxy_of_the_environment_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        answering = threading.Thread(target=answer_one, args=(proxy,))
        answering.start()
        http, _ = open_client(httpx.Client, "http://nowhere.invalid", None, None)
        with http:
            assert http.get("/").text == "."
        answering.join()


def answer_one(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n.")
        connection.recv(1000)
