"""The ladder of work: what is deferred and reduced, in which order, and that nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.service.conftest import OpenPond, components_of

from millpond.model.loss import Cause
from millpond.service.ingest.door import SHARES
from millpond.service.ingest.pressure import DEFER, REDUCE, RUNGS, choose_rung, choose_weight
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock

SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE QUERY first WITH (weight = 3) AS SELECT v FROM s WHERE v < 50;
CREATE QUERY light AS SELECT v FROM s WHERE v < 30;
CREATE QUERY middle WITH (weight = 2) AS SELECT v FROM s WHERE v BETWEEN 20 AND 60;
CREATE QUERY heavy WITH (weight = 3) AS SELECT v FROM s WHERE v > 90;
CREATE QUERY eager WITH (materialize = 'eager') AS SELECT count(*) AS n FROM s WHERE v > 3;
CREATE QUERY loose WITH (tolerate = 'sample 20 %') AS SELECT v FROM s WHERE v < 80;
CREATE QUERY strict WITH (weight = 0.5) AS SELECT v, count(*) AS n FROM s [RANGE 9 s] GROUP BY v;
"""
QUERIES = ("first", "light", "middle", "heavy", "eager", "strict")


def rows(start: int, count: int, seed: int = 1) -> list[dict[str, Any]]:
    chosen = random.Random(seed + start)
    return [
        {"ts": f"1970-01-01 00:{i // 60:02}:{i % 60:02}", "v": chosen.randrange(100)}
        for i in range(start, start + count)
    ]


class Backlog:
    """Has the door of a pond believe that so much of its memory waits."""

    def __init__(self, pond: Pond) -> None:
        self._parts = components_of(pond)
        self._bytes = 0

    def fill(self, part: float) -> None:
        wanted = int(part * self._parts.door.limit)
        self._parts.door.leave(self._bytes - wanted)
        self._bytes = wanted
        self._parts.pressure.look()


def test_work_gives_way_before_data() -> None:
    assert [rung.action for rung in RUNGS] == [DEFER, DEFER, REDUCE, REDUCE]
    assert RUNGS[-1].fill < min(fill for fill, share in SHARES if share)


def test_steps_are_climbed_at_once_and_left_when_half_as_much_waits() -> None:
    step, seen = 0, []
    for fill in (0.1, 0.2, 0.15, 0.11, 0.1, 0.9, 0.31, 0.23, 0.22, 0.2, 0.16, 0.15, 0.0):
        step = choose_rung(step, fill)
        seen.append(step)
    assert seen == [0, 1, 1, 1, 0, 4, 4, 4, 3, 2, 2, 1, 0]
    for fill in (n / 100 for n in range(100)):
        for before in range(5):
            once = choose_rung(before, fill)
            assert choose_rung(once, fill) == once


@pytest.mark.parametrize(
    ("weights", "given"),
    [([], [0, 0, 0, 0]), ([5], [0, 5, 0, 5]), ([1, 2], [1, 1, 1, 2]), ([1, 2, 3, 9], [2, 3, 2, 9])],
)
def test_the_lightest_give_way_first(weights: list[float], given: list[float]) -> None:
    assert [choose_weight(weights, rung) for rung in RUNGS] == given


def test_each_step_is_recorded_with_the_weight_it_concerns(pond: Pond) -> None:
    pond.execute(SCHEMA)
    backlog = Backlog(pond)
    for part in (0.1, 0.42, 0.46, 0.0):
        backlog.fill(part)
    steps = pond.ask("SELECT action, name, before, after FROM system$actions").rows()
    assert steps == [
        ("defer", "", 0.0, 2.0),
        ("reduce", "", 0.0, 1.0),
        ("reduce", "", 1.0, 3.0),
        ("reduce", "", 3.0, 0.0),
        ("defer", "", 2.0, 0.0),
    ]


def test_work_gives_way_when_the_oldest_push_waits_for_long(
    pond: Pond, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond.execute(SCHEMA + "ALTER SYSTEM SET (freshness = '2 seconds')")
    parts, began = components_of(pond), clock()
    monkeypatch.setattr(parts.intake, "find_oldest_arrival", lambda: began)
    steps = []
    for seconds in (1.9, 2.0, 2.9, 3.0, 4.0, 4.5, 60.0):
        clock.set(began + int(seconds * 1e6))
        parts.pressure.look()
        steps.append(parts.pressure.step)
    assert steps == [0, 1, 1, 2, 3, 4, 4]
    assert pond.ingest("s", rows(0, 3)).accepted == 3  # no data gives way
    monkeypatch.undo()
    pond.catch_up()
    parts.pressure.look()
    assert (parts.pressure.step, parts.pressure.deferred_weight) == (0, 0.0)
    ((why,), *_) = pond.ask("SELECT why FROM system$actions").rows()
    assert why == "the oldest push has waited for its epoch for 2.0 s, and freshness is 2 SECONDS"


def test_the_oldest_push_is_the_first_that_waits(
    pond: Pond, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond.execute(SCHEMA)
    parts, arrived_at = components_of(pond), clock()
    assert parts.intake.find_oldest_arrival() is None
    monkeypatch.setattr(parts.runtime, "wake_inbox", lambda: None)
    for at in range(3):
        pond.ingest("s", rows(at, 1))
        clock.advance(timedelta(seconds=5))
    assert parts.intake.find_oldest_arrival() == arrived_at
    monkeypatch.undo()
    pond.ingest("s", rows(3, 1))
    pond.catch_up()
    assert parts.intake.find_oldest_arrival() is None


def test_a_step_that_cannot_be_recorded_is_not_taken(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond.execute(SCHEMA)
    parts = components_of(pond)

    def fail(*step: Any) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(parts.actions, "record", fail)
        with pytest.raises(OSError, match="no room"):
            Backlog(pond).fill(0.3)
    assert (parts.pressure.step, parts.pressure.deferred_weight) == (0, 0.0)
    parts.pressure.look()
    assert parts.pressure.step == 2


def test_light_queries_are_not_matched_while_much_waits_and_answered_all_the_same(
    pond: Pond,
) -> None:
    pond.execute(SCHEMA)
    backlog = Backlog(pond)
    backlog.fill(0.31)
    pond.ingest("s", rows(0, 200))
    components_of(pond).intake.wait(1)
    version = components_of(pond).log.version
    files = components_of(pond).invoker.files
    (segment,) = version.segments(version.find("s").id)  # type: ignore[union-attr]
    matched = {
        name: any(
            ref.low <= leaf.slot < ref.upto and files.matches(ref, leaf.slot) is not None
            for leaf in version.leaves(pond.query(name).id)
            for ref in version.matches(segment.id)
            if leaf.slot is not None
        )
        for name in ("light", "middle", "heavy")
    }
    assert matched == {"light": False, "middle": False, "heavy": True}
    values = [row["v"] for row in rows(0, 200)]
    expected = {
        "light": [v for v in values if v < 30],
        "middle": [v for v in values if 20 <= v <= 60],
        "heavy": [v for v in values if v > 90],
        "first": [v for v in values if v < 50],
    }
    for name, wanted in expected.items():
        answer = pond.query(name).invoke()
        assert answer.exact
        assert Counter(answer.rows()) == Counter((v,) for v in wanted)
    backlog.fill(0.0)
    pond.wait_until_matched()
    version = components_of(pond).log.version
    refs = version.matches(segment.id)
    assert [(ref.low, ref.upto) for ref in refs] == [(0, version.next_slot(segment.stream_id))]
    for name, wanted in expected.items():
        assert Counter(pond.query(name).invoke().rows()) == Counter((v,) for v in wanted)


def test_followers_of_light_queries_wait_and_miss_nothing(pond: Pond) -> None:
    pond.execute(SCHEMA)
    light, heavy = pond.query("light"), pond.query("heavy")
    for query in (light, heavy):
        query.fetch()
    backlog = Backlog(pond)
    backlog.fill(0.31)
    pond.ingest("s", rows(0, 100))
    components_of(pond).intake.wait(1)
    values = [row["v"] for row in rows(0, 99)]
    assert [c.row[0] for c in heavy.fetch()] == [v for v in values if v > 90]
    assert len(light.fetch()) == 0
    assert light.fetch().exact
    backlog.fill(0.0)
    pond.catch_up()
    assert [c.row[0] for c in light.fetch()] == [v for v in values if v < 30]


def test_who_tolerates_is_reduced_while_much_waits(pond: Pond) -> None:
    pond.execute(SCHEMA)
    pond.ingest("s", rows(0, 400))
    pond.catch_up()
    exact = pond.query("loose").invoke()
    backlog = Backlog(pond)
    backlog.fill(0.41)
    reduced = pond.query("loose").invoke()
    assert not reduced.exact
    assert [loss.kept for loss in reduced.loss] == [20.0]
    assert Counter(reduced.rows()) < Counter(exact.rows())
    for name in QUERIES:
        assert pond.query(name).invoke().exact
    backlog.fill(0.0)
    assert pond.query("loose").invoke().rows() == exact.rows()


@pytest.mark.parametrize("seed", range(4))
def test_steps_change_no_answer_of_queries_that_tolerate_nothing(
    open_pond: OpenPond, seed: int
) -> None:
    """Random steps, restarts and registrations; compared with queries asked in a quiet pond."""
    chosen = random.Random(seed)
    pond = open_pond()
    pond.execute(SCHEMA)
    for name in ("light", "strict", "heavy"):
        pond.query(name).alter(changes="from beginning")
        pond.query(name).fetch()
    backlog = Backlog(pond)
    for turn in range(12):
        backlog.fill(chosen.choice([0.0, 0.1, 0.21, 0.31, 0.42, 0.6]))
        pond.ingest("s", rows(turn * 20, 20, seed))
        if turn % 3 == 0:
            low = chosen.randrange(80)
            pond.register(f"SELECT v FROM s WHERE v > {low}", weight=chosen.choice([0.5, 1, 3]))
        components_of(pond).intake.wait(components_of(pond).intake.last_number())
        name = chosen.choice(QUERIES)
        handle = pond.query(name)
        assert Counter(handle.invoke().rows()) == Counter(pond.ask(handle.definition.text).rows())
        if turn in (4, 9):
            backlog.fill(0.0)
            pond = open_pond()
            backlog = Backlog(pond)
    backlog.fill(0.0)
    pond.wait_until_matched()
    for query in list(components_of(pond).log.version.queries.values()):
        handle = pond.query(query.name)
        answer = handle.invoke()
        if query.name != "loose":
            assert answer.exact
            assert Counter(answer.rows()) == Counter(pond.ask(query.text).rows())
    for name in ("light", "strict", "heavy"):
        page = pond.query(name).fetch(limit=100_000)
        held: Counter[Any] = Counter()
        for change in page:
            held[change.row] += 1 if change.sign == "+" else -1
        assert +held == Counter(pond.query(name).invoke(at=page.as_of).rows())


def test_what_was_deferred_is_made_up_for_after_a_restart(open_pond: OpenPond) -> None:
    pond = open_pond()
    pond.execute(SCHEMA)
    Backlog(pond).fill(0.31)
    pond.ingest("s", rows(0, 100))
    components_of(pond).intake.wait(1)
    stream = components_of(pond).log.version.find("s").id  # type: ignore[union-attr]

    def list_ranges(pond: Pond) -> list[tuple[int, int]]:
        version = components_of(pond).log.version
        return [
            (ref.low, ref.upto)
            for segment in version.segments(stream)
            for ref in version.matches(segment.id)
        ]

    ((low, _),) = list_ranges(pond)
    assert low > 0
    pond = open_pond()
    assert components_of(pond).pressure.step == 0
    pond.wait_until_matched()
    assert list_ranges(pond) == [(0, components_of(pond).log.version.next_slot(stream))]
    assert components_of(pond).problems() == []
    values = [row["v"] for row in rows(0, 100)]
    assert [v for (v,) in pond.query("light").invoke()] == [v for v in values if v < 30]


#: A second of event time, in microseconds.
SECOND = 1_000_000
LOOSE = """
CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE QUERY loose WITH (weight = 3, tolerate = 'sample 20 %', changes = 'from beginning')
  AS SELECT v FROM s [RANGE 60 SECONDS] WHERE v >= 0;
CREATE QUERY light AS SELECT v FROM s WHERE v < 30;
"""


def push_second(pond: Pond, second: int) -> None:
    pond.ingest(
        "s", [{"ts": f"1970-01-01 00:00:{second:02}", "v": second * 100 + n} for n in range(50)]
    )
    pond.catch_up()


def add_up(pond: Pond, upto: int) -> Counter[Any]:
    held: Counter[Any] = Counter()
    for _, at, sign, *row in pond.query("loose").fetch(limit=100_000).rows():
        if at <= upto:
            held[tuple(row)] += 1 if sign == "+" else -1
    return +held


def answer(pond: Pond, at: int) -> tuple[Counter[Any], bool]:
    found = pond.query("loose").invoke(at=at)
    return Counter(found.rows()), found.exact


def test_changes_add_up_to_the_answer_asked_then_and_to_the_exact_one_after_it(pond: Pond) -> None:
    """An answer is reduced by what holds when it is asked, changes by what held back then."""
    pond.execute(LOOSE)
    backlog = Backlog(pond)
    pond.query("loose").fetch()
    for second in range(1, 4):
        push_second(pond, second)
    backlog.fill(0.46)
    for second in range(4, 8):
        push_second(pond, second)
        asked, exact = answer(pond, (second - 1) * SECOND)
        assert not exact
        assert 0 < asked.total() < 50 * (second - 1)
        assert add_up(pond, (second - 1) * SECOND) == asked
    backlog.fill(0.0)
    pond.catch_up()
    # Nothing comes: no later instant is final at which the changes could be made whole.
    whole, exact = answer(pond, 6 * SECOND)
    page = pond.query("loose").fetch(limit=100_000)
    assert (exact, whole.total()) == (True, 300)
    assert [loss.cause for loss in page.loss] == [Cause.SAMPLED]
    assert add_up(pond, 6 * SECOND) < whole
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:20'")
    pond.catch_up()
    for second in range(7, 20):
        assert (add_up(pond, second * SECOND), True) == answer(pond, second * SECOND)
    later = pond.query("loose").fetch(page.cursor)
    assert later.rows()
    assert pond.query("loose").fetch(later.cursor).exact
    assert page.loss[0].upto < 7 * SECOND
