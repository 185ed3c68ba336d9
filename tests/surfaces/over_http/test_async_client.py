"""The client for asyncio: what the blocking one has, and what it gives."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys

import httpx
import pytest

from millpond.api.app import create_app
from millpond.api.client import (
    AsyncRemotePond,
    RemotePond,
    asynchronous,
    blocking,
    connect,
    connect_async,
    steps,
)
from millpond.api.client.reach import open_client
from millpond.errors import MillpondError

LATE = "SELECT ts, carrier, delay FROM flights [RANGE 1 HOUR] WHERE delay > 60 ORDER BY ts"


def members(held: type) -> dict[str, str]:
    """The public members of a class, with the parameters of those that are methods."""
    found = {name: inspect.getattr_static(held, name) for name in dir(held) if name[0] != "_"}
    return {
        name: str(inspect.signature(member)).replace("Async", "") if callable(member) else ""
        for name, member in found.items()
    }


@pytest.mark.parametrize("name", ["RemotePond", "RemoteHandle", "RemoteStream"])
def test_both_clients_have_the_same_methods(name):
    one, other = getattr(blocking, name), getattr(asynchronous, f"Async{name}")
    assert members(one) == members(other)
    for member in members(one):
        assert inspect.getdoc(getattr(one, member)), member


def test_a_day_of_the_asynchronous_client(pond):
    async def use(mp: AsyncRemotePond) -> None:
        late = await mp.register(LATE, "late", changes="from beginning")
        assert late.id == pond.query("late").id
        assert (await late.invoke("2026-03-01T11:10")).rows() == (
            pond.query("late").invoke("2026-03-01T11:10").rows()
        )
        receipt = await mp.ingest("flights", [{"ts": "2026-03-01T12:00:00", "carrier": "DL"}])
        assert receipt.accepted == 1
        await mp.catch_up(timeout=60)
        changes = [change async for change in late.subscribe(follow=False)]
        assert [c.row for c in changes] == [c.row for c in pond.query("late").fetch()]
        assert changes
        events = [e async for e in mp.subscribe(["late"], after=None, follow=False)]
        assert events[-1].kind == "mark"
        assert await mp.ready is True
        assert [q.name for q in await mp.queries()] == ["late"]
        table = [{"name": "over", "least": 60}]
        (over,) = await mp.register_table(
            "SELECT carrier FROM flights WHERE delay > $least", table, tags=["t"]
        )
        assert (await over.describe())["cql"] == "SELECT carrier FROM flights WHERE delay > 60"
        await over.unregister()
        with pytest.raises(MillpondError, match="CQL-216"):
            await mp.ask("DROP QUERY late")
        assert [q.name for q in pond.queries()] == ["late"]
        with pytest.raises(MillpondError, match="CQL-201"):
            await mp.query("nope")
        # Two calls at once, in one loop.
        both = await asyncio.gather(mp.ask(LATE), late.describe())
        assert both[1]["name"] == "late"
        await (await mp.query("late")).unregister()
        await mp.close()
        with pytest.raises(MillpondError, match="POND-410"):
            await mp.ask(LATE)

    async def run() -> None:
        app = httpx.ASGITransport(create_app(pond), raise_app_exceptions=False)
        http = httpx.AsyncClient(transport=app, base_url="http://127.0.0.1")
        async with await connect_async(http=http) as mp:
            await use(mp)

    asyncio.run(run())


def breaking(breaks: int, sent: list[httpx.Request]) -> httpx.Client:
    """A client whose connection breaks so often before an answer comes."""

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        if len(sent) <= breaks:
            raise httpx.ReadError("reset")
        return httpx.Response(200, json={"streams": [], "status": "alive", "queries": 1})

    return httpx.Client(transport=httpx.MockTransport(answer), base_url="http://other")


#: What may be made twice, and what must not.
CALLS = {
    "streams": (lambda mp: mp.streams(), True),
    "status": (lambda mp: mp.status(), True),
    "ready": (lambda mp: mp.ready, True),
    "catch_up": (lambda mp: mp.catch_up(), True),
    "register": (lambda mp: mp.register("SELECT 1"), False),
    "execute": (lambda mp: mp.execute("DROP QUERY q"), False),
    "alter_stream": (lambda mp: mp.alter_stream("s", delay="1 s"), False),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_read_are_made_again_and_no_others(name, monkeypatch):
    monkeypatch.setattr(steps, "_PAUSE_SECONDS", 0)
    call, again = CALLS[name]
    sent: list[httpx.Request] = []
    mp = RemotePond(breaking(1, sent))
    if again:
        call(mp)
        assert len(sent) == 2
    else:
        with pytest.raises(MillpondError, match="SERVE-705"):
            call(mp)
        assert len(sent) == 1
    sent.clear()
    with pytest.raises(MillpondError, match="SERVE-705"):
        call(RemotePond(breaking(99, sent)))
    assert len(sent) == (steps.ATTEMPTS if again else 1)


def test_where_the_server_is_comes_from_the_environment(monkeypatch):
    def opened(url: str | None = None, token: str | None = None) -> tuple[str, str | None]:
        with open_client(httpx.Client, url, token, None)[0] as http:
            return str(http.base_url).rstrip("/"), http.headers.get("authorization")

    monkeypatch.delenv("MILLPOND_URL", raising=False)
    monkeypatch.delenv("MILLPOND_TOKEN", raising=False)
    assert opened() == ("http://127.0.0.1:6455", None)
    monkeypatch.setenv("MILLPOND_URL", "http://mill:1")
    monkeypatch.setenv("MILLPOND_TOKEN", "magpie")
    assert opened() == ("http://mill:1", "Bearer magpie")
    assert opened("http://pond:2", "heron") == ("http://pond:2", "Bearer heron")
    monkeypatch.setenv("MILLPOND_URL", "http://127.0.0.1:1")
    with pytest.raises(MillpondError, match=r"SERVE-705.*127\.0\.0\.1:1"):
        connect()


IMPORTS = """
import sys, millpond.api.client
heavy = {"duckdb", "numba", "pyspark", "pandas", "polars", "scipy", "fastapi", "llvmlite"}
print(sorted(heavy & sys.modules.keys()))
"""


def test_importing_the_client_imports_nothing_of_the_engine():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr
