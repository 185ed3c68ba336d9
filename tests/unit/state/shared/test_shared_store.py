"""Stores that are caches of one shared store: who leads, who waits, and what each may still do."""

import shutil
import threading

import duckdb
import pyarrow as pa
import pytest
from tests.tools.founded_place import founded_place

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.state import scalar_version
from millpond.state.aggregate_file import write_totals
from millpond.state.arrow_file import open_arrow, write_arrow
from millpond.state.database import database
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.file_share import withdraw
from millpond.state.inbox.push_file import read_push
from millpond.state.shared import leader as leading
from millpond.state.shared import shared_log, shared_store
from millpond.state.shared.leader import read_leader, wait_to_lead
from millpond.state.shared.object_place import ObjectPlace
from millpond.state.shared.place import FIRST, PlaceError
from millpond.state.shared.shared_log import list_shared_snapshots
from millpond.state.shared.shared_store import SharedStore, open_place
from millpond.state.store import FORMAT, Store, new_path
from millpond.state.version import DATA, SegmentRef


@pytest.fixture
def url(tmp_path):
    return str(tmp_path / "shared")


@pytest.fixture
def open_store(tmp_path, url):
    opened = []

    def open_it(name, shared=url):
        opened.append(Store.open(tmp_path / name, clock=lambda: 1, shared=shared))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


def define(store, name="flights"):
    stream = StreamDef(store.log.next_id(), name, Schema((Field("n", "BIGINT"),)))
    store.log.commit(EpochChange(kind="create", add=[stream]))
    return stream.id


def push(store, stream, value):
    return store.inbox.accept(stream, pa.table({"n": [value]}), value, value, 1).number


def test_a_driver_that_was_taken_over_acknowledges_and_commits_nothing(open_store):
    first = open_store("a")
    stream = define(first)
    push(first, stream, 1)
    second = open_store("b")
    for attempt in (lambda: push(first, stream, 2), lambda: define(first, "other")):
        with pytest.raises(MillpondError, match="STORE-606"):
            attempt()
    assert first.failure.code == "STORE-606"
    assert second.failure is None
    assert push(second, stream, 3) == 2  # the same number as the one that was refused
    third = open_store("c")
    found = [read_push(third.inbox.path(n)).table["n"][0].as_py() for n in (1, 2)]
    assert found == [1, 3]


def test_a_directory_knows_its_shared_store(open_store, tmp_path):
    first = open_store("a")
    stream = define(first)
    first.close()
    again = open_store("a", None)
    assert again.log.version.names() == ["flights"]
    assert again.shared.term == 2
    push(again, stream, 7)
    again.close()
    shutil.rmtree(tmp_path / "a")
    assert [row.high for row in open_store("a").inbox.list_pending()] == [7]


def test_a_new_driver_drops_what_another_duckdb_derived(open_store, monkeypatch):
    """Its own directory says nothing of what the shared files were made with."""
    monkeypatch.setattr(duckdb, "__version__", "0.9.9")
    first = open_store("a")
    first.close()
    monkeypatch.undo()
    dropped = []
    monkeypatch.setattr(scalar_version, "_has_derived", lambda version: dropped.append(1))
    open_store("b").close()
    assert dropped == [1]
    open_store("c").close()
    open_store("a").close()
    assert dropped == [1]


def test_a_directory_of_another_store_is_refused(open_store, tmp_path):
    open_store("own", None).close()
    with pytest.raises(MillpondError, match="has a store of its own"):
        open_store("own")
    open_store("a").close()
    open_store("b", str(tmp_path / "elsewhere")).close()
    with pytest.raises(MillpondError, match="belongs to another shared store"):
        open_store("a", str(tmp_path / "elsewhere"))


def test_a_place_of_another_format_is_refused(open_store, url, tmp_path):
    open_store("a").close()
    pond = tmp_path / "shared" / "pond.json"
    pond.write_text(pond.read_text().replace(FORMAT.strip(), "millpond store 9"))
    with pytest.raises(MillpondError, match="no shared store of this version"):
        open_store("b")


def test_snapshots_are_shared_and_old_ones_go(open_store, monkeypatch):
    monkeypatch.setattr(database, "_SNAPSHOT_BYTES", 0)
    monkeypatch.setattr(database, "_SNAPSHOT_SHARE", 0)
    first = open_store("a")
    for n in range(4):
        define(first, f"s{n}")
        assert first.log.snapshot_if_due()
    assert len(list_shared_snapshots(first.shared.place)) == 2
    assert len(first.shared.place.list_keys("log/")) == 5  # for an hour
    clock = first.shared._log._clock() + shared_log.TRIM_SECONDS + 1
    monkeypatch.setattr(first.shared._log, "_clock", lambda: clock)
    define(first, "late")
    assert first.log.snapshot_if_due()
    assert len(first.shared.place.list_keys("log/")) < 5
    assert open_store("b").log.version.names() == ["late", "s0", "s1", "s2", "s3"]


def test_a_damaged_snapshot_is_replaced_by_the_one_before(open_store, monkeypatch, tmp_path):
    monkeypatch.setattr(database, "_SNAPSHOT_BYTES", 0)
    monkeypatch.setattr(database, "_SNAPSHOT_SHARE", 0)
    first = open_store("a")
    for n in range(2):
        define(first, f"s{n}")
        first.log.snapshot_if_due()
    newest = list_shared_snapshots(first.shared.place)[-1]
    (tmp_path / "shared" / newest.key).write_bytes(b"not a database")
    assert open_store("b").log.version.names() == ["s0", "s1"]


def test_who_waits_keeps_up_and_leads_once_the_leader_has_left(open_store, url, tmp_path):
    first = open_store("a")
    first.shared.announce("http://one")
    stream = define(first)
    waiting = SharedStore.open(url, tmp_path / "b", FORMAT)
    fold, told, stop, result = waiting.follow(), [], threading.Event(), []
    while getattr(read_leader(waiting.place), "url", "") != "http://one":
        pass

    def wait():
        result.append(wait_to_lead(waiting.place, fold, told.append, stop))

    thread = threading.Thread(target=wait)
    thread.start()
    push(first, stream, 5)
    while fold.number < first.shared._log.number or not told:
        assert thread.is_alive()
    assert told[0].url == "http://one"
    first.close()
    thread.join(60)
    assert result == [True]
    second = open_store("b", waiting)
    assert [row.high for row in second.inbox.list_pending()] == [5]
    assert second.shared.term == 2


def test_who_waits_takes_over_from_a_leader_that_is_silent(open_store, url, tmp_path, monkeypatch):
    monkeypatch.setattr(leading, "BEAT_SECONDS", 1_000.0)
    first = open_store("a")
    first.shared.announce("http://one")
    while read_leader(first.shared.place) is None:
        pass
    waiting = SharedStore.open(url, tmp_path / "b", FORMAT)
    seconds = iter(range(1_000))
    stop = threading.Event()
    monkeypatch.setattr(stop, "wait", lambda _: None)
    fold = waiting.follow()
    assert wait_to_lead(waiting.place, fold, lambda _: None, stop, lambda: next(seconds))
    assert next(seconds) > leading.PATIENCE_SECONDS
    with open_store("b", waiting), pytest.raises(MillpondError, match="STORE-606"):
        define(first)


def give_file(store):
    """Write a file of the store as tasks do, and give it to the shared place."""
    path = new_path(store.directory, "segments")
    write_arrow(path, pa.table({"n": [1]}))
    return path, f"files/{store.relative_path(path)}"


@pytest.mark.parametrize("ends", [PlaceError("no answer"), KeyboardInterrupt()])
def test_files_of_a_change_that_may_be_in_the_log_stay(open_store, monkeypatch, ends):
    """The record is there, its answer is lost; who commits takes it for a change that failed."""
    first = open_store("a")
    monkeypatch.setattr(shared_log, "_TRY_SECONDS", -1.0)
    place = first.shared.place
    create = place.create

    def lose_answer(key, data):
        assert create(key, data)
        raise ends

    path, key = give_file(first)
    monkeypatch.setattr(place, "create", lose_answer)
    with pytest.raises((MillpondError, KeyboardInterrupt)):
        define(first)
    withdraw(path)
    assert place.read(key) is not None
    assert open_store("b").log.version.names() == ["flights"]
    with pytest.raises(MillpondError, match=r"STORE-60[36]"):
        define(first, "other")


def test_files_of_a_change_that_failed_before_the_log_go(open_store):
    first = open_store("a")
    path, key = give_file(first)
    withdraw(path)
    assert first.shared.place.read(key) is None


class SlowLooks:
    """A clock, and looks at the leader's word that each take a while by it."""

    def __init__(self, monkeypatch, words):
        self.now, self.looks, self._words = 0.0, 0, iter(words)
        monkeypatch.setattr(leading, "read_leader", self.look)

    def look(self, place):
        seconds, word = next(self._words)
        self.now += seconds
        self.looks += 1
        return word

    def clock(self):
        return self.now


def words_of(*words):
    """Words of one leader: how long it takes to hear each, and which beat it is."""
    return [(seconds, leading.Leader("d", 1, "http://one", beat)) for seconds, beat in words]


@pytest.fixture
def waiting(open_store, url, tmp_path):
    open_store("a")
    return SharedStore.open(url, tmp_path / "b", FORMAT)


def test_a_storage_that_stood_still_says_nothing_of_the_leader(waiting, monkeypatch):
    """The leader's word stood still with it, and comes a moment after the answer to the look."""
    quick = [(0.25, 1)] * 3
    left = [(0.25, leading.Leader("d", 1, "http://one", 3, has_left=True))]
    looks = SlowLooks(monkeypatch, words_of(*quick, (12.0, 1), (9.0, 1), (0.25, 2)) + left)
    stop = threading.Event()
    monkeypatch.setattr(stop, "wait", lambda _: None)
    assert wait_to_lead(waiting.place, waiting.follow(), lambda _: None, stop, looks.clock)
    assert looks.looks == 7


def test_a_silent_leader_is_followed_over_a_slow_storage_too(waiting, monkeypatch):
    looks = SlowLooks(monkeypatch, words_of(*[(3.0, 1)] * 50))
    stop = threading.Event()
    monkeypatch.setattr(stop, "wait", lambda _: None)
    assert wait_to_lead(waiting.place, waiting.follow(), lambda _: None, stop, looks.clock)
    assert looks.looks < 10


def test_a_late_word_that_a_leader_has_left_is_not_of_the_one_that_leads_now(
    open_store, waiting, monkeypatch
):
    """A storage may do what a driver asked long after another has claimed the log."""
    late = leading.Leader("c", 0, "http://zero", 7, has_left=True)
    left = leading.Leader("d", 1, "http://one", 3, has_left=True)
    looks = SlowLooks(monkeypatch, [(0.25, late), (0.25, None), (0.25, left)])
    stop = threading.Event()
    monkeypatch.setattr(stop, "wait", lambda _: None)
    assert wait_to_lead(waiting.place, waiting.follow(), lambda _: None, stop, looks.clock)
    assert looks.looks == 3


def test_of_two_that_find_nobody_one_leads_and_says_so_before_it_serves(open_store, url, tmp_path):
    """The other one would take it for dead while it opens the store."""
    stop = threading.Event()
    both = [SharedStore.open(url, tmp_path / name, FORMAT) for name in "ab"]
    for each in both:
        assert wait_to_lead(each.place, each.follow(), lambda _: None, stop)
    assert [each.claim(f"http://{n}") for n, each in enumerate(both)] == [True, False]
    while read_leader(both[1].place) is None:
        pass
    assert read_leader(both[1].place).url == "http://0"
    first = open_store("a", both[0])
    define(first)
    assert (first.shared.term, first.failure) == (1, None)
    first.close()
    assert both[1].claim("http://1") is False  # there are records that it has not read
    assert wait_to_lead(both[1].place, both[1].follow(), lambda _: None, stop)
    assert both[1].claim("http://1")
    assert open_store("b", both[1]).shared.term == 2


def test_a_leader_that_sees_another_stops_before_it_writes(open_store):
    first = open_store("a")
    second = open_store("b")
    second.shared.announce("http://two")
    while getattr(read_leader(second.shared.place), "url", "") != "http://two":
        pass
    first.shared.announce("http://one")
    while first.failure is None:
        pass
    assert first.failure.code == "STORE-606"
    assert read_leader(second.shared.place).url == "http://two"
    assert second.failure is None


def test_a_leader_whose_directory_is_gone_leads_no_more(open_store, eventually, tmp_path):
    first = open_store("a")
    stream = define(first)
    (tmp_path / "a").rename(tmp_path / "away")
    eventually(lambda: first.failure)
    assert (first.failure.code, first.failure.primary[-7:]) == ("STORE-603", "is gone")
    with pytest.raises(MillpondError, match="STORE-603"):
        push(first, stream, 1)


@pytest.mark.parametrize("call", ["read", "write"])
def test_a_leader_that_cannot_say_so_ends_and_does_not_answer_beside_another(
    open_store, eventually, monkeypatch, call
):
    """Its keys were revoked: it cannot even read that another leads."""
    monkeypatch.setattr(leading, "BEAT_SECONDS", 0.01)
    now = [0.0]
    monkeypatch.setattr(leading, "steady_seconds", lambda: now[0])
    tries = []

    def refuse(*_):
        tries.append(now[0])
        raise PlaceError("403 Forbidden")

    first = open_store("a")
    stream = define(first)
    with monkeypatch.context() as broken:
        broken.setattr(first.shared.place, call, refuse)
        eventually(lambda: len(tries) > 2)
        now[0] = leading.GIVE_UP_SECONDS - 1
        eventually(lambda: tries.count(now[0]) > 2)
    beat = read_leader(first.shared.place).beat
    eventually(lambda: read_leader(first.shared.place).beat > beat)
    with monkeypatch.context() as broken:
        broken.setattr(first.shared.place, call, refuse)
        now[0] += 10
        eventually(lambda: tries.count(now[0]) > 2)
        assert first.failure is None, "it was heard in between"
        now[0] += leading.GIVE_UP_SECONDS + 1
        eventually(lambda: first.failure)
    assert first.failure.code == "STORE-603"
    assert "403 Forbidden" in first.failure.detail
    with pytest.raises(MillpondError, match="STORE-603"):
        push(first, stream, 1)


@pytest.fixture(params=["directory", "bucket"])
def emptied(request, open_store, url):
    """A store that leads, and whose place has lost all keys, but what is hidden in a directory."""
    if request.param == "directory":
        first = open_store("a")
    else:
        objects = pytest.importorskip("obstore.store")
        place = ObjectPlace("memory:///", objects.MemoryStore())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shared_store, "open_place", lambda url: place)
            first = open_store("a", "memory:///")
    stream = define(first)
    push(first, stream, 1)
    for prefix in ("log/", "files/"):
        for key in first.shared.place.list_keys(prefix):
            first.shared.place.remove(key)
    first.shared.place.remove(FIRST)
    return first, stream


def test_a_leader_whose_place_came_back_empty_acknowledges_nothing(emptied, monkeypatch):
    first, stream = emptied
    monkeypatch.setattr(shared_log, "_TRY_SECONDS", -1.0)
    with pytest.raises(MillpondError, match=r"STORE-603[^$]*is the storage mounted"):
        push(first, stream, 2)
    with pytest.raises(MillpondError, match="STORE-603"):
        define(first, "other")
    assert first.shared.place.list_keys("log/") == []
    assert first.failure.code == "STORE-603"


def test_an_idle_leader_whose_place_came_back_empty_ends(emptied, eventually, monkeypatch):
    """It says no more that it leads."""
    first, _ = emptied
    monkeypatch.setattr(leading, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(leading, "GIVE_UP_SECONDS", 0.0)
    first.shared.announce("http://one")
    eventually(lambda: first.failure)
    assert "is the storage mounted" in first.failure.detail
    beat = read_leader(first.shared.place)
    first.shared.announce("http://two")
    first.shared.close()
    assert read_leader(first.shared.place) == beat


def test_who_waits_without_its_directory_ends_before_it_leads(waiting, url, tmp_path):
    stop = threading.Event()
    waiting.follow()
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(MillpondError, match=r"STORE-603: the directory .* is gone"):
        wait_to_lead(waiting.place, waiting.follow(), lambda _: None, stop)
    assert not (tmp_path / "b").exists(), "what is left would be taken for a store of its own"


def test_a_leader_that_says_another_address_does_not_say_that_it_leaves(open_store, monkeypatch):
    """Who waits would take over at once."""
    said = []
    first = open_store("a")
    write = first.shared.place.write

    def note(key, data):
        said.append(data)
        write(key, data)

    monkeypatch.setattr(first.shared.place, "write", note)
    for port in range(20):
        first.shared.announce(f"http://one:{port}")
    assert not [word for word in said if b'"has_left": true' in word]


def test_totals_of_segments_are_nobody_elses(open_store, url):
    """Nothing refers to them: each driver makes its own."""
    store = open_store("a")
    write_totals(new_path(store.directory, "aggregates"), "segments/1.arrow", {})
    assert store.shared.place.list_keys("files/aggregates") == []


def test_who_leads_without_a_server_says_so(open_store, eventually):
    """Otherwise a server that waits would take over at once."""
    first = open_store("a")
    eventually(lambda: read_leader(first.shared.place))
    found = read_leader(first.shared.place)
    assert (found.driver, found.url, found.has_left) == (first.shared._log.driver, "", False)


@pytest.mark.parametrize(
    "word",
    [
        b"\xff",
        b"[1]",
        b'{"driver": 3, "term": 1, "url": "", "beat": 1}',
        b'{"driver": "a", "term": "x", "url": "", "beat": 1, "has_left": true}',
        b'{"driver": "a", "term": 1, "url": null, "beat": 1}',
        b'{"driver": "a", "term": 1, "url": "", "beat": 1, "has_left": 7}',
        b'{"driver": "a", "term": -1, "url": "", "beat": 1}',
        b'{"driver": "a", "term": 1000000000000000001, "url": "", "beat": 1}',
    ],
)
def test_a_word_that_is_none_is_passed_over(tmp_path, word):
    place = founded_place(tmp_path)
    place.write("leader.json", word)
    assert read_leader(place) is None


@pytest.mark.parametrize(
    "url", ["", "s3:/bucket/pond", "s3:bucket", "S3:///pond", "file:/tmp/pond", "file://host/pond"]
)
def test_a_url_with_a_slip_is_not_a_directory_of_that_name(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MillpondError, match=r"STORE-604: .* names no shared store"):
        open_place(url)


def test_a_place_that_is_not_mounted_is_not_a_new_store(open_store, url, tmp_path):
    open_store("a").close()
    (tmp_path / "shared").rename(tmp_path / "mounted")
    with pytest.raises(MillpondError, match=r"has no shared store[^$]*Is the storage mounted"):
        open_store("a")
    assert not (tmp_path / "shared").exists()
    (tmp_path / "mounted").rename(tmp_path / "shared")
    open_store("a")


def test_credentials_in_the_url_of_a_place_are_refused_and_not_shown():
    with pytest.raises(MillpondError, match="STORE-604") as refused:
        open_place("s3://key:hidden@bucket/pond")
    assert "hidden" not in str(refused.value)


def damage(file, how):
    if how == "gone":
        file.unlink()
    else:
        data = file.read_bytes()
        file.write_bytes(data[:100] if how == "cut" else data.replace(data[-20:], b"?" * 20))


@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_push_that_is_damaged_in_the_shared_place_is_lost_alone(open_store, tmp_path, how):
    first = open_store("a")
    stream = define(first)
    for value in range(3):
        push(first, stream, value)
    first.close()
    file = sorted((tmp_path / "shared" / "files" / "inbox").iterdir())[1]
    damage(file, how)
    again = open_store("b")
    assert again.inbox.recovered.lost == {2}
    assert [problem.code for problem in again.inbox.recovered.problems] == ["STORE-602"]
    assert sorted(file.name for file in (tmp_path / "b" / "inbox").glob("[0-9]*")) == [
        f"{number:012d}.arrow" for number in (1, 3)
    ]


DAMAGES = pytest.mark.parametrize("how", ["cut", "gone", "other bytes"])


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_log_that_was_put_back_is_led_in_a_higher_term_than_any_driver_said(
    open_store, tmp_path, eventually, is_ended
):
    """The new one would take the last word for that of a driver that has taken over."""
    place = tmp_path / "shared"
    first = open_store("a")
    stream = define(first)
    first.close()
    shutil.copytree(place / "log", tmp_path / "copy")
    for name in "bcd":
        last = open_store(name)
        push(last, stream, 1)
        eventually(lambda: read_leader(last.shared.place).driver == last.shared._log.driver)  # noqa: B023
        if is_ended or name != "d":
            last.close()
    assert read_leader(last.shared.place).term == last.shared.term == 4
    shutil.rmtree(place / "log")
    shutil.copytree(tmp_path / "copy", place / "log")
    new = open_store("e")
    assert new.shared.term == 5
    eventually(lambda: read_leader(new.shared.place).driver == new.shared._log.driver)
    push(new, stream, 2)
    assert new.failure is None
    assert [row.high for row in new.inbox.list_pending()] == [2]
    if not is_ended:
        with pytest.raises(MillpondError, match=r"STORE-60[26]"):
            push(last, stream, 3)


@DAMAGES
def test_a_push_that_is_whole_in_one_place_is_put_into_the_other(open_store, tmp_path, how):
    first = open_store("a")
    stream = define(first)
    for value in range(4):
        push(first, stream, value)
    rows = first.inbox.list_pending()
    objects = sorted((tmp_path / "shared" / "files" / "inbox").iterdir())
    whole = [first.inbox.path(row.number).read_bytes() for row in rows]
    damage(objects[1], how)  # by number: in shared storage, here, and in both
    damage(first.inbox.path(3), how)
    damage(objects[3], how)
    damage(first.inbox.path(4), how)
    [problem] = first.inbox.check_again(rows)
    assert first.inbox.recovered.lost == {4}
    assert (problem.code, str(objects[3]) in problem.detail) == ("STORE-602", True)
    for row, data, path in zip(rows[:3], whole, objects, strict=False):
        assert first.inbox.path(row.number).read_bytes() == path.read_bytes() == data
    assert first.inbox.check_again(rows[:3]) == []
    objects[3].write_bytes(whole[3])  # as the error says; an opening has it again
    first.close()
    assert open_store("a").inbox.recovered.lost == set()


@DAMAGES
def test_a_file_that_is_damaged_in_the_shared_place_is_put_back(open_store, url, how):
    first = open_store("a")
    stream = define(first)
    path = new_path(first.directory, "segments")
    file = write_arrow(path, pa.table({"n": [1]}))
    named, given = first.relative_path(path), open_place(url)._path(f"files/segments/{path.name}")
    span = SegmentRef(0, stream, DATA, 0, 0, named, 1, 1, 1, ((0, 0),), file.checksum, file.bytes)
    first.log.commit(EpochChange(kind="batch", segments=[span]))
    assert not first.log.put_back(named), "it is whole"
    damage(given, how)
    assert first.log.put_back(f'the file "{path}" of the store is corrupt or missing')
    assert given.read_bytes() == path.read_bytes()
    damage(given, how)
    damage(path, how)
    assert not first.log.put_back(named)
    with pytest.raises(MillpondError, match=f"In the shared store it is {given.as_uri()}"):
        open_arrow(path, file.checksum)
    assert sorted(file.name for file in path.parent.iterdir()) in ([path.name], [])


def test_a_place_that_can_be_read_and_not_written_is_said_once_in_ten_seconds(
    open_store, url, tmp_path, monkeypatch, caplog
):
    open_store("a").close()
    waits = SharedStore.open(url, tmp_path / "b", FORMAT)

    def refuse(*_):
        raise PlaceError("Read-only file system")

    monkeypatch.setattr(waits.place, "create", refuse)
    now = [100.0]
    monkeypatch.setattr(leading, "steady_seconds", lambda: now[0])
    for _ in range(12):
        assert not waits.claim("http://b")
        now[0] += 1
    said = [record.message for record in caplog.records if "no answer" in record.message]
    assert said == ["the shared store gives no answer: Read-only file system"] * 2
    waits.close()
