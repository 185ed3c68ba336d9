"""Bodies: one that is too large, all of them together, and gzip that never ends."""

from __future__ import annotations

import asyncio
import gzip
import time
from contextlib import nullcontext

import pytest
from fastapi import Request
from starlette.types import Message, Receive, Scope, Send

from millpond.api.limits import BodyLimit, BodyMemory, _Body, gunzip
from millpond.api.row_bodies import read_rows
from millpond.errors import MillpondError


def test_a_body_has_room_until_all_together_have_too_much() -> None:
    memory = BodyMemory(100, patience=10)
    first, second = _Body(), _Body()
    memory.add(first, 60)
    with pytest.raises(MillpondError, match="SERVE-715"):
        memory.add(second, 50)
    memory.release(second)
    memory.release(second)
    memory.add(_Body(), 40)


def test_a_body_that_is_alone_may_be_larger_than_all_together() -> None:
    memory = BodyMemory(100, patience=10)
    memory.add(_Body(), 300)


@pytest.mark.parametrize("is_slow", [True, False])
def test_the_body_that_has_been_coming_long_gives_way(is_slow: bool) -> None:
    async def run() -> bool:
        memory = BodyMemory(100, patience=10)
        waiting = asyncio.ensure_future(asyncio.sleep(60))
        coming = _Body(began_at=time.monotonic() - (1_000 if is_slow else 0), reader=waiting)
        memory.add(coming, 80)
        refused = nullcontext() if is_slow else pytest.raises(MillpondError, match="SERVE-715")
        with refused:
            memory.add(_Body(), 50)
        waiting.cancel()
        return coming.is_ended

    assert asyncio.run(run()) == is_slow


def test_gzip_files_behind_each_other_are_one() -> None:
    data = gzip.compress(b"abc" * 5_000) + gzip.compress(b"de")
    assert gunzip(data, 20_000, lambda size: None) == b"abc" * 5_000 + b"de"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (gzip.compress(b"x" * 10_000_000, mtime=0), "SERVE-707"),
        (gzip.compress(b"abc", mtime=0)[:-4], "SERVE-703"),
        (b"no gzip", "SERVE-703"),
        (b"", "SERVE-703"),
    ],
)
def test_what_is_no_gzip_or_too_much_of_it_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(MillpondError, match=code):
        gunzip(data, 1_000, lambda size: None)


def test_what_a_body_unpacks_to_is_noted_as_it_grows() -> None:
    noted: list[int] = []
    gunzip(gzip.compress(b"x" * 10_000_000), 20_000_000, noted.append)
    assert sum(noted) == 10_000_000
    assert len(noted) > 2


@pytest.mark.parametrize("others", [0, 60_000])
def test_bodies_have_room_for_what_they_unpack_to(others: int) -> None:
    """A body of 100 bytes that unpacks to 50,000 is one of 50,000."""
    memory = BodyMemory(100_000, patience=10)
    body = gzip.compress(b"x" * 50_000)
    got: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        got.append((await read_rows(Request(scope, receive), 1_000_000))[0])

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        pass

    headers = [(b"content-type", b"text/csv"), (b"content-encoding", b"gzip")]
    scope = {"type": "http", "method": "POST", "headers": headers}
    limited = BodyLimit(app, 1_000_000, memory)
    other = _Body()
    memory.add(other, others)
    refused = pytest.raises(MillpondError, match="SERVE-715") if others else nullcontext()
    with refused:
        asyncio.run(limited(scope, receive, send))
    assert [len(data) for data in got] == ([] if others else [50_000])
    memory.release(other)
    assert memory._held == 0
