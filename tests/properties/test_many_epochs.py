"""Law 4 where segments are many: a hundred epochs of one element, merged behind everyone's back."""

from __future__ import annotations

from typing import Any

from tests.oracle.oracle_pond import OraclePond
from tests.tools import golden_table as cells
from tests.tools.golden import MakePond

from millpond.model.time import to_datetime
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
QUERIES = (
    "SELECT k, v FROM s WHERE v > 5 OR k IS NULL",
    "SELECT v FROM s [RANGE 13 SECONDS] WHERE k = 'a'",
    "SELECT k, count(*) AS n, sum(v) AS total FROM s [RANGE 30 SECONDS SLIDE 4 SECONDS] GROUP BY k",
    "SELECT k, v FROM s [ROWS 7 WHERE v <> 3]",
    "SELECT k, v FROM s [PARTITION BY k ROWS 3]",
    "SELECT p.v AS a, q.v AS b FROM s [RANGE 9 SECONDS] p, s [ROWS 20] q WHERE p.k = q.k",
    "SELECT DISTINCT v FROM s BEGIN TIMESTAMP '1970-01-01 00:00:20' END NOW",
)


def test_a_hundred_small_epochs_answer_as_one(make_pond: MakePond) -> None:
    clock = ManualClock()
    pond, oracle = make_pond(clock), OraclePond(clock)
    both: tuple[Any, ...] = (pond, oracle)
    for each in both:
        each.execute(
            "CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts"
            " DELAY INTERVAL 10 SECONDS"
        )
    for place in range(100):
        # Every third element is four seconds behind, and there are ties.
        at = (place - 4 * (place % 3 == 0)) // 2 * 2 * SECOND
        row = {"ts": to_datetime(at), "k": "ab"[place % 2] if place % 5 else None, "v": place % 9}
        for each in both:
            if place % 16 == 8:
                number = place // 16
                each.execute(f"CREATE QUERY q{number} AS {QUERIES[number]}")
            assert each.ingest("s", [row]).rejected == 0
        pond.catch_up()
    pond.execute(f"CREATE QUERY q6 AS {QUERIES[6]}")
    oracle.execute(f"CREATE QUERY q6 AS {QUERIES[6]}")
    pond.catch_up()
    for number, query in enumerate(QUERIES):
        for at in (None, 0, 17 * SECOND, 50 * SECOND, 51 * SECOND + 1, 200 * SECOND):
            actual, meant = (each.query(f"q{number}").invoke(at=at) for each in both)
            shown = [sorted(cells.show_rows(answer.rows())) for answer in (actual, meant)]
            assert shown[0] == shown[1], f"{query} at {at}"
    pond.close()
