"""Updates of non-retroactive relations that are dated back to what has been delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.service.conftest import OpenPond, components_of

from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.service.changes.advancer import Advancer
from millpond.service.ingest import relations
from millpond.service.pond import Pond

SCHEMA = """
    CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts;
    CREATE NON RETROACTIVE RELATION r (k STRING, n INTEGER);
    INSERT INTO r VALUES ('a', 1);
    CREATE QUERY q WITH (changes = 'from beginning') AS
        SELECT s.v, r.n FROM s [RANGE 100 SECONDS] JOIN r ON s.k = r.k;
"""


def push(pond: Pond, *elements: tuple[int, str, int]) -> None:
    pond.ingest("s", [{"ts": f"1970-01-01 00:00:{t:02}", "k": k, "v": v} for t, k, v in elements])
    pond.catch_up()


def at(second: int) -> str:
    return f"AT TIMESTAMP '1970-01-01 00:00:{second:02}'"


def delivered(pond: Pond) -> Counter[tuple[int, int]]:
    """The bag that all changes so far add up to."""
    bag: Counter[tuple[int, int]] = Counter()
    for _, _, sign, *row in pond.query("q").fetch().rows():
        bag[tuple(row)] += 1 if sign == "+" else -1
    return +bag


@pytest.mark.parametrize(
    "update",
    [
        "INSERT INTO r VALUES ('a', 7)",
        "DELETE FROM r WHERE k = 'a'",
        "UPDATE r SET n = 8 WHERE k = 'a'",
    ],
)
@pytest.mark.parametrize("reopened", [False, True])
def test_what_was_delivered_stays(open_pond: OpenPond, update: str, reopened: bool) -> None:
    pond = open_pond()
    pond.execute(SCHEMA)
    push(pond, (1, "a", 1), (3, "a", 3), (5, "b", 5))
    assert delivered(pond) == {(1, 1): 1, (3, 1): 1}
    if reopened:
        pond = open_pond()
    with pytest.raises(MillpondError, match=r'(?s)POND-413.*"q".*00:00:03.*00:00:05\'') as error:
        pond.execute(f"{update} {at(3)}")
    assert "Nothing was changed" in str(error.value)
    pond.execute(f"{update} {at(5)}")  # the instant is not over
    push(pond, (6, "a", 6), (9, "c", 9))
    answer = pond.query("q").invoke(at=pond.query("q").fetch().as_of).rows()
    assert delivered(pond) == Counter(answer)


def test_what_nobody_follows_may_be_dated_back(open_pond: OpenPond) -> None:
    pond = open_pond()
    pond.execute(SCHEMA.replace("WITH (changes = 'from beginning')", ""))
    push(pond, (1, "a", 1), (3, "a", 3), (5, "b", 5))
    pond.execute(f"INSERT INTO r VALUES ('a', 7) {at(3)}")
    assert sorted(pond.query("q").invoke().rows()) == [(1, 1), (3, 1), (3, 7)]


def test_where_no_element_has_come_since_nothing_was_attached(open_pond: OpenPond) -> None:
    pond = open_pond()
    pond.execute(SCHEMA)
    push(pond, (1, "a", 1))
    pond.execute(f"HEARTBEAT s {at(20)}")
    pond.catch_up()
    assert delivered(pond) == {(1, 1): 1}
    pond.execute(f"INSERT INTO r VALUES ('a', 7) {at(2)}")
    push(pond, (20, "a", 2), (21, "b", 2))
    assert delivered(pond) == {(1, 1): 1, (2, 1): 1, (2, 7): 1}


class Overtaken:
    """A runtime that has something happen after a job was done and before it is committed."""

    def __init__(self, runtime: Any, happens: Callable[[], None]) -> None:
        self._runtime, self._happens = runtime, happens
        self.jobs = 0
        self.prefer = runtime.prefer

    def run(self, task: Any, jobs: Any, near: Any = ()) -> Any:
        done = self._runtime.run(task, jobs, near)
        self.jobs += 1
        if self.jobs == 1:
            self._happens()
        return done


def hold_advancer(pond: Pond) -> Advancer:
    """The advancer, whose rounds the test makes itself from now on."""
    advancer = components_of(pond).advancer
    advancer.stop()
    advancer.stopping = False
    return advancer


UPDATES = [
    "INSERT INTO r VALUES ('a', 7)",
    "DELETE FROM r WHERE k = 'a'",
    "UPDATE r SET n = 8 WHERE k = 'a'",
]


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("fold", [False, True])
def test_an_update_that_overtakes_a_job_is_seen_by_it(
    open_pond: OpenPond, monkeypatch: pytest.MonkeyPatch, update: str, fold: bool
) -> None:
    """The update commits while the job that delivers its instant runs: the job is planned again."""
    if fold:
        monkeypatch.setattr(relations, "_DELTAS", 2)
    pond = open_pond()
    pond.execute(SCHEMA)
    push(pond, (1, "a", 1))
    delivered(pond)
    advancer = hold_advancer(pond)
    runtime = Overtaken(advancer._runtime, lambda: pond.execute(f"{update} {at(3)}"))
    advancer._runtime = runtime
    pond.ingest("s", [element(2, "a", 2), element(3, "a", 3), element(5, "b", 5)])
    while advancer.step():
        pass
    assert runtime.jobs == 2
    assert delivered_now(pond) == answered(pond)
    for second in (6, 101, 102, 104, 106):  # what was attached expires as it came
        pond.ingest("s", [element(second, "b", 1)])
        while advancer.step():
            pass
        assert delivered_now(pond) == answered(pond)


@pytest.mark.parametrize("update", UPDATES)
def test_a_job_that_overtakes_an_update_has_it_refused(
    open_pond: OpenPond, monkeypatch: pytest.MonkeyPatch, update: str
) -> None:
    """The job commits between an update's check and its commit: the update is checked again."""
    pond = open_pond()
    pond.execute(SCHEMA)
    push(pond, (1, "a", 1))
    delivered(pond)
    advancer = hold_advancer(pond)
    pond.ingest("s", [element(3, "a", 3), element(5, "b", 5)])
    state = components_of(pond).relations_state
    right, checks = state._followers.check_instant, []

    def check(*given: Any) -> None:
        right(*given)
        checks.append(given)
        while len(checks) == 1 and advancer.step():
            pass

    monkeypatch.setattr(state._followers, "check_instant", check)
    files = sorted(path.name for path in (state._store / "relations").rglob("*"))
    with pytest.raises(MillpondError, match="POND-413"):
        pond.execute(f"{update} {at(3)}")
    assert len(checks) == 1
    assert sorted(path.name for path in (state._store / "relations").rglob("*")) == files
    assert delivered_now(pond) == answered(pond)


def element(second: int, k: str, v: int) -> dict[str, Any]:
    return {"ts": to_datetime(second * 1_000_000), "k": k, "v": v}


def delivered_now(pond: Pond) -> Counter[tuple[int, int]]:
    """As `delivered`, without waiting for the advancer."""
    bag: Counter[tuple[int, int]] = Counter()
    query = pond.query("q").definition
    for _, _, sign, *row in components_of(pond).subscriptions.fetch(query, wait=False).rows():
        bag[tuple(row)] += 1 if sign == "+" else -1
    return +bag


def answered(pond: Pond) -> Counter[tuple[int, int]]:
    """The answer at the last instant whose changes are delivered."""
    parts = components_of(pond)
    version = parts.log.version
    log = version.change_log(pond.query("q").definition.id)
    assert log is not None
    return Counter(pond.query("q").invoke(at=version.clock(log.id).position).rows())
