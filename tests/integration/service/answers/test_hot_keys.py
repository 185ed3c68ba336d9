"""Joins of a key with very many partners, answered when asked."""

from __future__ import annotations

import time
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.answers import evaluation
from millpond.service.pond import Pond

SIZE = 60_000
#: What is asked of the pairs of `a` and `b`, and the answer; v is the number of the row by 10.
ASKED: dict[str, list[tuple[Any, ...]]] = {
    "SELECT count(*) AS c, sum(b.v) AS x, min(a.v) AS y FROM a, b WHERE a.k = b.k": [
        (SIZE**2, SIZE**2 * 9 // 2, 0)
    ],
    "SELECT a.v, count(*) AS c FROM a JOIN b ON a.k = b.k WHERE b.v > 7 AND a.v < 2 GROUP BY a.v": [
        (0, SIZE**2 // 50),
        (1, SIZE**2 // 50),
    ],
    "SELECT count(*) AS c, sum(a.d) AS x FROM a, b WHERE a.k = b.k": [(SIZE**2, SIZE**2 / 2)],
    "SELECT DISTINCT a.v, b.v FROM a, b WHERE a.k = b.k AND a.v = 1 AND b.v < 2": [(1, 0), (1, 1)],
    "SELECT count(*) AS c, avg(y.v) AS x FROM a x, a y WHERE x.k = y.k": [(SIZE**2, 4.5)],
    "SELECT count(*) AS c FROM a x, b y, a z WHERE x.k = y.k AND y.k = z.k": [(SIZE**3,)],
    "SELECT count(*) AS c FROM a, b WHERE a.k + 1 = b.k + 1": [(SIZE**2,)],
    "SELECT count(*) AS c FROM a, b WHERE a.k BETWEEN b.k - 1 AND b.k + 1": [(SIZE**2,)],
    "SELECT count(*) AS c, count(b.v) AS x FROM a LEFT JOIN b ON a.k = b.k": [(SIZE**2, SIZE**2)],
    "SELECT count(*) AS c, max(r.v) AS x FROM a JOIN r ON a.k = r.k": [(SIZE * 20_000, 9)],
    "SELECT count(*) AS c FROM (SELECT k FROM a WHERE v < 5) q JOIN b ON q.k = b.k": [
        (SIZE**2 // 2,)
    ],
    "SELECT c FROM (SELECT b.v, count(*) AS c FROM a, b WHERE a.k = b.k GROUP BY b.v) q"
    " WHERE q.v = 3": [(SIZE**2 // 10,)],
    "SELECT count(*) AS c FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k": [
        (SIZE**2,)
    ],
}


@pytest.fixture
def hot(pond: Pond) -> Pond:
    for name in "ab":
        pond.execute(
            f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER, d DOUBLE) TIMESTAMP BY ts"
        )
        stamp = "2026-01-01 00:00:00"
        pond.ingest(name, [{"ts": stamp, "k": 7, "v": n % 10, "d": 0.5} for n in range(SIZE)])
    pond.execute(
        "CREATE RELATION r (k INTEGER, v INTEGER);"
        "INSERT INTO r SELECT 7, n % 10 FROM (SELECT unnest(range(20000)) AS n) q"
    )
    return pond


def test_what_is_counted_of_a_hot_key_is_answered_at_once(hot: Pond) -> None:
    for text, expected in ASKED.items():
        started = time.process_time()
        assert sorted(hot.ask(text).rows()) == expected, text
        assert time.process_time() - started < 3, text


def test_what_needs_the_pairs_ends_at_its_limit(hot: Pond) -> None:
    with pytest.raises(MillpondError, match="POND-405"):
        hot.ask("SELECT a.v, b.v FROM a, b WHERE a.k = b.k")
    hot.register(
        "SELECT sum(a.v * b.v % 3 + a.d * b.d) AS x, median(b.v) AS y FROM a, b WHERE a.k = b.k",
        "q",
        max_seconds=0.5,
    )
    with pytest.raises(MillpondError, match="POND-405"):
        hot.query("q").invoke()


def test_few_pairs_are_found_one_by_one(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even how they would be counted of lumps is written."""
    monkeypatch.setattr(evaluation.Evaluation, "_lumped", lambda self: pytest.fail("lumps"))
    for name in "ab":
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER) TIMESTAMP BY ts")
        stamp = "2026-01-01 00:00:00"
        pond.ingest(name, [{"ts": stamp, "k": n % 300} for n in range(3_000)])
    pond.execute("CREATE RELATION r (k INTEGER); INSERT INTO r VALUES (1), (2)")
    for text in (
        "SELECT count(*) AS c FROM a, b WHERE a.k = b.k",
        "SELECT count(*) AS c FROM a LEFT JOIN b ON a.k = b.k",
    ):
        assert pond.ask(text).rows() == [(30_000,)]
    assert pond.ask("SELECT count(*) AS c FROM a JOIN r ON a.k = r.k").rows() == [(20,)]
