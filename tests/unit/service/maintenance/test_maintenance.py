"""Maintenance: cheaper answers, never other ones, whatever fails behind everyone's back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.conftest import SECOND, OpenPond, values

from millpond.engine.matching import stem_snapshot
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, to_datetime
from millpond.runtime import maintenance_tasks
from millpond.service.maintenance import maintenance
from millpond.service.maintenance.backfill import covered_upto
from millpond.service.pond import Pond
from millpond.service.queries.window_needs import WindowNeeds
from millpond.state.arrow_file import forget
from millpond.state.version import DATA, REJECTS, SegmentRef


@pytest.fixture
def s(pond: Pond) -> Pond:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    return pond


def feed(pond: Pond, first: int, last: int, stream: str = "s") -> None:
    """An epoch a second, one element each with v = its second."""
    for at in range(first, last):
        pond.ingest(stream, [{"ts": to_datetime(at * SECOND), "v": at}])


def stream_id(pond: Pond, name: str = "s") -> int:
    return next(s.id for s in pond.streams() if s.name == name)


def segments(pond: Pond, kind: str = DATA, name: str = "s") -> tuple[SegmentRef, ...]:
    return pond._components.log.version.segments(stream_id(pond, name), kind)


def files(pond: Pond, kind: str) -> set[str]:
    return {file.name for file in (pond._components._store.directory / kind).iterdir()}


def referenced(pond: Pond, kind: str) -> set[str]:
    return {
        Path(path).name for path in pond._components.log.version.paths() if path.startswith(kind)
    }


def quiet(pond: Pond) -> None:
    """Stop the thread, so that a test does each step itself."""
    pond._components.maintenance.stop()
    pond._components.maintenance.stopping = False


# -- backfill -----------------------------------------------------------------------------------


def test_kept_segments_are_matched_against_new_queries(s: Pond) -> None:
    feed(s, 0, 5)
    quiet(s)
    first = s.register("SELECT v FROM s WHERE v > 2")
    assert {covered_upto(s._components.log.version, seg.id) for seg in segments(s)} == {0}
    assert values(first.invoke()) == [3, 4]
    assert s._components.maintenance.step()
    second = s.register("SELECT v FROM s WHERE v < 2")
    feed(s, 5, 6)
    while s._components.maintenance.step():
        pass
    assert {covered_upto(s._components.log.version, seg.id) for seg in segments(s)} == {2}
    assert values(first.invoke()) == [3, 4, 5]
    assert values(second.invoke()) == [0, 1]


def test_answers_are_read_from_stored_matches(s: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    query = s.register("SELECT v FROM s WHERE v > 2")
    feed(s, 0, 5)
    s.wait_until_matched()

    def never(*_: object) -> None:
        raise AssertionError("matched again")

    monkeypatch.setattr("millpond.engine.matching.find_matches.match", never)
    assert values(query.invoke()) == [3, 4]


def test_lost_matches_are_computed_again(s: Pond, open_pond: OpenPond) -> None:
    s.register("SELECT v FROM s WHERE v > 2", "q")
    feed(s, 0, 5)
    s.wait_until_matched()
    directory = s._components._store.directory
    s.close()
    for number, file in enumerate((directory / "matches").iterdir()):
        file.unlink() if number % 2 else file.write_bytes(b"torn")
    again = open_pond()
    assert values(again.query("q").invoke()) == [3, 4]
    assert again.status()["problems"] == []


@pytest.mark.parametrize("found", ["at start", "at use"])
def test_torn_matches_are_made_again(
    s: Pond, open_pond: OpenPond, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = s.register("SELECT v FROM s WHERE v > 2", "q")
    feed(s, 0, 5)
    s.wait_until_matched()
    s.register("SELECT v FROM s WHERE v > 3", "later")
    s.wait_until_matched()
    segment = segments(s)[0]
    before = s._components.log.version.matches(segment.id)
    assert len(before) == 2
    torn = s._components._store.directory / before[0].path
    if found == "at start":
        s.close()
        torn.unlink()
        s = open_pond()
        query = s.query("q")
    else:
        # Of the same length, and never read before: only its checksum tells.
        data = torn.read_bytes()
        torn.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        forget(torn)
        s._components.invoker.files.forget([before[0].path])
        assert values(query.invoke()) == [3, 4]
    s.wait_until_matched()
    after = s._components.log.version.matches(segment.id)
    assert not {m.path for m in before} & {m.path for m in after}
    assert covered_upto(s._components.log.version, segment.id) == 2

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("matched at invocation")

    monkeypatch.setattr("millpond.engine.matching.find_matches.match", never)
    assert values(query.invoke()) == [3, 4]
    assert values(s.query("later").invoke()) == [4]
    assert files(s, "matches") == referenced(s, "matches")


def test_a_segment_does_not_gather_files_for_ever(s: Pond) -> None:
    feed(s, 0, 3)
    kept, expected = [], []
    for number in range(60):
        query = s.register(f"SELECT v FROM s WHERE v IN ({number % 5}, {number + 100})")
        s.wait_until_matched()
        if number % 3:
            query.unregister()
        else:
            kept.append(query)
            expected.append([v for v in range(3) if v == number % 5])
    for segment in segments(s):
        assert len(s._components.log.version.matches(segment.id)) <= 16
        assert covered_upto(s._components.log.version, segment.id) == 60
    assert files(s, "matches") == referenced(s, "matches")
    assert [values(query.invoke()) for query in kept] == expected


# -- merging ------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [None, 10 * SECOND])
def test_merging_changes_no_answer(s: Pond, at: int | None) -> None:
    queries = [
        s.register(text)
        for text in (
            "SELECT v FROM s WHERE v % 3 = 0",
            "SELECT v FROM s [ROWS 5]",
            "SELECT v FROM s [RANGE 7 SECONDS] WHERE v > 2",
            "SELECT v FROM s SAMPLE(50)",
        )
    ]
    quiet(s)
    feed(s, 0, 20)
    before = [values(query.invoke(at)) for query in queries]
    while s._components.maintenance.step():
        pass
    assert len(segments(s)) < 10
    assert sum(segment.rows for segment in segments(s)) == 20
    assert [values(query.invoke(at)) for query in queries] == before
    s.register("SELECT v FROM s WHERE v = 1")
    assert files(s, "segments") == referenced(s, "segments")


def test_rejects_are_merged_too(s: Pond, open_pond: OpenPond) -> None:
    for number in range(20):
        s.ingest("s", [{"ts": "never", "v": number}])
    s.wait_until_matched()
    assert len(segments(s, REJECTS)) < 10
    assert len(files(s, "rejects")) == len(segments(s, REJECTS))
    shown = open_pond().ask("SELECT raw FROM s$rejects [ROWS 3]")
    assert values(shown) == [f'{{"ts":"never","v":{n}}}' for n in (17, 18, 19)]


def test_removed_files_are_let_go(s: Pond) -> None:
    query = s.register("SELECT v FROM s WHERE v >= 0")
    for at in range(20):
        feed(s, at, at + 1)
        assert len(query.invoke()) == at + 1
    s.wait_until_matched()
    open_files = s._components.invoker.files
    assert set(open_files._segments) <= s._components.log.version.paths().keys()
    assert set(open_files._matches) <= s._components.log.version.paths().keys()


def test_registering_while_segments_are_merged(s: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet(s)
    feed(s, 0, 9)
    first = s.register("SELECT v FROM s WHERE v > 6")
    late: list[Any] = []
    merge = maintenance_tasks.merge

    def merge_meanwhile(job: maintenance_tasks.MergeJob) -> maintenance_tasks.MergeResult:
        result = merge(job)
        late.append(s.register("SELECT v FROM s WHERE v < 2"))
        first.unregister()
        return result

    monkeypatch.setattr(maintenance_tasks, "merge", merge_meanwhile)
    while s._components.maintenance.step():
        pass
    assert late
    assert values(late[0].invoke()) == [0, 1]


def test_dropping_a_stream_while_its_segments_are_merged(
    s: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(s)
    feed(s, 0, 9)
    merge = maintenance_tasks.merge

    def merge_meanwhile(job: maintenance_tasks.MergeJob) -> maintenance_tasks.MergeResult:
        result = merge(job)
        s.execute("DROP STREAM s")
        return result

    monkeypatch.setattr(maintenance_tasks, "merge", merge_meanwhile)
    while s._components.maintenance.step():
        pass
    assert s.streams() == []
    assert files(s, "segments") == set()


# -- expiry -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "least"),
    [
        (None, 101),
        ("SELECT v FROM other", 101),
        ("SELECT reason FROM r$rejects", 101),
        ("SELECT v FROM r [NOW]", 100),
        ("SELECT v FROM r [RANGE 50 SECONDS]", 50),
        ("SELECT v FROM R [RANGE 20 SECONDS SLIDE 30 SECONDS]", 50),
        ("SELECT v FROM r BEGIN NOW - INTERVAL 60 SECONDS END NOW", 40),
        ("SELECT v FROM r BEGIN TIMESTAMP '1970-01-01 00:00:30' END NOW", 30),
        ("SELECT a.v FROM r [RANGE 9 SECONDS] a, r [RANGE 70 SECONDS] b", 30),
        ("SELECT v FROM r WHERE v IN (SELECT v FROM r [RANGE 25 SECONDS])", None),
        ("SELECT v FROM other WHERE v IN (SELECT v FROM r [RANGE 25 SECONDS])", 75),
        ("SELECT v FROM r", None),
        ("SELECT v FROM r [ROWS 3]", None),
        ("SELECT v FROM r [PARTITION BY v ROWS 1]", None),
    ],
)
def test_how_far_back_a_window_reaches(pond: Pond, query: str | None, least: int | None) -> None:
    for name in ("r", "other"):
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    needs, stream = WindowNeeds(pond._components.registrar), pond.streams()[0]

    def since() -> int:
        return needs.since(pond._components.log.version, stream, 100 * SECOND)

    expected = BEGINNING if least is None else min(least * SECOND, 100 * SECOND + 1)
    if query is None:
        assert since() == expected
        return
    handle = pond.register(query, active=False)  # it may be activated
    assert since() == expected
    near = pond.register("SELECT v FROM r [RANGE 1 SECOND]")
    assert since() == min(expected, 99 * SECOND)
    handle.unregister()
    assert since() == 99 * SECOND
    near.unregister()
    assert since() == 100 * SECOND + 1


def test_needs_are_asked_of_each_query_once(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked after every batch, which must not cost as much as there are queries."""
    pond.execute("CREATE STREAM r (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    needs, stream = WindowNeeds(pond._components.registrar), pond.streams()[0]
    pond.register_many([(f"SELECT v FROM r [RANGE {n} SECONDS]", None, {}) for n in range(1, 9)])
    bound: list[str] = []
    bind = pond._components.registrar.bind_registered
    monkeypatch.setattr(
        pond._components.registrar,
        "bind_registered",
        lambda text, epoch: bound.append(text) or bind(text, epoch),
    )
    for _ in range(3):
        assert needs.since(pond._components.log.version, stream, 100 * SECOND) == 92 * SECOND
    assert len(bound) == 8
    pond.register("SELECT v FROM r [RANGE 9 SECONDS]")
    bound.clear()
    assert needs.since(pond._components.log.version, stream, 100 * SECOND) == 91 * SECOND
    assert len(bound) == 1


def forgetful(pond: Pond, retain: str, query: str) -> Any:
    """A stream whose segments hold ten elements each, and a query over it."""
    pond.execute(f"CREATE STREAM r (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts RETAIN {retain}")
    handle = pond.register(query)
    for first in range(0, 70, 10):
        elements = [{"ts": to_datetime(at * SECOND), "v": at} for at in range(first, first + 10)]
        pond.ingest("r", elements)
    pond.wait_until_matched()
    return handle


@pytest.mark.parametrize(
    ("retain", "window", "kept"),
    [
        ("INTERVAL 15 SECONDS", "[RANGE 5 SECONDS]", 20),
        ("INTERVAL 5 SECONDS", "[RANGE 15 SECONDS]", 20),
        ("1 ROWS", "[RANGE 35 SECONDS]", 40),
        ("35 ROWS", "[NOW]", 40),
        ("1 ROWS", "[ROWS 1]", 70),
    ],
)
def test_what_retain_or_a_window_needs_is_kept_and_no_whole_segment_more(
    pond: Pond, retain: str, window: str, kept: int
) -> None:
    query = forgetful(pond, retain, f"SELECT v FROM r {window}")
    assert sum(segment.rows for segment in segments(pond, name="r")) == kept
    assert files(pond, "segments") == referenced(pond, "segments")
    assert query.invoke().exact
    whole = pond.ask("SELECT v FROM r")
    assert values(whole) == list(range(70 - kept, 70))
    assert whole.exact == (kept == 70)
    if not whole.exact:
        assert whole.loss[0].upto == (70 - kept) * SECOND - SECOND
        with pytest.raises(MillpondError, match="POND-403"):
            query.invoke(3 * SECOND)


def test_an_inactive_query_keeps_what_it_needs(pond: Pond) -> None:
    pond.execute("CREATE STREAM r (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts RETAIN 1 ROWS")
    query = pond.register("SELECT v FROM r [RANGE 60 SECONDS] WHERE v >= 0", active=False)
    feed(pond, 0, 20, "r")
    pond.wait_until_matched()
    query.alter(active=True)
    assert query.invoke().exact
    assert len(query.invoke()) == 20


def test_a_query_registered_as_its_data_is_dropped_finds_it_kept(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond.execute("CREATE STREAM r (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts RETAIN 1 ROWS")
    quiet(pond)
    feed(pond, 0, 6, "r")
    since = pond._components.maintenance._needs.since

    def register_meanwhile(*asked: Any) -> int:
        found = since(*asked)
        if not pond.queries():
            pond.register("SELECT v FROM r [RANGE 100 SECONDS]", "late")
        return found

    monkeypatch.setattr(pond._components.maintenance._needs, "since", register_meanwhile)
    while pond._components.maintenance.step():
        pass
    answer = pond.query("late").invoke()
    assert answer.exact
    assert len(answer) == 6


# -- trouble ------------------------------------------------------------------------------------


def corrupt(pond: Pond, segment: SegmentRef) -> None:
    path = pond._components._store.directory / segment.path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.unlink()
    path.write_bytes(data)


def test_a_corrupt_segment_is_left_alone_and_everything_else_goes_on(
    s: Pond, open_pond: OpenPond, caplog: pytest.LogCaptureFixture
) -> None:
    s.execute("CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    quiet(s)
    feed(s, 0, 20)
    corrupt(s, segments(s)[3])
    again = open_pond()
    quiet(again)
    query = again.register("SELECT v FROM s [RANGE 10 SECONDS] WHERE v > 2")
    feed(again, 0, 10, "t")
    for _ in range(100):
        if not again._components.maintenance.step():
            break
    else:
        raise AssertionError("maintenance does not come to rest")
    assert len(segments(again)) < 8
    assert len(segments(again, name="t")) < 10
    assert files(again, "inbox") == set(), "what was committed is collected"
    assert values(query.invoke()) == list(range(10, 20))
    with pytest.raises(MillpondError, match="STORE-602"):
        query.invoke(5 * SECOND)
    assert "maintenance leaves out" in caplog.text


def test_one_stream_s_failure_is_not_another_s(
    s: Pond, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    s.execute("CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    quiet(s)
    feed(s, 0, 9)
    feed(s, 0, 9, "t")
    failing = stream_id(s)
    merge = maintenance_tasks.merge

    def fail(job: maintenance_tasks.MergeJob) -> maintenance_tasks.MergeResult:
        if job.stream_id == failing:
            raise MillpondError("STORE-603", "the disk is full")
        return merge(job)

    monkeypatch.setattr(maintenance_tasks, "merge", fail)
    while s._components.maintenance.step():
        pass
    assert len(segments(s, name="t")) == 2
    assert len(segments(s)) == 9
    assert "the disk is full" in caplog.text
    monkeypatch.undo()
    while s._components.maintenance.step():
        pass
    assert len(segments(s)) == 2


def test_what_failed_is_tried_again_unasked(s: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_RETRY_SECONDS", 0.01)
    failures = iter([MillpondError("STORE-603", "the disk is full")] * 3)
    merge = maintenance_tasks.merge

    def fail(job: maintenance_tasks.MergeJob) -> maintenance_tasks.MergeResult:
        for failure in failures:
            raise failure
        return merge(job)

    monkeypatch.setattr(maintenance_tasks, "merge", fail)
    feed(s, 0, 9)
    deadline = time.monotonic() + 20
    while len(segments(s)) > 2 and time.monotonic() < deadline:
        s._components.maintenance._wake.wait(0.01)
    assert len(segments(s)) == 2


# -- predicates that fail -----------------------------------------------------------------------

BAD = "SELECT v FROM t WHERE CAST(x AS INTEGER) > 3"


def texts(pond: Pond, *given: str) -> None:
    pond.ingest("t", [{"x": x, "v": n} for n, x in enumerate(given)])


@pytest.fixture
def t(pond: Pond) -> Pond:
    pond.execute("CREATE STREAM t (x STRING, v INTEGER)")
    return pond


def test_a_predicate_that_fails_suspends_its_queries_alone(t: Pond) -> None:
    bad = [t.register(BAD), t.register(BAD)]
    good = t.register("SELECT v FROM t WHERE CAST(v AS INTEGER) >= 0")
    texts(t, "5", "x")
    for query in bad:
        with pytest.raises(MillpondError, match=r"POND-402(.|\n)*could not be evaluated"):
            query.invoke()
    assert values(good.invoke()) == [0, 1]
    assert len(t._components.log.version.slots(t.streams()[0].id)) == 1


def test_a_new_query_that_fails_on_kept_elements_is_suspended(t: Pond) -> None:
    texts(t, "5", "x")
    bad = t.register(BAD)
    t.wait_until_matched()
    with pytest.raises(MillpondError, match="POND-402"):
        bad.invoke()


def test_what_failed_is_not_taken_for_no_match(t: Pond, open_pond: OpenPond) -> None:
    """Killed between the batch's commit and the suspension, the query must not answer wrongly."""
    t.register(BAD, "bad")
    t._components.registrar.suspend = lambda *_: None  # type: ignore[method-assign]
    texts(t, "5", "x", "7")
    with pytest.raises(MillpondError, match="POND-404"):
        t.query("bad").invoke()
    again = open_pond()
    quiet(again)
    with pytest.raises(MillpondError, match="POND-404"):
        again.query("bad").invoke()
    for _ in range(10):
        texts(again, "1")
    while again._components.maintenance.step():
        pass
    with pytest.raises(MillpondError, match="POND-40"):
        again.query("bad").invoke()


# -- snapshots of the Query SteM ----------------------------------------------------------------


def test_streams_with_the_same_predicates_do_not_lose_each_other_s_files(s: Pond) -> None:
    s.execute("CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    quiet(s)
    s.register_many([(f"SELECT v FROM {name} WHERE v > 2", None, {}) for name in ("s", "t")])
    feed(s, 0, 1)
    feed(s, 0, 1, "t")
    for number in range(20):
        s.register(f"SELECT v FROM s WHERE v > {number + 3}")
        feed(s, number + 1, number + 2)
    stem_snapshot.mapped_blocks._held.clear()  # as in a worker that has just started
    feed(s, 5, 6, "t")
    assert values(s.ask("SELECT v FROM t WHERE v > 2")) == [5]


def test_a_snapshot_in_use_outlives_newer_ones(s: Pond) -> None:
    quiet(s)
    s.register("SELECT v FROM s WHERE v > 2")
    stem, _ = s._components.stems.snapshot(s._components.log.version, stream_id(s))
    assert stem is not None
    with s._components.stems.keep_files(stem):
        for number in range(20):
            s.register(f"SELECT v FROM s WHERE v > {number + 3}")
            s._components.stems.snapshot(s._components.log.version, stream_id(s))
        stem_snapshot.mapped_blocks._held.clear()
        assert len(stem_snapshot.StemSnapshot.load(stem).slots) == 1
    s.register("SELECT v FROM s WHERE v > 99")
    s._components.stems.snapshot(s._components.log.version, stream_id(s))
    assert not Path(stem).exists()
