"""Invocations whose windows workers read: the same answers, and the driver where they cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.runtime.scans.scan_task import read_groups, read_rows
from millpond.service.pond import Pond
from millpond.synopses.group_totals import Grouped
from millpond.testing.local_runtime import LocalRuntime
from millpond.testing.manual_clock import ManualClock
from millpond.work import Work, begin_work, finish_work

SECOND = 1_000_000
PUSHES, ROWS = 12, 40
#: Queries that workers read for, and what they read: rows, totals, totals by group.
SPREAD = {
    "rows": "SELECT v, name FROM s [RANGE 100 SECONDS] WHERE v % 3 = 0 ORDER BY v",
    "totals": "SELECT count(*) AS n, sum(v) AS s, max(x) AS m, avg(x) AS a FROM s WHERE v % 3 = 0",
    "groups": "SELECT name, count(*) AS n, sum(v) AS s FROM s WHERE v > 20 GROUP BY name",
    "sketch": "SELECT approx_count_distinct(v) AS n FROM s WHERE v % 2 = 0",
    "sample": "SELECT v FROM s SAMPLE(30) WHERE v > 5 ORDER BY v",
    "join": "SELECT a.v FROM s [RANGE 9 SECONDS] a JOIN s [RANGE 9 SECONDS] b ON a.v = b.v "
    "WHERE a.v % 2 = 0 AND b.v % 3 = 0 ORDER BY a.v",
}


class Workers(LocalRuntime):
    """Runs tasks as workers would, and says what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.jobs: list[Any] = []
        self.fail: Callable[[], None] = lambda: None

    def ask(
        self, task: Callable[[Any], Any], jobs: Sequence[Any], near: Sequence[str] = ()
    ) -> list[Any]:
        self.asked.append(len(jobs))
        self.jobs += jobs
        self.fail()
        return super().ask(task, jobs, near)


@pytest.fixture
def runtime() -> Workers:
    return Workers()


@pytest.fixture
def pond(tmp_path: Path, runtime: Workers) -> Iterator[Pond]:
    with Pond(tmp_path / "pond", runtime, clock=ManualClock(10_000 * SECOND)) as pond:
        pond.execute(
            "CREATE STREAM s (ts TIMESTAMP, v BIGINT, x DOUBLE, name STRING) TIMESTAMP BY ts"
        )
        for push in range(PUSHES):
            rows = [
                {
                    "ts": to_datetime((10 * push + i % 10) * SECOND),
                    "v": push * ROWS + i,
                    "x": i / 7,
                    "name": f"n{i % 5}",
                }
                for i in range(ROWS)
            ]
            pond.ingest("s", rows)
            pond.catch_up()
        yield pond


def spread(pond: Pond, runtime: Workers) -> None:
    runtime.spreads = True
    pond._components.invoker.scans.least_rows = 1


def answer(pond: Pond, text: str) -> list[dict[str, Any]]:
    return sorted(pond.ask(text).table.to_pylist(), key=str)


@pytest.mark.parametrize("name", SPREAD)
def test_answers_are_those_that_the_driver_computes(
    pond: Pond, runtime: Workers, name: str
) -> None:
    own = answer(pond, SPREAD[name])
    assert own
    spread(pond, runtime)
    assert answer(pond, SPREAD[name]) == own
    assert runtime.asked
    assert pond._components.invoker.scans.count == len(runtime.asked)


def test_a_scan_below_the_size_stays_in_the_driver(pond: Pond, runtime: Workers) -> None:
    runtime.spreads = True
    for least, asked in ((PUSHES * ROWS + 1, 0), (PUSHES * ROWS, 1)):
        pond._components.invoker.scans.least_rows = least
        answer(pond, SPREAD["totals"])
        assert len(runtime.asked) == asked


def test_what_is_matched_needs_no_scan(pond: Pond, runtime: Workers) -> None:
    for name in ("rows", "totals"):
        pond.register(SPREAD[name], name)
    pond.wait_until_matched()
    spread(pond, runtime)
    for name in ("rows", "totals"):
        assert pond.query(name).invoke().table.num_rows
    assert runtime.asked == []


def test_the_driver_reads_what_workers_cannot(pond: Pond, runtime: Workers) -> None:
    own = {name: answer(pond, text) for name, text in SPREAD.items()}
    spread(pond, runtime)

    def fail() -> None:
        raise RuntimeError("all executors are lost")

    runtime.fail = fail
    assert {name: answer(pond, text) for name, text in SPREAD.items()} == own
    assert len(runtime.asked) >= len(SPREAD)
    assert pond._components.invoker.scans.count == 0


def test_a_predicate_that_fails_says_what_it_says_in_the_driver(
    pond: Pond, runtime: Workers
) -> None:
    text = "SELECT v FROM s WHERE CAST(name AS BIGINT) > v"
    with pytest.raises(MillpondError) as own:
        pond.ask(text)
    spread(pond, runtime)
    with pytest.raises(MillpondError) as found:
        pond.ask(text)
    assert runtime.asked
    assert str(found.value) == str(own.value)


def test_a_worker_gives_no_more_bytes_and_groups_than_it_may(pond: Pond, runtime: Workers) -> None:
    spread(pond, runtime)
    answer(pond, SPREAD["rows"])
    job = runtime.jobs[-1]
    assert read_rows(job, ["v"], most=1 << 20) is not None
    assert read_rows(job, ["v"], most=100) is None
    grouped = Grouped(("name",), ())
    assert read_groups(job, grouped, most=5) is not None
    assert read_groups(job, grouped, most=4) is None


def test_a_request_that_is_over_ends_while_workers_read(pond: Pond, runtime: Workers) -> None:
    spread(pond, runtime)
    work = Work(1_000.0)
    runtime.fail = work.end
    token = begin_work(work)
    try:
        with pytest.raises(MillpondError, match="POND-405"):
            answer(pond, SPREAD["rows"])
    finally:
        finish_work(token)
