"""The database of a shared store: founded once, kept up, begun again when it is too late."""

import json
import sqlite3

import pytest
from tests.tools.founded_place import founded_place

from millpond.errors import MillpondError
from millpond.state.journal.fold import read_fold
from millpond.state.journal.snapshot import checksum_of
from millpond.state.shared.posix_place import PosixPlace
from millpond.state.shared.shared_fold import SharedFold, found_or_find
from millpond.state.shared.shared_log import TRIM_SECONDS, SharedSnapshot
from millpond.state.store import FORMAT

INSERT = "INSERT OR REPLACE INTO counter VALUES (?, ?)"


@pytest.fixture
def place(tmp_path):
    return founded_place(tmp_path / "pond")


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


def counters(file):
    with sqlite3.connect(file) as database:
        return dict(database.execute("SELECT name, next FROM counter"))


def test_a_store_is_founded_once(tmp_path):
    place = PosixPlace(tmp_path)
    first = found_or_find(place, FORMAT)
    assert found_or_find(place, FORMAT) == first
    with pytest.raises(MillpondError, match="STORE-604"):
        found_or_find(place, "millpond store 9\n")
    place.write("pond.json", b"{")
    with pytest.raises(MillpondError, match="STORE-604"):
        found_or_find(place, FORMAT)


def test_a_store_of_the_format_before_gets_another_number(tmp_path):
    place = PosixPlace(tmp_path)
    found = found_or_find(place, "millpond store 3\n")
    assert found_or_find(place, FORMAT) == found
    assert json.loads(place.read("pond.json")) == {"format": FORMAT.strip(), "incarnation": found}
    assert found_or_find(place, FORMAT) == found
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


def test_a_store_is_not_founded_where_one_has_lost_its_first_object(tmp_path):
    place = PosixPlace(tmp_path / "pond")
    incarnation = found_or_find(place, FORMAT)
    whole = place.read("pond.json")
    SharedFold(place, incarnation, tmp_path / "one.db").take_over("a" * 16)
    place.remove("pond.json")
    with pytest.raises(MillpondError, match=r"STORE-602.*\n.*There is no pond.json"):
        found_or_find(place, FORMAT)
    assert place.read("pond.json") is None, "another one would be in the way of a copy"
    place.write("pond.json", whole)
    assert found_or_find(place, FORMAT) == incarnation


def test_a_store_is_not_founded_in_the_directory_of_a_store_of_its_own(place):
    place.write("FORMAT", FORMAT.encode())
    place.remove("pond.json")
    with pytest.raises(MillpondError, match="has a store of its own"):
        found_or_find(place, FORMAT)


def test_a_log_that_is_gone_is_not_the_beginning_of_a_store(place, tmp_path):
    log = SharedFold(place, "abcdef", tmp_path / "one.db").take_over("a" * 16)
    log.append([(INSERT, [["c", 1]])])
    whole = {key: place.read(key) for key in place.list_keys("log/")}
    for key in whole:
        place.remove(key)
    SharedFold(place, "abcdef", tmp_path / "new.db").close()  # nothing says that more was there
    place.write("files/segments/a.arrow", b"rows")
    with pytest.raises(MillpondError, match="Record 1 is missing, and there are files of a store"):
        SharedFold(place, "abcdef", tmp_path / "two.db")
    for key, data in whole.items():
        place.write(key, data)
    assert SharedFold(place, "abcdef", tmp_path / "two.db").catch_up() == 1


def test_who_finds_files_of_a_store_that_another_has_just_begun_waits_for_it(place, tmp_path):
    class Late:
        """The first record is there once somebody has looked for it."""

        def __getattr__(self, name):
            return getattr(place, name)

        def read(self, key):
            found = place.read(key)
            if key == "log/000000000001" and found is None:
                SharedFold(place, "abcdef", tmp_path / "one.db").take_over("a" * 16)
                place.write("files/segments/a.arrow", b"rows")
            return found

    assert SharedFold(Late(), "abcdef", tmp_path / "two.db").catch_up() == 1


def test_a_damaged_snapshot_alone_is_passed_over_if_the_log_has_all_it_held(place, tmp_path):
    log = SharedFold(place, "abcdef", tmp_path / "one.db").take_over("a" * 16)
    log.append([(INSERT, [["c", 1]])])
    damaged = SharedSnapshot(log.number, "0" * 16).key
    place.write(damaged, b"not a database")
    fold = SharedFold(place, "abcdef", tmp_path / "two.db")
    fold.catch_up()
    fold.close()
    assert counters(tmp_path / "two.db") == {"c": 1}
    place.remove("log/000000000001")
    with pytest.raises(
        MillpondError, match=f"Record 1 is missing, and these are damaged: {damaged}"
    ):
        SharedFold(place, "abcdef", tmp_path / "three.db")


def test_a_kept_copy_of_a_snapshot_that_is_damaged_is_fetched_again(place, tmp_path):
    leading = SharedFold(place, "abcdef", tmp_path / "one.db")
    log = leading.take_over("a" * 16)
    log.append([(INSERT, [["c", 1]])])
    leading.catch_up()
    leading.close()
    snapshot = SharedSnapshot(log.number, checksum_of(tmp_path / "one.db"))
    place.upload(tmp_path / "one.db", snapshot.key)
    place.remove("log/000000000001")
    SharedFold(place, "abcdef", tmp_path / "two.db").close()
    (tmp_path / "journal" / snapshot.key.rpartition("/")[2]).write_bytes(b"damaged")
    SharedFold(place, "abcdef", tmp_path / "two.db").close()
    assert counters(tmp_path / "two.db") == {"c": 1}
