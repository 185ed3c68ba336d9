"""Following queries: what readers are given, and what following costs those who do not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.model.time import END
from millpond.operators.structures import pairs
from millpond.runtime import segment_inputs
from millpond.runtime.protocol import Done, Job
from millpond.service.changes import advance_jobs, schedule
from millpond.service.changes.retry import FIRST_SECONDS
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime, open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
SCHEMA = "CREATE STREAM s (ts TIMESTAMP, k STRING, v BIGINT) TIMESTAMP BY ts;"


class CountingRuntime(LocalRuntime):
    """Counts the jobs it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Any] = []

    def run(self, task: Any, jobs: Any, near: Any = ()) -> Any:
        self.jobs += jobs
        return super().run(task, jobs, near)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100 * SECOND)


@pytest.fixture
def runtime() -> CountingRuntime:
    return CountingRuntime()


@pytest.fixture
def pond(tmp_path: Path, clock: ManualClock, runtime: CountingRuntime) -> Iterator[Pond]:
    with Pond(tmp_path / "store", runtime, clock=clock) as pond:
        pond.execute(SCHEMA)
        yield pond


def push(pond: Pond, *elements: tuple[int, str, int]) -> None:
    at = "1970-01-01 00:{:02}:{:02}"
    rows = [{"ts": at.format(*divmod(t, 60)), "k": k, "v": v} for t, k, v in elements]
    pond.ingest("s", rows)
    pond.catch_up()


def advances(runtime: CountingRuntime) -> list[Any]:
    return [job for job in runtime.jobs if type(job).__name__ == "AdvanceJob"]


def test_queries_nobody_follows_cost_nothing(pond: Pond, runtime: CountingRuntime) -> None:
    for number in range(20):
        pond.register(f"SELECT v FROM s [RANGE 9 SECONDS] WHERE v > {number}")
    push(pond, (1, "a", 1), (2, "a", 30))
    assert advances(runtime) == []
    pond.query("q2").fetch()
    (job,) = advances(runtime)
    assert len(job.sinks) == 1


def test_followed_queries_are_advanced_in_one_job(pond: Pond, runtime: CountingRuntime) -> None:
    handles = [pond.register(f"SELECT v FROM s [RANGE 9 SECONDS] WHERE v > {n}") for n in range(20)]
    for handle in handles:
        handle.fetch()
    push(pond, (1, "a", 1))
    runtime.jobs.clear()
    push(pond, (2, "a", 30))
    (job,) = advances(runtime)
    (sink,) = job.sinks  # they differ in their constants alone: one plan serves them all
    assert len(sink.members.logs) == 20
    assert [len(handle.fetch()) for handle in handles] == [1] + [0] * 19


def test_a_negative_limit_is_refused(pond: Pond) -> None:
    with pytest.raises(MillpondError, match="CQL-103: LIMIT is negative"):
        pond.register("SELECT v FROM s").fetch(limit=-1)


def test_a_query_that_fails_is_suspended_alone(pond: Pond) -> None:
    bad = pond.register("SELECT CAST(k AS INTEGER) AS n FROM s", "bad")
    good = pond.register("SELECT k FROM s", "good")
    assert (len(bad.fetch()), len(good.fetch())) == (0, 0)
    push(pond, (1, "1", 1), (2, "x", 1), (3, "3", 1))
    assert [c.row for c in good.fetch()] == [("1",), ("x",)]
    with pytest.raises(MillpondError, match="POND-402") as caught:
        bad.fetch()
    reason = caught.value.detail or ""
    assert "could not be computed" in reason
    assert bad.definition.suspended is None
    assert bad.invoke(at="1970-01-01 00:00:01").rows() == [(1,)]
    (problem,) = pond.status()["problems"]
    assert '"bad"' in problem["message"]
    # Within a dataflow columns are known by their places, which say nothing to anybody else.
    assert reason.endswith("Could not convert string 'x' to INT32")


def test_everything_that_shows_a_query_says_why_its_changes_stopped(
    pond: Pond, caplog: pytest.LogCaptureFixture
) -> None:
    bad = pond.register("SELECT CAST(k AS INTEGER) AS n FROM s", "bad", follow=True)
    push(pond, (1, "1", 1), (2, "2", 1), (3, "3", 1))
    assert bad.describe()["changes"]["stopped"] is None
    push(pond, (4, "x", 1), (5, "5", 1))
    reason = "Could not convert string 'x' to INT32"
    (shown,) = pond.execute("SHOW QUERIES")[0].table.to_pylist()  # type: ignore[union-attr]
    assert shown["state"].startswith("changes suspended: ")
    assert reason in shown["state"]
    assert reason in pond.execute("DESCRIBE bad")[0].facts["changes"]
    assert reason in bad.describe()["changes"]["stopped"]
    (warned,) = [r for r in caplog.records if "changes have stopped" in r.getMessage()]
    assert reason in warned.getMessage()
    assert vars(warned)["query"] == "bad"


@pytest.mark.parametrize("after", [0, 1, "oldest"])
def test_what_was_computed_before_changes_stopped_is_given_to_cursors(
    pond: Pond, after: int | str
) -> None:
    bad = pond.register("SELECT CAST(k AS INTEGER) AS n FROM s", "bad", follow=True)
    pond.execute("CREATE STREAM n AS SELECT CAST(k AS INTEGER) AS n FROM s")
    push(pond, (1, "1", 1), (2, "2", 1), (3, "3", 1))
    push(pond, (4, "x", 1), (5, "5", 1))
    for followed, code in ((bad, "POND-402"), (pond.derived("n"), "POND-406")):
        page = followed.fetch(after)
        assert [c.row[-1] for c in page] == [1, 2][0 if after == "oldest" else int(after) :]
        for cursor in (page.cursor, None):
            with pytest.raises(MillpondError, match=code) as caught:
                followed.fetch(cursor)
            assert "AFTER 'oldest'" in (caught.value.hint or "")


def test_changes_that_have_not_begun_are_noted(
    pond: Pond, caplog: pytest.LogCaptureFixture
) -> None:
    push(pond, (1, "x", 1), (2, "y", 1))
    bad = pond.register(
        "SELECT CAST(k AS INTEGER) AS n FROM s [RANGE 3 SECONDS]", "bad", follow=True
    )
    push(pond, (3, "z", 1), (4, "z", 1))
    push(pond, (5, "z", 1), (6, "z", 1))
    (note,) = [n for n in bad.describe()["notes"] if "have not begun" in n]
    assert "Could not convert string" in note
    (warned,) = [r for r in caplog.records if "have not begun" in r.getMessage()]
    assert vars(warned)["query"] == "bad"
    push(pond, (20, "20", 1), (21, "21", 1))
    assert [c.row for c in bad.fetch()] == [(20,)]
    assert not [n for n in bad.describe()["notes"] if "have not begun" in n]


def test_a_derived_stream_that_fails_stops_with_the_reason(pond: Pond) -> None:
    pond.execute("CREATE STREAM n AS SELECT CAST(k AS INTEGER) AS n FROM s")
    push(pond, (1, "1", 1), (2, "x", 1), (3, "3", 1))
    state = {s["name"]: s["state"] for s in pond.status()["streams"]}
    assert state == {"s": "running", "n": "stopped"}
    (problem,) = pond.status()["problems"]
    assert '"n"' in problem["message"]
    with pytest.raises(MillpondError, match="POND-406"):
        pond.execute("FETCH n")
    pond.execute("DROP STREAM n")


def test_a_scalar_subquery_of_several_rows_suspends_its_query_alone(pond: Pond) -> None:
    pond.execute("CREATE RELATION r (k STRING, n INTEGER); INSERT INTO r VALUES ('a', 1), ('b', 2)")
    text = "SELECT v, (SELECT n FROM r WHERE r.k = x.k) AS n FROM s [NOW] x"
    bad, good = pond.register(text, "bad"), pond.register(f"{text} WHERE k = 'b'", "good")
    push(pond, (1, "a", 1), (2, "b", 2), (3, "b", 3))
    assert [c.row for c in bad.fetch() if c.sign == "+"] == [(1, 1), (2, 2)]
    pond.execute("INSERT INTO r VALUES ('a', 3) AT TIMESTAMP '1970-01-01 00:00:04'")
    push(pond, (4, "b", 4), (5, "a", 5), (6, "b", 6))
    with pytest.raises(MillpondError, match="More than one row returned by a subquery"):
        bad.fetch()
    assert bad.definition.suspended is None
    assert [c.row for c in good.fetch() if c.sign == "+"] == [(2, 2), (3, 2), (4, 2)]


RATES = """
CREATE RELATION rates (k STRING, rate STRING, PRIMARY KEY (k));
INSERT INTO rates VALUES ('a', '1'), ('b', 'two');
CREATE STREAM priced AS ISTREAM(
  SELECT s.k, CAST(r.rate AS INTEGER) AS rate FROM s [NOW], rates r WHERE s.k = r.k);
CREATE STREAM high AS SELECT k FROM priced WHERE rate > 1;
"""


def states(pond: Pond) -> dict[str, str]:
    return {s["name"]: s["state"] for s in pond.status()["streams"]}


def put_right(pond: Pond) -> None:
    pond.execute("UPDATE rates SET rate = '2' WHERE k = 'b' AT TIMESTAMP '1970-01-01'")


def test_a_derived_stream_goes_on_when_its_cause_has_passed(pond: Pond) -> None:
    pond.execute(RATES)
    push(pond, (1, "a", 1), (2, "b", 1), (3, "b", 1))
    assert states(pond) == {"s": "running", "priced": "stopped", "high": "waits for priced"}
    with pytest.raises(MillpondError, match="'two'"):
        pond.derived("priced").alter(active=True)
    put_right(pond)
    assert states(pond)["priced"] == "stopped"
    pond.derived("priced").alter(active=True)
    assert set(states(pond).values()) == {"running"}
    assert pond.status()["problems"] == []
    assert [c.row for c in pond.derived("priced").fetch()] == [("a", 1), ("b", 2)]
    assert [c.row for c in pond.derived("high").subscribe(follow=False)] == [("b",)]


def test_a_stopped_stream_is_tried_again_by_itself(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [0.0]
    monkeypatch.setattr(pond._components.advancer.retries, "_clock", lambda: seconds[0])
    pond.execute(RATES)
    push(pond, (1, "b", 1), (2, "a", 1))
    put_right(pond)
    pond.catch_up()
    assert states(pond)["priced"] == "stopped"
    seconds[0] = FIRST_SECONDS
    push(pond, (3, "a", 1))
    assert states(pond)["priced"] == "running"
    assert [c.row for c in pond.derived("priced").fetch()] == [("b", 2), ("a", 1)]


def test_a_subscriber_waits_for_what_is_to_come(pond: Pond) -> None:
    handle = pond.register("SELECT v FROM s [ROWS 1]", "q")
    push(pond, (1, "a", 1), (2, "a", 2))
    changes = handle.subscribe()
    assert next(changes).row == (1,)
    rest: list[tuple[str, int]] = []
    done = threading.Event()

    def read() -> None:
        rest.extend((c.sign, c.row[0]) for c in islice(changes, 4))
        done.set()

    reader = threading.Thread(target=read)
    reader.start()
    push(pond, (3, "a", 3))
    push(pond, (4, "a", 4))
    reader.join(20)
    assert rest == [("-", 1), ("+", 2), ("-", 2), ("+", 3)]


def test_a_subscription_ends_with_its_query_or_pond(tmp_path: Path, clock: ManualClock) -> None:
    for end, code in (("drop", "CQL-201"), ("close", "POND-410"), ("suspend", "POND-402")):
        pond = open_local(tmp_path / end, clock)
        pond.execute(SCHEMA)
        handle = pond.register("SELECT v FROM s", "q")
        raised: list[MillpondError] = []
        started = threading.Event()

        def read(handle: Any = handle, started: Any = started, raised: Any = raised) -> None:
            try:
                for _ in handle.subscribe():
                    started.set()
            except MillpondError as error:
                raised.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        push(pond, (1, "a", 1), (2, "a", 2))
        assert started.wait(20)
        if end == "drop":
            handle.unregister()
        elif end == "suspend":
            handle.alter(active=False)
        else:
            pond.close()
        pond._components.advancer.wake()
        reader.join(20)
        assert [e.code for e in raised] == [code]
        pond.close()


def test_a_reader_that_does_not_read_holds_nobody_up(pond: Pond) -> None:
    handle = pond.register("SELECT v FROM s", "q")
    slow = handle.subscribe()
    push(pond, (1, "a", 1), (2, "a", 2))
    assert next(slow).row == (1,)
    push(pond, *((t, "a", t) for t in range(3, 40)))
    assert [c.row[0] for c in handle.subscribe(follow=False)] == list(range(1, 39))
    assert [c.row[0] for c in islice(slow, 37)] == list(range(2, 39))


@pytest.mark.parametrize(("limit", "most"), [("STEP_ROWS", 3), ("STEP_BYTES", 1_000)])
def test_changes_are_made_in_steps_of_bounded_size(
    pond: Pond, runtime: CountingRuntime, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(advance_jobs, limit, most)
    for t in range(1, 12):
        push(pond, (t, "a", t))
    handle = pond.register("SELECT sum(v) AS total FROM s [ROWS 2]", changes="from beginning")
    rows = [c.row for c in handle.fetch() if c.sign == "+"]
    assert rows == [(None,), (1,), *((2 * t - 1,) for t in range(2, 11))]
    assert len(advances(runtime)) > 1


@pytest.mark.parametrize("most", [3_000, 20])
def test_what_is_too_much_for_one_step_is_done_in_several(
    pond: Pond, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A join that could be done as elements came can be caught up with."""
    push(pond, *((t, "ab"[t % 2], t) for t in range(1_000)))
    text = (
        "SELECT a.v, b.v AS w FROM s [RANGE 20 SECONDS] a, s [RANGE 20 SECONDS] b WHERE a.k = b.k"
    )
    whole = pond.register(text, "whole", changes="from beginning").fetch(limit=100_000)
    assert len(whole) > 10_000
    monkeypatch.setattr(schedule, "_SHORT_STEP", 20)
    monkeypatch.setattr(pairs, "MOST_ROWS", most)
    push(pond, (1_000, "c", 1_000))
    late = pond.register(text, "late", changes="from beginning")
    if most == 20:  # more than that are joined at one instant
        with pytest.raises(MillpondError, match="suspended"):
            late.fetch()
        return
    found = late.fetch(limit=100_000)
    assert found.as_of == 1_000 * SECOND - 1
    one, other = ([(c.timestamp, c.sign, c.row) for c in page] for page in (whole, found))
    assert sorted(other[: len(one)]) == sorted(one)


def test_what_was_done_in_many_steps_is_made_again_in_many_slices(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join of a key with many partners can be followed behind a restart."""
    monkeypatch.setattr(segment_inputs, "FEW", 100)
    monkeypatch.setattr(pairs, "MOST_ROWS", 20_000)
    store = tmp_path / "store"
    text = "SELECT max(a.v + b.v) AS m FROM s [RANGE 1 HOUR] a, s [RANGE 1 HOUR] b WHERE a.k = b.k"
    with open_local(store, clock) as pond:
        pond.execute(SCHEMA)
        pond.register(text, "q", changes="from beginning")
        for first in range(1, 601, 20):
            push(pond, *((t, "ab"[t % 2], t) for t in range(first, first + 20)))
            pond.query("q").fetch()
    with open_local(store, clock) as pond:
        push(pond, (601, "c", 1_000), (602, "c", 1))
        found = pond.query("q").fetch(limit=100_000)
    assert [c.row for c in found if c.sign == "+"][-1] == (2_000,)


def test_dataflows_are_made_again_where_they_were(tmp_path: Path, clock: ManualClock) -> None:
    store = tmp_path / "store"
    query = "SELECT k, count(*) AS n FROM s [RANGE 5 SECONDS] GROUP BY k"
    with open_local(store, clock) as pond:
        pond.execute(SCHEMA)
        pond.register(query, "whole", changes="from beginning")
        pond.register(query, "cut", changes="from beginning").fetch()
    for t in range(1, 9):
        with open_local(store, clock) as pond:
            push(pond, (t, "ab"[t % 2], t))
    with open_local(store, clock) as pond:
        cut, whole = pond.query("cut").fetch(), pond.query("whole").fetch()
        assert len(cut) > 10
        assert cut.rows() == whole.rows()


def test_what_a_derivation_needs_outlives_retain(tmp_path: Path, clock: ManualClock) -> None:
    with open_local(tmp_path / "store", clock) as pond:
        pond.execute(f"{SCHEMA.rstrip(';')} RETAIN INTERVAL 1 SECOND;")
        handle = pond.register("SELECT v FROM s WHERE v > 0", "q")
        push(pond, (1, "a", 1), (2, "a", 2))
        assert len(handle.fetch()) == 1
        handle.alter(active=False)
        push(pond, (30, "a", 30))
        push(pond, (60, "a", 60))
        pond.wait_until_matched()
        handle.alter(active=True)
        assert [c.row[0] for c in handle.fetch(after=1)] == [2, 30]


def test_a_change_log_keeps_what_it_is_told_to(pond: Pond) -> None:
    handle = pond.register("SELECT v FROM s", "q", keep_changes=4)
    assert len(handle.fetch()) == 0
    for t in range(1, 12):
        push(pond, (t, "a", t))
        pond.wait_until_matched()
    with pytest.raises(MillpondError, match=r"(?s)POND-412: the first .*AFTER 'oldest'"):
        handle.fetch()
    kept = handle.fetch(after="oldest")
    oldest = kept.rows()[0][0] - 1
    assert [row[0] for row in kept.rows()] == list(range(oldest + 1, 11))
    assert 4 <= len(kept) < 10
    with pytest.raises(MillpondError, match=f"The oldest cursor available is {oldest}"):
        handle.fetch(after=oldest - 1)
    assert handle.fetch(after=oldest).rows() == kept.rows()


def test_how_much_a_change_log_keeps_may_be_altered(pond: Pond) -> None:
    handle = pond.register("SELECT v FROM s", "q")
    assert len(handle.fetch()) == 0
    handle.alter(keep_changes=2)
    for t in range(1, 12):
        push(pond, (t, "a", t))
        pond.wait_until_matched()
    assert 2 <= len(handle.fetch(after="oldest")) < 10


def test_changes_start_where_everything_is_kept(tmp_path: Path, clock: ManualClock) -> None:
    with open_local(tmp_path / "store", clock) as pond:
        pond.execute(f"{SCHEMA.rstrip(';')} RETAIN INTERVAL 10 SECONDS;")
        for t in range(1, 60, 4):
            push(pond, (t, "a", t))
            pond.wait_until_matched()
        kept_from = pond._components.log.version.clock(1).kept_from
        assert kept_from > 0
        handle = pond.register("SELECT v FROM s [RANGE 4 SECONDS]", "q", changes="from beginning")
        first = handle.fetch().rows()[0]
        assert first[1] >= kept_from + 3 * SECOND


def test_dropping_a_query_drops_its_changes(pond: Pond) -> None:
    handle = pond.register("SELECT v FROM s", "q")
    push(pond, (1, "a", 1), (2, "a", 2))
    assert handle.fetch().newest == 1
    handle.unregister()
    assert [s.name for s in pond._components.log.version.streams.values()] == ["s"]
    again = pond.register("SELECT v FROM s", "q")
    assert again.fetch().newest == 0
    with pytest.raises(MillpondError, match="ahead of its changes"):
        again.fetch(after=1)


def test_a_cursor_of_other_changes_is_refused_and_says_where_to_go_on(pond: Pond) -> None:
    first = pond.register("SELECT v FROM s", "q")
    other = pond.register("SELECT v FROM s", "other")
    assert (len(first.fetch()), len(other.fetch())) == (0, 0)
    push(pond, (1, "a", 1), (2, "a", 2))
    cursor = first.fetch().cursor
    assert len(first.fetch(after=cursor)) == 0
    elsewhere = cursor.replace(cursor[:6], "000000")
    for handle, foreign, why in (
        (other, cursor, "another query"),
        (first, elsewhere, "another store, or of this one before it was repaired"),
    ):
        with pytest.raises(MillpondError, match=why) as caught:
            handle.fetch(after=foreign)
        assert caught.value.code == "POND-412"
        assert "AFTER 'oldest'" in str(caught.value.hint)
    first.unregister()
    again = pond.register("SELECT v FROM s", "q", changes="from beginning")
    assert len(again.fetch()) == 1
    with pytest.raises(MillpondError, match="that was dropped"):
        again.fetch(after=cursor)
    (change,) = again.subscribe(after="oldest", follow=False)
    assert list(again.subscribe(after=change.cursor, follow=False)) == []


def test_change_logs_have_no_names(pond: Pond) -> None:
    handle = pond.register("SELECT v FROM s", "q")
    handle.fetch()
    (log,) = [s for s in pond._components.log.version.streams.values() if s.is_change_log]
    assert pond._components.log.version.find(log.name) is None
    assert [s.name for s in pond.streams()] == ["s"]
    assert [s["name"] for s in pond.status()["streams"]] == ["s"]
    with pytest.raises(MillpondError, match="CQL-201"):
        pond.ask(f'SELECT * FROM "{log.name}"')


def test_expirations_come_when_they_are_due(pond: Pond, clock: ManualClock) -> None:
    pond.execute("CREATE STREAM now (v BIGINT)")
    handle = pond.register("SELECT v FROM now [RANGE 5 SECONDS]", "q")
    pond.ingest("now", [{"v": 1}])
    pond.catch_up()
    clock.set(103 * SECOND)
    assert [(c.sign, c.at) for c in handle.fetch()] == [("+", 100 * SECOND)]
    clock.set(106 * SECOND)
    assert [(c.sign, c.at) for c in handle.fetch(after=1)] == [("-", 105 * SECOND)]


@pytest.mark.parametrize(
    ("window", "moments"),
    [
        ("[RANGE 5 SECONDS]", [6, 8]),
        ("[RANGE 5 SECONDS SLIDE 4 SECONDS]", [4, 8]),
        ("[NOW]", [3.000001]),
        ("[ROWS 2]", []),
        ("", []),
    ],
)
def test_the_next_moment(pond: Pond, window: str, moments: list[float]) -> None:
    from millpond.service.changes.next_expiration import next_expiration

    push(pond, (1, "a", 1), (3, "a", 3))
    bound = pond._components.registrar.bind(f"SELECT v FROM s {window}")
    position, found = 3 * SECOND, []
    while (
        at := next_expiration(
            pond._components.invoker.files, pond._components.log.version, bound, position
        )
    ) < END:
        found.append(at / SECOND)
        position = at
    assert found == moments


def test_tasks_are_the_same_wherever_they_run(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without a dataflow, or with one that others have left behind, gives the same."""
    from millpond.runtime import advance_task, dataflow_cache

    shelves = [dataflow_cache._DataflowCache() for _ in range(2)]
    turns = {"now": 0}
    run = pond._components.runtime.run

    def elsewhere(task: Any, jobs: list[Job], *near: Any) -> list[Done]:
        if task is advance_task.advance:
            turns["now"] += 1
            monkeypatch.setattr(dataflow_cache, "_shelf", shelves[turns["now"] % 2])
        return run(task, jobs, *near)

    monkeypatch.setattr(pond._components.runtime, "run", elsewhere)
    query = "SELECT k, max(v) AS most FROM s [RANGE 3 SECONDS] GROUP BY k"
    handle = pond.register(query, "q", changes="from beginning")
    handle.fetch()
    for t in range(1, 15):
        push(pond, (t, "abc"[t % 3], t * 7 % 5))
    assert turns["now"] > 10
    again = pond.register(query, "again", changes="from beginning")
    assert handle.fetch().rows() == again.fetch().rows()


def test_a_full_disk_delays_changes_and_loses_none(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millpond.runtime.files import log_files

    handle = pond.register("SELECT v FROM s", "q")
    pond.execute("CREATE STREAM t AS SELECT v FROM s WHERE v > 1")
    push(pond, (1, "a", 1), (2, "a", 2))
    assert len(handle.fetch()) == 1

    def full(files: Any) -> Any:
        raise MillpondError("STORE-603", "the file cannot be written")

    with monkeypatch.context() as context:
        context.setattr(log_files, "write_together", full)
        with pytest.raises(MillpondError, match="STORE-603"):
            push(pond, (3, "a", 3), (4, "a", 4))
        with pytest.raises(MillpondError, match="STORE-603"):
            handle.fetch()
        assert handle.definition.suspended is None
    assert [c.row[0] for c in handle.fetch()] == [1, 2, 3]
    (result,) = pond.execute("FETCH t")
    assert [row[3] for row in result.changes.rows()] == [2, 3]


#: The other query's window has the dataflow that both share see older elements.
BESIDE = """
CREATE STREAM g (ts TIMESTAMP, k STRING) TIMESTAMP BY ts;
CREATE QUERY other WITH (follow = true) AS SELECT k FROM g [RANGE 1 MINUTE];
"""
CASTS = "CREATE QUERY casts WITH (follow = true) AS SELECT CAST(k AS INTEGER) AS n FROM g"


def test_an_element_of_before_the_registration_fails_no_change_after_it(tmp_path: Path) -> None:
    with open_local(tmp_path) as pond:
        pond.execute(BESIDE)
        _push_to_g(pond, 1, "bad")
        _push_to_g(pond, 2, "3")  # so that the instant of the bad one is final
        pond.catch_up()
        pond.execute(CASTS)
        _push_to_g(pond, 3, "4")
        _push_to_g(pond, 4, "5")
        pond.catch_up()
        assert [row[-1] for row in pond.query("casts").fetch().rows()] == [3, 4]
    with open_local(tmp_path) as pond:  # makes the dataflow anew
        _push_to_g(pond, 5, "6")
        pond.catch_up()
        assert [row[-1] for row in pond.query("casts").fetch().rows()] == [3, 4, 5]
        _push_to_g(pond, 6, "worse")
        _push_to_g(pond, 7, "7")
        pond.catch_up()
        with pytest.raises(MillpondError, match="suspended"):
            pond.query("casts").fetch().rows()
        assert len(pond.query("other").fetch().rows()) == 6


def _push_to_g(pond: Pond, second: int, k: str) -> None:
    pond.ingest("g", [{"ts": f"2026-03-01 00:00:0{second}", "k": k}])
