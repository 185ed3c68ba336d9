"""Bodies: one that is too large, all of them together, and gzip that never ends."""

from __future__ import annotations

import asyncio
import gzip
import time
from contextlib import nullcontext

import pytest

from millpond.api.limits import BodyMemory, _Body, gunzip
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
    assert gunzip(data, 20_000) == b"abc" * 5_000 + b"de"


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
        gunzip(data, 1_000)
