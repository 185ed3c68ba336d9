"""Expiration intervals: how often queries are advanced for expirations, and what that leaves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.runtime import advance_task, dataflow_cache
from millpond.runtime.advance_job import AdvanceJob
from millpond.service.changes.settings import ChangeSettings
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime, open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
#: A stream on system time: whatever the clock says is final.
STREAM = "CREATE STREAM s (k STRING, v BIGINT)"


class Counting(LocalRuntime):
    """Counts the jobs that advance derivations."""

    def __init__(self) -> None:
        super().__init__()
        self.advanced: list[AdvanceJob] = []

    def run(self, task: Any, jobs: Any, near: Any = ()) -> Any:
        self.advanced += jobs if task is advance_task.advance else []
        return super().run(task, jobs, near)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100 * SECOND)


@pytest.fixture
def runtime() -> Counting:
    return Counting()


@pytest.fixture
def pond(tmp_path: Path, clock: ManualClock, runtime: Counting) -> Iterator[Pond]:
    with Pond(tmp_path / "store", runtime, clock=clock) as pond:
        pond.execute(STREAM)
        yield pond


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many plans were made from kept segments, each time."""
    found: list[int] = []
    original = dataflow_cache._make

    def counted(job: AdvanceJob, plans: Any, *rest: Any) -> Any:
        found.append(len(plans))
        return original(job, plans, *rest)

    monkeypatch.setattr(dataflow_cache, "_make", counted)
    return found


def at(pond: Pond, clock: ManualClock, second: int, *pushed: int) -> None:
    """The clock at a second, or a bit later with elements that came then."""
    clock.set(second * SECOND)
    if pushed:
        pond.ingest("s", [{"k": "a", "v": v} for v in pushed])
        pond.catch_up()
        clock.set(second * SECOND + SECOND // 10)
    pond.catch_up()


def there(handle: Any) -> list[tuple[int, str, Any]]:
    """What has been delivered by itself: second, sign and value."""
    return [(when // SECOND, sign, v) for _, when, sign, v in handle.page().rows()]


def test_expirations_alone_wait_for_the_interval(
    pond: Pond, clock: ManualClock, runtime: Counting
) -> None:
    query = pond.register(
        "SELECT v FROM s [RANGE 5 SECONDS]", "q", eager_expiration=timedelta(seconds=10)
    )
    query.fetch()
    at(pond, clock, 101, 1)
    at(pond, clock, 103, 2)
    at(pond, clock, 104)
    came = [(101, "+", 1), (103, "+", 2)]
    assert there(query) == came
    runtime.advanced.clear()
    for second in range(105, 117):
        at(pond, clock, second)
    assert there(query) == came
    assert not runtime.advanced
    # What left at 106 may wait until 116; what left at 108 comes along.
    at(pond, clock, 117)
    left = [(106, "-", 1), (108, "-", 2)]
    assert there(query) == [*came, *left]
    assert len(runtime.advanced) == 1


def test_how_far_changes_are_known_is_said_exactly(pond: Pond, clock: ManualClock) -> None:
    query = pond.register("SELECT v FROM s [RANGE 5 SECONDS]", "q", eager_expiration="1 minute")
    query.fetch()
    at(pond, clock, 101, 1)
    at(pond, clock, 104)
    assert query.page().as_of == 104 * SECOND - 1
    at(pond, clock, 120)
    assert query.page().as_of == 106 * SECOND - 1
    assert pond._components.advancer.lag()[
        pond._components.log.version.change_log(query.id).id
    ] == pytest.approx(14)


def test_who_asks_is_given_everything(pond: Pond, clock: ManualClock) -> None:
    query = pond.register("SELECT v FROM s [RANGE 5 SECONDS]", "q", eager_expiration="1 hour")
    query.fetch()
    at(pond, clock, 101, 1)
    at(pond, clock, 110)
    assert there(query) == [(101, "+", 1)]
    assert query.fetch().rows()[-1][1:] == (106 * SECOND, "-", 1)
    at(pond, clock, 112, 2)
    at(pond, clock, 120)
    assert [c.sign for c in query.subscribe(follow=False)] == ["+", "-", "+", "-"]


def test_arrivals_bring_expirations_along(pond: Pond, clock: ManualClock) -> None:
    query = pond.register("SELECT v FROM s [RANGE 5 SECONDS]", "q", eager_expiration="1 hour")
    query.fetch()
    at(pond, clock, 101, 1)
    at(pond, clock, 110, 2)
    at(pond, clock, 111)
    assert there(query) == [(101, "+", 1), (106, "-", 1), (110, "+", 2)]


def test_derived_streams_do_not_wait(tmp_path: Path, clock: ManualClock) -> None:
    settings = ChangeSettings(eager_expiration=3600 * SECOND)
    with open_local(tmp_path / "store", clock, changes=settings) as pond:
        pond.execute(f"{STREAM}; CREATE STREAM d AS DSTREAM(SELECT v FROM s [RANGE 5 SECONDS])")
        at(pond, clock, 101, 1)
        at(pond, clock, 110)
        assert there(pond.derived("d")) == [(106, "+", 1)]


def test_the_advancer_sleeps_until_the_interval_is_over(pond: Pond, clock: ManualClock) -> None:
    query = pond.register("SELECT v FROM s [RANGE 5 SECONDS]", "q", eager_expiration="30 seconds")
    query.fetch()
    at(pond, clock, 101, 1)
    at(pond, clock, 102)
    assert pond._components.advancer._wait_seconds() == pytest.approx(106 + 30 - 102, abs=0.01)
    query.alter(eager_expiration="0 seconds")
    assert pond._components.advancer._wait_seconds() == pytest.approx(106 - 102, abs=0.01)


def test_queries_over_the_same_streams_keep_one_dataflow(
    pond: Pond, clock: ManualClock, runtime: Counting, made: list[int]
) -> None:
    short = pond.register("SELECT v FROM s [RANGE 5 SECONDS]", "short")
    long = pond.register("SELECT k FROM s [RANGE 50 SECONDS]", "long")
    late = pond.register("SELECT DISTINCT v FROM s [RANGE 7 SECONDS]", "late")
    short.fetch(), long.fetch()
    at(pond, clock, 101, 1)
    assert sum(made) == 2
    for second in range(102, 130, 3):
        at(pond, clock, second, *([second] if second % 2 else []))
    # Though expirations came to one of them only, both were advanced, and nothing made anew.
    assert sum(made) == 2
    assert {len(job.sinks) for job in runtime.advanced} == {2}
    late.fetch()
    at(pond, clock, 131, 5)
    at(pond, clock, 150)
    assert sum(made) == 3
    assert (
        runtime.advanced[-1].position
        == pond._components.log.version.clock(
            pond._components.log.version.change_log(long.id).id
        ).position
        or len(runtime.advanced[-1].sinks) == 3
    )


def test_queries_of_other_intervals_are_advanced_for_their_own(
    pond: Pond, clock: ManualClock, runtime: Counting, made: list[int]
) -> None:
    eager = pond.register("SELECT v FROM s [RANGE 5 SECONDS]", "eager")
    patient = pond.register(
        "SELECT v FROM s [RANGE 5 SECONDS]", "patient", eager_expiration="1 hour"
    )
    eager.fetch(), patient.fetch()
    for second in range(101, 140, 10):
        at(pond, clock, second, second)
        at(pond, clock, second + 8)
    assert sum(made) == 2
    assert there(eager)[-1] == (136, "-", 131)
    assert there(patient)[-1] == (131, "+", 131)
    assert patient.fetch().rows() == eager.fetch().rows()
    assert "shared by" not in patient.plan("shared").partition("changes (")[2]


def test_intervals_survive_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    with open_local(tmp_path / "store", clock) as pond:
        pond.execute(STREAM)
        query = pond.register(
            "SELECT v FROM s [RANGE 5 SECONDS]",
            "q",
            eager_expiration="10 seconds",
            lazy_expiration="2 minutes",
        )
        query.fetch()
        at(pond, clock, 101, 1)
        at(pond, clock, 110)
    with open_local(tmp_path / "store", clock) as pond:
        query = pond.query("q")
        assert query.describe()["options"] == {
            "eager_expiration": "10 SECONDS",
            "lazy_expiration": "2 MINUTES",
        }
        pond.catch_up()
        assert there(query) == [(101, "+", 1)]
        at(pond, clock, 117)
        assert there(query) == [(101, "+", 1), (106, "-", 1)]


def test_the_engine_has_settings_of_its_own(tmp_path: Path, clock: ManualClock) -> None:
    settings = ChangeSettings("negative", 10 * SECOND, 60 * SECOND)
    with open_local(tmp_path / "store", clock, changes=settings) as pond:
        pond.execute(STREAM)
        query = pond.register("SELECT DISTINCT v FROM s [RANGE 5 SECONDS]", "q")
        own = pond.register(
            "SELECT v FROM s [RANGE 5 SECONDS]", "own", strategy="aware", lazy_expiration="auto"
        )
        query.fetch(), own.fetch()
        found = pond.entities.one("derivation:q").settings
        assert found == {**settings.format(), "keep_changes": 1_000_000}
        assert pond.entities.one("derivation:own").settings["strategy"] == "aware"
        assert pond.entities.one("derivation:own").settings["lazy_expiration"] == "auto"
        assert pond.entities.one("derivation:own").settings["eager_expiration"] == "10 SECONDS"
        assert "within 10 SECONDS, strategy negative" in query.plan("rewritten")
        at(pond, clock, 101, 1, 1)
        at(pond, clock, 110)
        assert there(query) == [(101, "+", 1)]
        changed = pond.entities.set(
            "changes:all", {"strategy": "direct", "eager_expiration": "0 s"}
        )
        assert changed.settings == pond.entities.one("changes:all").settings
        assert changed.settings["lazy_expiration"] == "1 MINUTE"
        pond.catch_up()
        assert there(query) == [(101, "+", 1), (106, "-", 1)]
        assert "strategy direct" in query.plan("rewritten")
        # What the engine says is not said of queries it cannot be said of.
        negation = pond.register("SELECT v FROM s [NOW] EXCEPT ALL SELECT v FROM s", "n")
        negation.fetch()
        assert "strategy aware" in negation.plan("rewritten")
        with pytest.raises(MillpondError, match="direct"):
            negation.alter(strategy="direct")
        with pytest.raises(MillpondError, match="not negative"):
            pond.entities.set("changes:all", {"lazy_expiration": "-1 s"})
        altered = pond.entities.set("derivation:q", {"lazy_expiration": "90 s"})
        assert altered.settings["lazy_expiration"] == "90 SECONDS"
        assert pond.query("q").describe()["options"] == {"lazy_expiration": "90 SECONDS"}


WINDOWS = ["", "[NOW]", "[RANGE 5 SECONDS]", "[RANGE 4 SECONDS SLIDE 2 SECONDS]", "[ROWS 2]"]


@pytest.mark.parametrize("strategy", ["aware", "negative", "direct"])
@pytest.mark.parametrize("window", [*WINDOWS, "[PARTITION BY k ROWS 1]"])
def test_every_strategy_of_the_engine_computes_every_window(
    tmp_path: Path, strategy: str, window: str
) -> None:
    """Of queries that share a log, too, and those that came before the engine was told."""
    create = "CREATE QUERY q{0} WITH (changes = 'from beginning') AS SELECT k, v FROM s {1} "
    found = []
    for place, settings in enumerate((ChangeSettings(), ChangeSettings(strategy))):
        clock = ManualClock()
        with open_local(tmp_path / str(place), clock, changes=settings) as pond:
            pond.execute(STREAM)
            for v in range(3):
                pond.execute(create.format(v, window) + f"WHERE v > {v}")
            at(pond, clock, 101, 1, 2)
            at(pond, clock, 103, 3, 4)
            first = [pond.query(f"q{v}").fetch().rows() for v in range(3)]
            pond.entities.set("changes:all", {"strategy": strategy})
            at(pond, clock, 120, 2, 4)
            found.append((first, [pond.query(f"q{v}").fetch().rows() for v in range(3)]))
    assert found[0] == found[1]


def test_what_readers_were_told_is_behind_a_restart_too(tmp_path: Path, clock: ManualClock) -> None:
    with open_local(tmp_path / "store", clock) as pond:
        pond.execute(f"{STREAM}; CREATE RELATION r (k STRING, n INTEGER)")
        pond.register("SELECT n FROM s, r WHERE s.k = r.k", "q").fetch()
        at(pond, clock, 101, 1)
        at(pond, clock, 150)
        assert pond.query("q").fetch().as_of == 150 * SECOND - 1
    with open_local(tmp_path / "store", clock) as pond:
        pond.execute("INSERT INTO r VALUES ('a', 7) AT TIMESTAMP '1970-01-01 00:01:45'")
        at(pond, clock, 160)
        assert pond.query("q").fetch().rows() == [(1, 150 * SECOND, "+", 7)]
