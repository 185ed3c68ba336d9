"""What is known of a kept answer, and who may be handed it."""

from __future__ import annotations

from tests.unit.service.conftest import SECOND, components_of, rows

from millpond.service.answers.kept_groups import LONGEST_WAIT, KeptAnswer
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock


def test_an_answer_that_fails_is_tried_less_and_less_often() -> None:
    kept = KeptAnswer()
    waits = []
    for _ in range(8):
        kept.fail(100, "no")
        waits.append(kept.waits_until - 100)
    assert waits == [2, 4, 8, 16, 32, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT]
    assert kept.figures()["not kept"] == "no"
    assert kept.table is None


def test_a_few_queries_are_advanced_in_time_by_who_reads_them(
    pond: Pond, clock: ManualClock
) -> None:
    pond.execute("CREATE STREAM s (v INTEGER)")
    text = "SELECT count(*) AS n FROM s [RANGE 10 SECONDS]"
    queries = [pond.register(f"{text} WHERE v > {n}", materialize="eager") for n in range(17)]
    answers = components_of(pond).invoker.kept_answers

    def served() -> int:
        pond.ingest("s", [{"v": 50}])
        pond.wait_until_matched()
        before = answers.of(queries[0].id).served
        clock.set(clock() + 20 * SECOND)
        assert queries[0].invoke().rows() == [(0,)]
        return answers.of(queries[0].id).served - before

    assert served() == 0
    queries.pop().unregister()
    assert served() == 1


def test_a_timeless_answer_is_that_of_any_later_instant(pond: Pond, clock: ManualClock) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    query = pond.register("SELECT sum(v) AS total FROM s", materialize="eager")
    pond.ingest("s", rows(1, 2, 3))
    pond.wait_until_matched()
    kept = components_of(pond).invoker.kept_answers.of(query.id)
    assert query.invoke(at=9 * SECOND).rows() == [(3,)]
    assert kept.served == 1
    assert query.invoke(at=2 * SECOND).rows() == [(1,)]
    assert kept.served == 1
