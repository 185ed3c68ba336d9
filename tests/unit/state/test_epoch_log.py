"""The epoch log: one commit, one epoch, all of it or nothing."""

import sqlite3
from dataclasses import replace

import pytest

from millpond.catalog.objects import QueryDef
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.state.database import database
from millpond.state.epoch.epoch_change import EpochChange, StaleChange, new_segment_id
from millpond.state.epoch_log import EpochLog
from millpond.state.version import LeafRef, MatchRef, SlotRef, StreamClock


@pytest.fixture
def log(tmp_path):
    opened = EpochLog.open(tmp_path, clock=lambda: 42)
    yield opened
    opened.close()


@pytest.fixture
def stream(log, a):
    id = log.next_id()
    log.commit(EpochChange(kind="create", add=[a.stream(id)]))
    return id


def match(segment_id, low, upto, path="matches/m"):
    return MatchRef(0, segment_id, low, upto, path, "c0ffee", 10)


def test_an_epoch_makes_the_next_version_and_leaves_the_last_alone(log, a):
    empty = log.version
    assert (empty.epoch, empty.names()) == (0, [])
    version = log.commit(EpochChange(kind="create", add=[a.stream(log.next_id(), "Flights")]))
    assert version is log.version
    assert (version.epoch, version.names()) == (1, ["Flights"])
    assert version.find("FLIGHTS").name == "Flights"
    assert empty.find("flights") is None
    assert log.epochs() == [(1, "create", 42)]


def test_rejects_are_found_by_their_name(log, stream):
    rejects = log.version.find("Flights$Rejects")
    assert (rejects.kind, rejects.id) == ("rejects", stream)
    assert log.version.find("nothing$rejects") is None


def test_definitions_come_back_as_they_were(log, a, tmp_path):
    stream, relation, query = log.next_id(), log.next_id(), log.next_id()
    log.commit(
        EpochChange(
            kind="create", add=[a.stream(stream), a.relation(relation), a.query(query, "Späť")]
        )
    )
    before = log.version
    log.close()
    again = EpochLog.open(tmp_path)
    for id in (stream, relation, query):
        assert again.version.definition(id) == before.definition(id)
    assert again.version.find("SPÄŤ").registered_epoch == 1
    assert again.next_id() > query
    again.close()


def test_an_id_is_not_given_again_after_a_drop(log, stream, tmp_path):
    log.commit(EpochChange(kind="drop", drop=[stream]))
    log.close()
    again = EpochLog.open(tmp_path)
    assert again.next_id() > stream
    again.close()


def test_a_name_is_given_once(log, stream, a):
    with pytest.raises(MillpondError) as caught:
        log.commit(EpochChange(kind="create", add=[a.relation(log.next_id(), "FLIGHTS")]))
    assert caught.value.code == "CQL-208"
    one, two = log.next_id(), log.next_id()
    with pytest.raises(MillpondError, match="CQL-208"):
        log.commit(EpochChange(kind="create", add=[a.query(one, "x"), a.query(two, "X")]))
    assert log.version.epoch == 1
    log.commit(EpochChange(kind="create", drop=[stream], add=[a.relation(one, "FLIGHTS")]))
    assert log.version.find("flights").id == one


def test_a_definition_is_replaced_under_its_name(log, a):
    id = log.next_id()
    log.commit(EpochChange(kind="register", add=[a.query(id)]))
    suspended = replace(log.version.queries[id], suspended="too many rows")
    log.commit(EpochChange(kind="suspend", replace=[suspended]))
    assert log.version.find("late").suspended == "too many rows"
    with pytest.raises(StaleChange):
        log.commit(EpochChange(kind="suspend", replace=[a.query(99)]))
    with pytest.raises(StaleChange):
        log.commit(EpochChange(kind="suspend", replace=[replace(suspended, name="other")]))


def test_a_batch_is_committed_once(log, stream):
    assert not log.is_committed("flights", 0)
    log.commit(EpochChange(kind="batch", batches=[("flights", 0)]))
    assert log.is_committed("flights", 0)
    assert not log.is_committed("flights", 1)
    assert not log.is_committed("weather", 0)
    with pytest.raises(StaleChange):
        log.commit(EpochChange(kind="batch", batches=[("weather", 0), ("flights", 0)]))
    assert not log.is_committed("weather", 0)


def test_segments_are_numbered_sorted_and_found(log, stream, a):
    log.commit(
        EpochChange(
            kind="batch",
            segments=[
                a.segment(stream, "segments/b", min_ts=50, max_ts=60),
                a.segment(stream, "segments/a", min_ts=10, max_ts=60),
                a.segment(stream, "rejects/r", kind="rejects"),
            ],
            matches=[match(new_segment_id(1), 0, 4)],
            clocks={stream: StreamClock(high=60, heartbeat=55, next_seq=20, rejected=10)},
        )
    )
    version = log.version
    first, second = version.segments(stream)
    assert (first.path, first.id, first.epoch) == ("segments/a", 2, 2)
    assert (second.path, second.id, second.epoch) == ("segments/b", 1, 2)
    assert [s.path for s in version.segments(stream, "rejects")] == ["rejects/r"]
    assert [m.segment_id for m in version.matches(2)] == [2]
    assert version.matches(1) == ()
    assert version.segment(3).kind == "rejects"
    assert version.clock(stream).high == 60
    assert version.clock(99) == StreamClock(heartbeat=BEGINNING)


def test_a_merge_takes_the_place_of_its_parts_or_fails(log, stream, a):
    log.commit(EpochChange(kind="batch", segments=[a.segment(stream, "segments/a")]))
    log.commit(EpochChange(kind="batch", segments=[a.segment(stream, "segments/b")]))
    parts = [s.id for s in log.version.segments(stream)]
    merged = a.segment(stream, "segments/ab", epoch=3)
    merge = EpochChange(kind="merge", segments=[merged], replaced=parts)
    log.commit(merge)
    assert [(s.path, s.epoch) for s in log.version.segments(stream)] == [("segments/ab", 3)]
    with pytest.raises(StaleChange):
        log.commit(merge)
    assert len(log.version.segments(stream)) == 1


def test_matches_of_a_segment_that_is_gone_are_left_out(log, stream, a, tmp_path):
    log.commit(EpochChange(kind="batch", segments=[a.segment(stream, "segments/a")]))
    (segment,) = log.version.segments(stream)
    log.commit(EpochChange(kind="expire", expired=[segment.id]))
    (tmp_path / "matches").mkdir()
    (tmp_path / "matches" / "late").touch()
    log.commit(EpochChange(kind="backfill", matches=[match(segment.id, 0, 9, "matches/late")]))
    assert log.version.matches(segment.id) == ()
    assert log.collect() == ["segments/a", "matches/late"]
    assert not (tmp_path / "matches" / "late").exists()
    log.commit(EpochChange(kind="expire", expired=[segment.id]))


def test_matches_are_kept_in_the_order_of_their_slots_and_can_be_rewritten(log, stream, a):
    log.commit(
        EpochChange(
            kind="batch",
            segments=[a.segment(stream)],
            matches=[match(-1, 4, 8, "matches/2"), match(-1, 0, 4, "matches/1")],
        )
    )
    (segment,) = log.version.segments(stream)
    log.commit(EpochChange(kind="backfill", matches=[match(segment.id, 8, 9, "matches/3")]))
    old = log.version.matches(segment.id)
    assert [m.low for m in old] == [0, 4, 8]
    log.commit(
        EpochChange(
            kind="rewrite", drop_matches=old, matches=[match(segment.id, 0, 9, "matches/all")]
        )
    )
    assert [m.path for m in log.version.matches(segment.id)] == ["matches/all"]
    log.commit(EpochChange(kind="forget", drop_matches=log.version.matches(segment.id)))
    assert log.version.matches(segment.id) == ()


def test_rows_of_a_dropped_stream_do_not_hold_up_those_of_others(log, stream, a):
    other = log.next_id()
    log.commit(EpochChange(kind="create", add=[a.stream(other, "weather")]))
    log.commit(EpochChange(kind="drop", drop=[stream]))
    log.commit(
        EpochChange(
            kind="batch",
            batches=[("inbox", 0)],
            segments=[a.segment(stream, "segments/a"), a.segment(other, "segments/b")],
            matches=[match(new_segment_id(0), 0, 1), match(new_segment_id(1), 0, 1)],
            clocks={stream: StreamClock(high=1), other: StreamClock(high=2)},
        )
    )
    assert log.version.segments(stream) == ()
    assert log.version.clock(stream).high is None
    (segment,) = log.version.segments(other)
    assert [m.segment_id for m in log.version.matches(segment.id)] == [segment.id]


def test_dropping_a_stream_takes_everything_of_it(log, stream, a, tmp_path):
    log.commit(
        EpochChange(
            kind="batch",
            segments=[a.segment(stream, "segments/a"), a.segment(stream, "r", kind="rejects")],
            matches=[match(-1, 0, 1)],
            clocks={stream: StreamClock(high=1)},
            add_slots=[SlotRef(stream, 0, b"k", b"f")],
        )
    )
    log.commit(EpochChange(kind="drop", drop=[stream]))
    for version in (log.version, EpochLog.open(tmp_path).version):
        assert version.paths() == {}
        assert version.slots(stream) == ()
        assert version.clock(stream) == StreamClock()
        assert version.streams == {}
    assert sorted(log.collect()) == ["matches/m", "r", "segments/a"]


def test_a_slot_number_is_never_used_again(log, stream, tmp_path):
    slots = [SlotRef(stream, n, f"k{n}".encode(), b"f") for n in range(3)]
    log.commit(EpochChange(kind="register", add_slots=slots))
    assert log.version.slot_of_key(stream, b"k1") == slots[1]
    log.commit(EpochChange(kind="drop", drop_slots=[(stream, 2), (stream, 7)]))
    assert log.version.slots(stream) == tuple(slots[:2])
    assert log.version.slot(stream, 2) is None
    assert log.version.slot_of_key(stream, b"k2") is None
    with pytest.raises(StaleChange):
        log.commit(EpochChange(kind="register", add_slots=[slots[2]]))
    log.close()
    again = EpochLog.open(tmp_path)
    assert again.version.next_slot(stream) == 3
    with pytest.raises(StaleChange):
        again.commit(EpochChange(kind="register", add_slots=[slots[2]]))
    again.close()


def test_a_query_s_only_leaf_is_held_as_it_is(log, stream, a, tmp_path):
    one, two = log.next_id(), log.next_id()
    leaves = [LeafRef(one, 0, stream, 0), LeafRef(two, 0, stream, 1), LeafRef(two, 1, stream, None)]
    log.commit(
        EpochChange(kind="register", add=[a.query(one), a.query(two, "p")], add_leaves=leaves)
    )
    log.close()
    again = EpochLog.open(tmp_path)
    for version in (log.version, again.version):
        assert dict(version.leaves_of) == {one: leaves[0], two: tuple(leaves[1:])}
        assert dict(version.leaves_by_query()) == {one: (leaves[0],), two: tuple(leaves[1:])}
    again.close()


def test_behind_very_many_rows_sqlite_gives_its_memory_back(log, stream, a, monkeypatch):
    monkeypatch.setattr(database, "_MANY_ROWS", 50)
    said = []
    log._database._connection.set_trace_callback(said.append)
    for many in (10, 60):
        queries = [a.query(id, f"q{id}") for id in (log.next_id() for _ in range(many))]
        log.commit(EpochChange(kind="register", add=queries))
        assert (said[-1] == "PRAGMA shrink_memory") == (many == 60)


def test_a_query_has_its_leaves_in_order_and_takes_them_along(log, stream, a):
    query = log.next_id()
    leaves = [LeafRef(query, 1, stream, 0), LeafRef(query, 0, stream, None)]
    log.commit(EpochChange(kind="register", add=[a.query(query)], add_leaves=leaves))
    assert log.version.leaves(query) == (leaves[1], leaves[0])
    log.commit(EpochChange(kind="drop", drop=[query]))
    assert log.version.leaves(query) == ()
    with pytest.raises(StaleChange):
        log.commit(EpochChange(kind="register", add_leaves=leaves))


@pytest.mark.parametrize("many", [1, 2, 999, 1_000, 1_234])
def test_very_many_rows_are_written_as_few_are(log, stream, tmp_path, many):
    ids = [log.next_id() for _ in range(many)]
    log.commit(
        EpochChange(
            kind="register",
            add=[QueryDef(id, f"q{id}", f"SELECT * FROM s WHERE a = {id}") for id in ids],
            add_slots=[SlotRef(stream, n, b"k%d" % n, b"f%d" % n) for n in range(many)],
            add_leaves=[LeafRef(id, 0, stream, n) for n, id in enumerate(ids)],
        )
    )
    for again in (log, EpochLog.open(tmp_path)):
        assert list(again.version.queries) == ids
        assert [again.version.leaves(id) for id in ids] == [
            (LeafRef(id, 0, stream, n),) for n, id in enumerate(ids)
        ]
        assert [(s.slot, s.factors) for s in again.version.slots(stream)] == [
            (n, b"f%d" % n) for n in range(many)
        ]
    assert again.version.queries[ids[-1]] == log.version.queries[ids[-1]]
    rows = log._database.read("SELECT query_id, slot FROM leaf ORDER BY slot")
    assert rows == [(id, n) for n, id in enumerate(ids)]


def test_equal_numbers_of_reopened_queries_are_one_object(log, stream, a, tmp_path):
    at = 1_700_000_000_000_000
    queries = [
        replace(a.query(log.next_id()), name=name, registered_at=at) for name in ("one", "other")
    ]
    leaves = [LeafRef(q.id, 0, stream, 70_000) for q in queries]
    log.commit(EpochChange(kind="register", add=queries, add_leaves=leaves))
    log.close()
    again = EpochLog.open(tmp_path)
    one, other = (again.version.queries[q.id] for q in queries)
    assert one.registered_at == at
    assert one.registered_at is other.registered_at
    (first,), (second,) = (again.version.leaves(q.id) for q in queries)
    assert first.slot == 70_000
    assert first.slot is second.slot
    again.close()


def test_deltas_are_folded_into_one(log, a):
    relation = log.next_id()
    log.commit(EpochChange(kind="create", add=[a.relation(relation)]))
    for name in ("relations/b", "relations/a"):
        log.commit(EpochChange(kind="insert", add_deltas=[a.delta(relation, name)]))
    old = log.version.relation_deltas(relation)
    assert [(d.path, d.epoch) for d in old] == [("relations/b", 2), ("relations/a", 3)]
    folding = EpochChange(
        kind="fold", add_deltas=[a.delta(relation, "relations/ab", 3)], drop_deltas=old
    )
    log.commit(folding)
    assert [d.path for d in log.version.relation_deltas(relation)] == ["relations/ab"]
    with pytest.raises(StaleChange):
        log.commit(folding)
    log.commit(EpochChange(kind="drop", drop=[relation]))
    assert log.version.relation_deltas(relation) == ()


def test_a_change_can_be_made_from_the_version_it_follows(log, stream):
    def one_more(version):
        clock = version.clock(stream)
        return EpochChange(
            kind="batch", clocks={stream: replace(clock, next_seq=clock.next_seq + 1)}
        )

    for _ in range(3):
        log.commit(one_more)
    assert log.version.clock(stream).next_seq == 3


def test_files_stay_while_a_reader_holds_a_version_that_has_them(log, stream, a, tmp_path):
    (tmp_path / "segments").mkdir()
    for name in ("a", "b"):
        (tmp_path / "segments" / name).touch()
    log.commit(EpochChange(kind="batch", segments=[a.segment(stream, "segments/a")]))
    log.commit(EpochChange(kind="batch", segments=[a.segment(stream, "segments/b")]))
    first, second = (s.id for s in log.version.segments(stream))
    with log.pin() as version:
        log.commit(EpochChange(kind="expire", expired=[first]))
        with log.pin() as later:
            log.commit(EpochChange(kind="expire", expired=[second]))
            assert log.collect() == []
            assert len(version.segments(stream)) == 2
            assert len(later.segments(stream)) == 1
        with log.pin():
            assert log.collect() == []
    assert log.collect() == ["segments/a", "segments/b"]
    assert list((tmp_path / "segments").iterdir()) == []
    assert log.collect() == []


def test_a_pin_outlives_the_failure_of_its_reader(log, stream, a):
    log.commit(EpochChange(kind="batch", segments=[a.segment(stream, "segments/a")]))
    with pytest.raises(ZeroDivisionError), log.pin():
        raise ZeroDivisionError
    log.commit(EpochChange(kind="expire", expired=[1]))
    assert log.collect() == ["segments/a"]


class _Failing:
    """A connection whose next statement that starts with `verb` fails as a full disk makes it."""

    def __init__(self, connection, verb, after=False, error=None):
        self._connection, self._verb, self._after = connection, verb, after
        self._error = error or sqlite3.OperationalError("database or disk is full")
        if error is None:
            self._error.sqlite_errorname = "SQLITE_FULL"

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, sql, *parameters):
        return self._call(self._connection.execute, sql, *parameters)

    def executemany(self, sql, rows):
        return self._call(self._connection.executemany, sql, rows)

    def _call(self, function, sql, *parameters):
        if self._verb and sql.startswith(self._verb):
            self._verb = None
            if self._after:
                function(sql, *parameters)
            raise self._error
        return function(sql, *parameters)


@pytest.mark.parametrize("verb", ["BEGIN", "INSERT INTO epoch", "COMMIT"])
def test_a_full_disk_changes_nothing(log, stream, a, verb, monkeypatch, tmp_path):
    database = log._database
    monkeypatch.setattr(database, "_connection", _Failing(database._connection, verb))
    change = EpochChange(
        kind="batch", batches=[("s", 1)], segments=[a.segment(stream)], matches=[match(-1, 0, 1)]
    )
    with pytest.raises(MillpondError) as caught:
        log.commit(change)
    assert caught.value.code == "STORE-603"
    assert "pond.db" in caught.value.primary
    assert log.version.epoch == 1
    assert not log.is_committed("s", 1)
    log.commit(change)
    assert log.version.epoch == 2
    assert EpochLog.open(tmp_path).version.segments(stream) == log.version.segments(stream)


def test_an_interrupt_just_after_the_commit_leaves_log_and_version_agreed(
    log, stream, monkeypatch, tmp_path
):
    database = log._database
    failing = _Failing(database._connection, "COMMIT", after=True, error=KeyboardInterrupt())
    monkeypatch.setattr(database, "_connection", failing)
    with pytest.raises(KeyboardInterrupt):
        log.commit(EpochChange(kind="batch", batches=[("s", 1)]))
    assert log.version.epoch == 2
    assert log.is_committed("s", 1)
    assert log.commit(EpochChange(kind="batch", batches=[("s", 2)])).epoch == 3


def test_a_database_without_its_journal_is_refused(tmp_path):
    (tmp_path / "pond.db").write_bytes(b"not a database" * 1_000)
    with pytest.raises(MillpondError, match=r"STORE-602.*journal"):
        EpochLog.open(tmp_path)
