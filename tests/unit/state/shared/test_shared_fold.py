"""The database of a shared store: founded once, kept up, begun again when it is too late."""

import sqlite3

import pytest

from millpond.errors import MillpondError
from millpond.state.journal.fold import read_fold
from millpond.state.journal.snapshot import checksum_of
from millpond.state.shared.posix_place import PosixPlace
from millpond.state.shared.shared_fold import SharedFold, found_or_find
from millpond.state.shared.shared_log import TRIM_SECONDS, SharedSnapshot

INSERT = "INSERT OR REPLACE INTO counter VALUES (?, ?)"


@pytest.fixture
def place(tmp_path):
    return PosixPlace(tmp_path / "pond")


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


def counters(file):
    with sqlite3.connect(file) as database:
        return dict(database.execute("SELECT name, next FROM counter"))


def test_a_store_is_founded_once(place):
    first = found_or_find(place, "millpond store 3\n")
    assert found_or_find(place, "millpond store 3\n") == first
    with pytest.raises(MillpondError, match="STORE-604"):
        found_or_find(place, "millpond store 4\n")
    place.write("pond.json", b"{")
    with pytest.raises(MillpondError, match="STORE-604"):
        found_or_find(place, "millpond store 3\n")


def test_it_has_every_record_and_says_how_many(place, tmp_path):
    clock = Clock()
    log = SharedFold(place, "abcdef", tmp_path / "one.db", clock).take_over("a" * 16)
    waiting = SharedFold(place, "abcdef", tmp_path / "two.db", clock)
    assert waiting.catch_up() == 1  # of the claim
    for n in range(3):
        log.append([(INSERT, [[f"c{n}", n]])])
    waiting.catch_up()
    assert (waiting.number, waiting.leader) == (4, (1, "a" * 16))
    assert waiting.bytes > 0
    waiting.close()
    assert counters(tmp_path / "two.db") == {"c0": 0, "c1": 1, "c2": 2}
    with sqlite3.connect(tmp_path / "two.db") as database:
        assert read_fold(database) == ("abcdef", 4)


def test_who_waited_for_hours_begins_again_from_a_snapshot(place, tmp_path):
    clock = Clock()
    leading = SharedFold(place, "abcdef", tmp_path / "one.db", clock)
    log = leading.take_over("a" * 16)
    waiting = SharedFold(place, "abcdef", tmp_path / "two.db", clock)
    log.append([(INSERT, [["c", 1]])])
    leading.catch_up()
    leading.close()
    snapshot = tmp_path / "one.db"
    place.upload(snapshot, SharedSnapshot(log.number, checksum_of(snapshot)).key)
    log.trim(log.number)
    clock.now += TRIM_SECONDS + 1
    log.append([(INSERT, [["c", 2]])])
    log.trim(log.number - 1)
    assert place.list_keys("log/") == ["log/000000000003"]
    waiting.catch_up()
    assert waiting.number == 3
    waiting.close()
    assert counters(tmp_path / "two.db") == {"c": 2}
