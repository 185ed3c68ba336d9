"""The shared log: who leads, and what becomes of answers that are lost or come too late."""

import pytest
from tests.tools.founded_place import founded_place

from millpond.errors import MillpondError
from millpond.state.journal.record import decode_body
from millpond.state.shared.object_place import ObjectPlace
from millpond.state.shared.place import FIRST, PlaceError
from millpond.state.shared.shared_log import (
    SURE_SECONDS,
    TRIM_SECONDS,
    LogBehind,
    LogReader,
    SharedLog,
    SharedSnapshot,
    other_leads,
)
from millpond.state.shared.shared_record import decode_shared, encode_shared, key_of

INCARNATION = "abcdef"


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds


class LosingPlace:
    """A place whose next calls of `create` go as told: 'lost', 'unanswered'."""

    def __init__(self, place):
        self._place, self.to_come = place, []

    def __getattr__(self, name):
        return getattr(self._place, name)

    def create(self, key, data):
        what = self.to_come.pop(0) if self.to_come else ""
        if what == "lost":
            raise PlaceError("lost")
        made = self._place.create(key, data)
        if what == "unanswered":
            raise PlaceError("unanswered")
        return made


@pytest.fixture(params=["posix", "object"])
def place(request, tmp_path):
    if request.param == "posix":
        return LosingPlace(founded_place(tmp_path / "pond"))
    store = pytest.importorskip("obstore.store")
    place = LosingPlace(ObjectPlace("memory:///", store.MemoryStore()))
    place.write(FIRST, b"{}")
    return place


@pytest.fixture
def clock():
    return Clock()


def read_on(place, clock, number=0):
    reader = LogReader(place, INCARNATION, number, clock(), clock)
    while reader.read_next() is not None:
        pass
    return reader


def lead(place, clock, driver, number=0):
    log = SharedLog(read_on(place, clock, number), driver * 16, clock, clock.wait)
    assert log.claim()
    return log


def texts(place, clock):
    reader = LogReader(place, INCARNATION, 0, clock(), clock)
    found = []
    while (record := reader.read_next()) is not None:
        found += [sql for sql, _ in decode_body(record.body)]
    return found


def test_the_next_driver_knows_everything_and_stops_the_one_before(place, clock):
    first = lead(place, clock, "a")
    assert first.append([("one", [[1]])]) == 2
    second = lead(place, clock, "b")
    assert (second.number, second.term) == (3, 2)
    with pytest.raises(MillpondError, match="STORE-606"):
        first.append([("two", [])])
    with pytest.raises(MillpondError, match="STORE-606"):
        first.append([("three", [])])
    assert second.append([("four", [])]) == 4
    assert texts(place, clock) == ["one", "four"]


def test_a_record_that_came_in_before_the_word_that_another_leads_is_there(place, clock):
    """The leader's word is looked at beside; what is in the log was not refused."""
    log = lead(place, clock, "a")
    create = place.create

    def overtaken(key, data):
        created = create(key, data)
        log.ended = other_leads(place)
        return created

    place.create = overtaken
    assert log.append([("one", [])]) == 2
    with pytest.raises(MillpondError, match="STORE-606"):
        log.append([("two", [])])
    assert texts(place, clock) == ["one"]


def test_of_two_claims_of_one_number_one_succeeds(place, clock):
    readers = [read_on(place, clock) for _ in range(2)]
    logs = [
        SharedLog(reader, name * 16, clock, clock.wait)
        for reader, name in zip(readers, "ab", strict=True)
    ]
    assert [log.claim() for log in logs] == [True, False]


@pytest.mark.parametrize("fate", [["lost"], ["unanswered"], ["unanswered", "lost", "unanswered"]])
def test_an_append_without_an_answer_is_tried_again_and_is_there_once(place, clock, fate):
    log = lead(place, clock, "a")
    place.to_come = fate
    assert log.append([("one", [])]) == 2
    assert log.append([("two", [])]) == 3
    assert texts(place, clock) == ["one", "two"]


def remove_all(place, *prefixes):
    for prefix in prefixes:
        for key in place.list_keys(prefix):
            place.remove(key)


def test_a_log_that_lost_its_last_record_takes_no_other(place, clock):
    """`log/` was emptied below a driver that leads, and below one that waits."""
    log, waiting = lead(place, clock, "a"), read_on(place, clock)
    log.append([("one", [])])
    waiting.read_next()
    remove_all(place, "log/")
    for _ in range(2):
        with pytest.raises(MillpondError, match=r"STORE-602[^$]*Record 2, the last one, is not th"):
            log.append([("two", [])])
    with pytest.raises(MillpondError, match=r"STORE-602[^$]*Record 2, the last one, is not there"):
        SharedLog(waiting, "b" * 16, clock, clock.wait).claim()
    assert place.list_keys("log/") == []


def test_a_place_that_lost_everything_takes_no_record(place, clock):
    """A bucket that was emptied, or a directory with all but its hidden files."""
    log, waiting = lead(place, clock, "a"), read_on(place, clock)
    first = place.read(FIRST)
    remove_all(place, "log/")
    place.remove(FIRST)
    began = clock()
    with pytest.raises(MillpondError, match=r"STORE-603[^$]*is the storage mounted"):
        log.append([("two", [])])
    assert 30 < clock() - began < 35
    with pytest.raises(PlaceError, match="is the storage mounted"):
        SharedLog(waiting, "b" * 16, clock, clock.wait).claim()
    place.write(FIRST, first)
    assert place.list_keys("log/") == []


def test_a_place_that_was_away_for_a_moment_is_written_on(place, clock):
    log = lead(place, clock, "a")
    away = {key: place.read(key) for key in (FIRST, key_of(1))}
    for key in away:
        place.remove(key)

    def come_back(seconds):
        for key, data in away.items():
            place.write(key, data)

    log._wait = come_back
    assert log.append([("one", [])]) == 2
    assert texts(place, clock) == ["one"]


def test_after_half_a_minute_without_an_answer_nothing_more_is_appended(place, clock):
    log = lead(place, clock, "a")
    place.to_come = ["lost"] * 1_000
    with pytest.raises(MillpondError, match="STORE-603"):
        log.append([("one", [])])
    place.to_come = []
    with pytest.raises(MillpondError, match="STORE-603"):
        log.append([("two", [])])
    assert texts(place, clock) == []


def remove_first_records(place, clock, log):
    """Write a snapshot of all, and let the log forget what it holds."""
    place.write(SharedSnapshot(log.number, "0" * 16).key, b"a snapshot")
    log.trim(log.number)
    assert place.read(key_of(1)) is not None  # not within the hour
    clock.now += TRIM_SECONDS + 1
    log.append([("late", [])])
    log.trim(log.number - 1)
    assert place.read(key_of(1)) is None


def test_a_driver_that_was_stopped_for_hours_cannot_append_where_records_were_removed(place, clock):
    stopped = lead(place, clock, "a")
    next_driver = lead(place, clock, "b")
    for n in range(5):
        next_driver.append([(f"{n}", [])])
    remove_first_records(place, clock, next_driver)
    with pytest.raises(MillpondError, match="STORE-606"):
        stopped.append([("lost", [])])


def test_nor_can_one_that_was_waiting_claim_there(place, clock):
    leading = lead(place, clock, "a")
    waiting = read_on(place, clock)
    for n in range(5):
        leading.append([(f"{n}", [])])
    remove_first_records(place, clock, leading)
    assert not SharedLog(waiting, "b" * 16, clock, clock.wait).claim()


def test_a_reader_that_was_stopped_for_hours_begins_again_from_a_snapshot(place, clock):
    leading = lead(place, clock, "a")
    reader = read_on(place, clock)
    for n in range(5):
        leading.append([(f"{n}", [])])
    remove_first_records(place, clock, leading)
    with pytest.raises(LogBehind):
        reader.read_next()
    # also where a driver that was stopped as long has created the record anew
    junk = encode_shared(INCARNATION, reader.number + 1, 9, "c" * 16, [("junk", [])])
    assert place.create(key_of(reader.number + 1), junk)
    with pytest.raises(LogBehind):
        reader.read_next()
    assert clock.now > SURE_SECONDS


def test_a_damaged_and_a_missing_record_are_not_the_end_of_the_log(place, clock):
    log = lead(place, clock, "a")
    for n in range(3):
        log.append([(f"{n}", [])])
    whole = place.read(key_of(3))
    for damaged in (whole[:-1], whole + b"x", whole.replace(b"1 1", b"1 2", 1), b""):
        place.write(key_of(3), damaged)
        with pytest.raises(MillpondError, match="Record 3 is damaged"):
            read_on(place, clock)
    place.remove(key_of(3))
    with pytest.raises(MillpondError, match="Record 3 is missing; 4 is there"):
        read_on(place, clock)
    place.write(key_of(3), whole)
    assert read_on(place, clock).number == 4


def test_a_record_is_of_its_store_its_number_its_term_and_its_driver():
    data = encode_shared("abcdef", 7, 2, "a" * 16, [("one", [[1, b"\x00"]])])
    record = decode_shared("abcdef", 7, data)
    assert (record.number, record.term, record.driver) == (7, 2, "a" * 16)
    assert decode_body(record.body) == [("one", [[1, b"\x00"]])]
    assert decode_shared("abcdee", 7, data) is None
    assert decode_shared("abcdef", 8, data) is None
    assert decode_shared("abcdef", 7, data.replace(b"aaaa", b"aaab", 1)) is None


def test_what_is_no_record_is_passed_over(place, clock):
    log = lead(place, clock, "a")
    log.append([("one", [])])
    for name in (".nfs000000000001", "notes.txt", "000000000009.tmp", "deeper/000000000009"):
        place.write(f"log/{name}", b"of somebody else")
    assert texts(place, clock) == ["one"]
    remove_first_records(place, clock, log)
    log.trim(log.number)
    clock.now += TRIM_SECONDS + 1
    log.trim(log.number)
    assert len(place.list_keys("log/")) == 4
