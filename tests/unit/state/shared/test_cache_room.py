"""Machines that have only a cache: what goes when their disks are nearly full."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from tests.tools.founded_place import founded_place

from millpond.state.arrow_file import open_arrow, write_arrow
from millpond.state.disk_floor import DiskRoom
from millpond.state.file_share import share_directory, unshare_directory
from millpond.state.shared import cache_room
from millpond.state.shared.cache_room import CacheRoom
from millpond.state.shared.place_share import PlaceShare

NOW = 1_800_000_000.0


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What is free on the disk, whose floor is 1,000 bytes."""
    known = {"bytes": 1_900}
    monkeypatch.setattr(cache_room, "measure_room", lambda _: DiskRoom(known["bytes"], 1_000))
    return known


def put(directory: Path, name: str, used: float) -> Path:
    file = directory / "segments" / name
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_bytes(bytes(1_000))
    os.utime(file, (used, used))
    return file


def test_what_was_used_longest_ago_goes_until_there_is_room(tmp_path: Path, free) -> None:
    files = [put(tmp_path, f"{n}", NOW - 10_000 + n) for n in range(6)]
    now = NOW
    room = CacheRoom(tmp_path, lambda: now)
    assert room.make() == 3_000  # 2,100 were wanted
    assert [file.exists() for file in files] == [False] * 3 + [True] * 3
    assert room.make() == 0  # not looked at again so soon
    now += 10
    assert room.make() == 3_000  # the disk says that as little is free
    free["bytes"] = 2_000
    now += 10
    put(tmp_path, "7", NOW - 10_000)
    assert room.make() == 0


def test_what_is_new_stays(tmp_path: Path, free) -> None:
    """Somebody may be about to give it away."""
    file = put(tmp_path, "new", NOW - 60)
    assert CacheRoom(tmp_path, lambda: NOW).make() == 0
    assert file.exists()


def test_a_drivers_directory_is_its_own(tmp_path: Path, free) -> None:
    file = put(tmp_path, "old", NOW - 10_000)
    (tmp_path / "pond.db").touch()
    assert CacheRoom(tmp_path, lambda: NOW).make() == 0
    assert file.exists()
    assert CacheRoom(tmp_path / "none", lambda: NOW).make() == 0


def test_a_worker_that_fetches_makes_room_and_fetches_again(
    tmp_path: Path, free, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_room, "_LOOK_SECONDS", 0.0)
    directory, place = tmp_path / "cache", founded_place(tmp_path / "place")
    share_directory(directory, share := PlaceShare(directory, place, lambda: 0))
    share.keep_room()
    try:
        first = write_arrow(directory / "segments" / "1.arrow", pa.table({"v": [1]})).path
        second = write_arrow(directory / "segments" / "2.arrow", pa.table({"v": [2]})).path
        for file in (first, second):
            os.utime(file, (1.0, 1.0))
        second.unlink()
        assert open_arrow(second)["v"].to_pylist() == [2]
        assert not first.exists()
        assert open_arrow(first)["v"].to_pylist() == [1]
    finally:
        unshare_directory(directory)
