"""The advancer: rounds, waiting, and who is held up by whom."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.unit.service.conftest import SECOND, RecordedEvents, components_of, rows

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.runtime import advance_task
from millpond.service.components import Components
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock


@pytest.fixture
def parts(pond: Pond) -> Components:
    """`two` derives from `one`, and `one` from `s`; the advancer's thread stands still."""
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM one AS SELECT v FROM s;"
        "CREATE STREAM two AS SELECT v + 1 AS v FROM one"
    )
    pond.catch_up()
    parts = components_of(pond)
    parts.advancer.stop()
    parts.advancer.stopping = False
    return parts


def stream(parts: Components, name: str) -> StreamDef:
    found = parts.log.version.find(name)
    assert isinstance(found, StreamDef)
    return found


def elements(parts: Components) -> tuple[int, int]:
    version = parts.log.version
    one, two = (version.clock(stream(parts, name).id).next_seq for name in ("one", "two"))
    return one, two


def test_what_derives_from_the_derived_comes_a_round_later(pond: Pond, parts: Components) -> None:
    pond.ingest("s", rows(1, 2, 9))
    seen = []
    while parts.advancer.step():
        seen.append(elements(parts))
    assert seen[0] == (2, 0)
    assert seen[-1] == (2, 2)
    assert not parts.advancer.step()


@pytest.mark.parametrize("read", ["s", "one", "r"])
def test_what_comes_meanwhile_is_not_waited_for(
    pond: Pond, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """While elements come faster than rounds are done, there is always something to do."""
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM one AS SELECT v FROM s;"
        "CREATE RELATION r (v INTEGER);"
        "CREATE QUERY other WITH (follow = true) AS SELECT count(*) AS n FROM s"
    )
    query = pond.register(f"SELECT v FROM {read}", "q", changes="from beginning")
    query.fetch()
    pond.catch_up()
    advancer = components_of(pond).advancer
    step, rounds = advancer.step, 0

    def step_while_more_comes(*given: Any) -> bool:
        nonlocal rounds
        is_busy = step(*given)
        if is_busy and rounds < 60:
            rounds += 1
            pond.ingest("s", rows(100 + rounds))
        return is_busy

    monkeypatch.setattr(advancer, "step", step_while_more_comes)
    pond.ingest("s", rows(1, 2, 9))
    pond.execute("INSERT INTO r VALUES (0), (1)")
    found = query.fetch()
    assert rounds < 60
    assert {(0,), (1,)} <= {change.row for change in found}


def test_who_has_all_is_not_told_of_what_failed_before(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits goes on as soon as a round has brought what is wanted; others may follow it."""
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM one AS SELECT v FROM s"
    )
    pond.catch_up()
    advancer = components_of(pond).advancer
    step, fails, goes_on = advancer.step, [True], threading.Event()

    def fail_once_and_linger(*given: Any) -> bool:
        if fails:
            fails.clear()
            raise MillpondError("STORE-603", "the storage gives no answer")
        if is_busy := step(*given):
            return is_busy
        goes_on.wait(30)
        return False

    monkeypatch.setattr(advancer, "step", fail_once_and_linger)
    pond.ingest("s", rows(1, 2, 9))
    with pytest.raises(MillpondError, match="STORE-603"):
        pond.catch_up()
    try:
        pond.catch_up()
    finally:
        goes_on.set()
    assert len(pond.ask("SELECT v FROM one").rows()) == 2


def test_a_round_is_one_epoch(pond: Pond, parts: Components) -> None:
    pond.register("SELECT v FROM s [RANGE 5 SECONDS]", "q", changes="from beginning")
    log = parts.new_derivations.follow(pond.query("q").definition)
    pond.ingest("s", rows(1, 2, 9))
    before = parts.log.version.epoch
    assert parts.advancer.step()
    version = parts.log.version
    assert version.epoch == before + 1
    assert version.clock(log.id).position == version.clock(stream(parts, "one").id).position
    assert version.clock(log.id).position == 9 * SECOND - 1


def test_it_is_behind_until_it_has_caught_up(pond: Pond, parts: Components) -> None:
    pond.ingest("s", rows(1))
    while parts.advancer.step():
        pass
    pond.ingest("s", rows(8))
    one, two = stream(parts, "one").id, stream(parts, "two").id
    assert parts.advancer.lag() == {one: 7.0, two: 0.0}
    assert parts.advancer.step()
    assert parts.advancer.lag() == {one: 0.0, two: 7.0}
    while parts.advancer.step():
        pass
    assert parts.advancer.lag() == {one: 0.0, two: 0.0}
    assert parts.advancer.complete_upto(parts.log.version, stream(parts, "two")) == 8 * SECOND - 1


def test_who_waits_is_held_up_by_the_first_that_has_stopped(parts: Components) -> None:
    version = parts.log.version
    one, two = stream(parts, "one"), stream(parts, "two")

    def blocker(of: StreamDef) -> str | None:
        found = parts.advancer.find_blocker(version, of)
        return None if found is None else found.name

    assert (blocker(two), blocker(one), blocker(stream(parts, "s"))) == (None, None, None)
    parts.advancer.retries.note(one.id, MillpondError("POND-404", "no"))
    assert (blocker(two), blocker(one)) == ("one", None)


def test_a_failure_stops_its_stream_and_is_told(pond: Pond, parts: Components) -> None:
    pond.execute("CREATE STREAM bad AS SELECT v::STRING::DATE AS d FROM s")
    events: Any = RecordedEvents()
    parts.advancer._events = events
    pond.ingest("s", rows(1, 9))
    while parts.advancer.step():
        pass
    failures = [call for call in events.calls if call[0] == "derivation_failed"]
    assert [(of.name, error.code) for _, of, error in failures] == [("bad", "POND-404")]
    assert parts.advancer.retries.get(stream(parts, "bad").id) is failures[0][2]
    assert elements(parts) == (1, 1)


def test_nothing_that_could_not_be_written_counts(
    pond: Pond, parts: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond.ingest("s", rows(1, 9))
    full = MillpondError("STORE-603", "the disk is full")

    def commit(change: object) -> None:
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(parts.log, "commit", commit)
        with pytest.raises(MillpondError) as failure:
            parts.advancer.step()
    assert failure.value is full
    assert elements(parts) == (0, 0)
    while parts.advancer.step():
        pass
    assert elements(parts) == (1, 1)


def test_only_what_is_derived_is_waited_for(parts: Components) -> None:
    # The thread stands still, so whoever waited would wait for ever.
    assert parts.advancer.catch_up([stream(parts, "s")])
    assert not parts.advancer.catch_up([stream(parts, "two")], timeout=0)


def test_heartbeats_alone_are_not_published_all_the_time(
    pond: Pond, parts: Components, clock: ManualClock
) -> None:
    pond.execute("CREATE STREAM clocked (v INTEGER); CREATE STREAM d AS SELECT v FROM clocked")
    while parts.advancer.step():
        pass
    clock.set(clock() + SECOND)
    assert parts.advancer.step(called=True)
    clock.set(clock() + SECOND)
    # Nobody asked, and the last heartbeat was published just now.
    assert not parts.advancer.step(called=False)
    assert parts.advancer.step(called=True)


def test_a_group_goes_to_the_machine_that_has_its_dataflow(
    pond: Pond, parts: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, sent = parts.runtime.run, []

    def note(task: Any, jobs: list[Any], near: Any = ()) -> list[Any]:
        if task in (advance_task.advance, advance_task.prepare):
            sent.extend((job.group, machine) for job, machine in zip(jobs, near, strict=True))
        return run(task, jobs, near)

    monkeypatch.setattr(parts.runtime, "run", note)
    monkeypatch.setattr(parts.runtime, "prefer", lambda key: f"machine of {key}")
    for second in (2, 5, 9):
        pond.ingest("s", rows(second))
        while parts.advancer.step():
            pass
    assert len(sent) >= 3
    assert all(machine == f"machine of {group}" for group, machine in sent)
