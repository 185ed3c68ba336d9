"""A sampled query after a flood: its changes, and its answers, when it is quiet again."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.unit.service.ingest.test_pressure import Backlog

from millpond.model.loss import Cause
from millpond.service.pond import Pond

SECOND = 1_000_000
CREATE = """
CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE QUERY loose WITH (weight = 3, tolerate = 'sample 20 %', changes = 'from beginning')
  AS SELECT v FROM s [RANGE 60 SECONDS] WHERE v >= 0;
CREATE QUERY light AS SELECT v FROM s WHERE v < 30;
"""


def push(pond: Pond, second: int) -> None:
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
    pond.execute(CREATE)
    backlog = Backlog(pond)
    pond.query("loose").fetch()
    for second in range(1, 4):
        push(pond, second)
    backlog.fill(0.46)
    for second in range(4, 8):
        push(pond, second)
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
