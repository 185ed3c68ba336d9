"""What `eager` keeps is the answer: of every kind of query, after every epoch, however rows come.

The refresher's thread stands still: the test has it work where hypothesis says. Elements tie with
those before, come within DELAY, and come on one of several streams; relations are updated, also at
instants that have been answered for.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.service.answers.kept_answers import KeptAnswers
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000

DEFINITIONS = """
CREATE STREAM s (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 4 SECONDS;
CREATE STREAM t (ts TIMESTAMP, k INTEGER, w INTEGER) TIMESTAMP BY ts;
CREATE STREAM c (k INTEGER, v INTEGER);
CREATE RELATION r (k INTEGER, name VARCHAR)
"""

#: The queries, by name.
QUERIES = {
    "selection": "SELECT ts, v FROM s [RANGE 3 SECONDS] WHERE v > 1",
    "everything": "SELECT k, v FROM s",
    "steps": "SELECT v FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS]",
    "now": "SELECT v FROM s [NOW]",
    "last": "SELECT v FROM s [ROWS 3]",
    "last_of_each": "SELECT k, v FROM s [PARTITION BY k ROWS 2] WHERE v <> 2",
    "total": "SELECT count(*) AS n, sum(v) AS total, max(v) AS most FROM s [RANGE 3 SECONDS]",
    "groups": "SELECT k, count(*) AS n, min(v) AS least FROM s [RANGE 5 SECONDS] GROUP BY k",
    "listed": "SELECT k, list(v ORDER BY v) AS all_of FROM s [RANGE 3 SECONDS] GROUP BY k",
    "different": "SELECT DISTINCT k FROM s [RANGE 2 SECONDS]",
    "join": "SELECT a.v, b.w FROM s [RANGE 4 SECONDS] a JOIN t [RANGE 3 SECONDS] b ON a.k = b.k",
    "outer": "SELECT a.v, b.w FROM s [RANGE 2 SECONDS] a"
    " LEFT JOIN t [RANGE 2 SECONDS] b ON a.k = b.k",
    "itself": "SELECT a.v, b.v AS u FROM s [RANGE 2 SECONDS] a JOIN s [ROWS 2] b ON a.k = b.k",
    "named": "SELECT s.v, r.name FROM s [RANGE 4 SECONDS], r WHERE s.k = r.k",
    "unnamed": "SELECT v FROM s [RANGE 4 SECONDS] WHERE k NOT IN (SELECT k FROM r)",
    "without": "SELECT k FROM s [RANGE 3 SECONDS] EXCEPT ALL SELECT k FROM t [RANGE 3 SECONDS]",
    "either": "SELECT k FROM s [RANGE 3 SECONDS] UNION ALL SELECT k FROM t [ROWS 2]",
    "above": "SELECT v FROM s [RANGE 3 SECONDS] WHERE v > (SELECT avg(v) FROM s [RANGE 3 SECONDS])",
    "ranked": "SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v) AS n FROM s [RANGE 3 SECONDS]",
    "numbered": "SELECT v, rank() OVER (ORDER BY v) AS n FROM s [RANGE 3 SECONDS]",
    "sorted": "SELECT k, v FROM s [RANGE 3 SECONDS] ORDER BY v DESC, k",
    "greatest": "SELECT v FROM s [RANGE 3 SECONDS] ORDER BY v DESC LIMIT 2",
    "clocked": "SELECT k, count(*) AS n FROM c [RANGE 3 SECONDS] GROUP BY k",
    "both_clocks": "SELECT c.v, s.v AS u FROM c [RANGE 9 SECONDS], s [RANGE 9 SECONDS]"
    " WHERE c.k = s.k",
    "of_relations": "SELECT count(*) AS n FROM r",
}

_KEYS, _VALUES = st.integers(0, 2), st.integers(0, 4)
#: Rows of a stream: seconds after (or before) the last timestamp, key and value.
_ROWS = st.lists(st.tuples(st.integers(-3, 3), _KEYS, _VALUES), min_size=1, max_size=5)
_STEP = st.one_of(
    st.tuples(st.sampled_from("sstc"), _ROWS),
    st.tuples(st.just("r"), st.tuples(_KEYS, st.integers(0, 3))),
    st.tuples(st.just("forget"), _KEYS),
    st.tuples(st.just("anew"), st.none()),
    st.tuples(st.just("tick"), st.integers(1, 4)),
)
#: Whether the refresher does not work after a step.
_RESTS = st.sampled_from([False, False, False, True])


class Twins:
    """A pond in which every query is there twice: kept, and computed when it is asked for."""

    def __init__(self, store: Path) -> None:
        self.clock = ManualClock(1_000 * SECOND)
        self.pond = open_local(store, clock=self.clock)
        self.pond._components.refresher.stop()
        self.refresher = self.pond._components.refresher
        self.refresher.stopping = False
        self.pond.execute(DEFINITIONS)
        for name, text in QUERIES.items():
            self.pond.register(text, name, materialize="eager")
            self.pond.register(text, f"{name}_lazy")
        self.last = 1_000

    def play(self, step: tuple[str, Any]) -> None:
        kind, given = step
        match kind:
            case "tick":
                self.clock.set(self.clock() + given * SECOND)
            case "anew":
                self._answers.forget(self._answers.ids())
            case "r":
                key, back = given
                at = to_datetime((self.last - back) * SECOND)
                self._say(f"INSERT INTO r VALUES ({key}, 'n{back}') AT TIMESTAMP '{at}'")
            case "forget":
                self._say(f"DELETE FROM r WHERE k = {given}")
            case "c":
                self.pond.ingest("c", [{"k": k, "v": v} for _, k, v in given])
            case _:
                self.pond.ingest(kind, [self._row(kind, *row) for row in given])

    def _row(self, kind: str, after: int, k: int, v: int) -> dict[str, Any]:
        at = max(0, self.last + after)
        self.last = max(self.last, at)
        return {"ts": to_datetime(at * SECOND), "k": k, "v" if kind == "s" else "w": v}

    def _say(self, text: str) -> None:
        with suppress(MillpondError):  # an instant that cannot be told of any more
            self.pond.execute(text)

    def check(self) -> None:
        for name in QUERIES:
            kept, computed = (self.pond.query(n).invoke() for n in (name, f"{name}_lazy"))
            assert kept.as_of == computed.as_of, name
            assert kept.columns == computed.columns, name
            one, other = ([repr(row) for row in a.rows()] for a in (kept, computed))
            if name in ("sorted", "greatest"):
                assert one == other, name
            assert Counter(one) == Counter(other), name
            assert kept.table.schema.equals(computed.table.schema), name

    @property
    def _answers(self) -> KeptAnswers:
        return self.pond._components.invoker.kept_answers

    def served(self) -> dict[str, int]:
        answers = self._answers
        return {name: answers.of(self.pond.query(name).id).served for name in QUERIES}


def play(steps: list[tuple[tuple[str, Any], bool]]) -> None:
    with TemporaryDirectory() as folder:
        twins = Twins(Path(folder) / "store")
        try:
            for step, rests in steps:
                twins.play(step)
                if not rests:
                    twins.refresher.work()
                twins.check()
        finally:
            twins.pond.close()


@settings(max_examples=3, phases=[Phase.explicit, Phase.generate])
@given(st.lists(st.tuples(_STEP, _RESTS), min_size=3, max_size=8))
def test_kept_answers_are_the_answers(steps: list[tuple[tuple[str, Any], bool]]) -> None:
    play(steps)


@pytest.mark.slow
@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(st.lists(st.tuples(_STEP, _RESTS), min_size=5, max_size=14))
def test_kept_answers_are_the_answers_of_long_histories(
    steps: list[tuple[tuple[str, Any], bool]],
) -> None:
    play(steps)


def test_every_answer_is_served_from_what_is_kept(tmp_path: Path) -> None:
    """In the order of time, with the last instant again, nothing is computed anew."""
    twins = Twins(tmp_path / "store")
    try:
        for at in (1, 1, 0, 2):
            twins.play(("s", [(at, 1, 2), (0, 2, 3)]))
            twins.play(("t", [(0, 1, 4)]))
            twins.play(("c", [(0, 1, 4)]))
            twins.refresher.work()
            before = twins.served()
            twins.check()
            after = twins.served()
            assert [name for name in QUERIES if after[name] == before[name]] == []
    finally:
        twins.pond.close()
