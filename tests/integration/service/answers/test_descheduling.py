"""An `auto` query that nobody asks for is not matched, and answers as if it were."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from millpond.model.time import to_datetime
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
HOUR = 3_600 * SECOND

#: Queries with predicates; the last has none, and so nothing to be matched.
QUERIES = {
    "selection": "SELECT v FROM s [RANGE 1 HOUR] WHERE v > 2",
    "same": "SELECT ts FROM s [ROWS 4] WHERE v > 2",
    "total": "SELECT count(*) AS n FROM s WHERE v > 1",
    "join": "SELECT a.v FROM s [RANGE 1 HOUR] a JOIN t [RANGE 1 HOUR] b ON a.v = b.v WHERE a.v > 1",
    "all_of_it": "SELECT v FROM t",
}
_MATCHED = ("selection", "same", "total", "join")

_STEP = st.one_of(
    st.tuples(st.sampled_from("st"), st.integers(0, 5)),
    st.tuples(st.just("idle"), st.integers(1, 70)),
    st.tuples(st.just("ask"), st.sampled_from(sorted(QUERIES))),
    st.tuples(st.just("reopen"), st.none()),
    st.tuples(st.just("kill"), st.none()),
)


class Twins:
    """A pond in which every query is there twice: `auto`, and always matched."""

    def __init__(self, store: Path) -> None:
        self.clock = ManualClock(1_000 * SECOND)
        self._store = store
        self.pond = self._open()
        self.pond.execute(
            "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
            "CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts"
        )
        for name, text in QUERIES.items():
            self.pond.register(text, name, materialize="auto")
            self.pond.register(text, f"{name}_lazy")
        self.at = 0

    def _open(self) -> Pond:
        return open_local(self._store, clock=self.clock)

    def reopen(self) -> None:
        self.pond.close()
        self.pond = self._open()

    def kill(self) -> None:
        """Go on with what the store's files are at this moment, without closing it."""
        left = self._store
        self._store = left.with_name(f"{left.name}+")
        shutil.copytree(left, self._store)
        self.pond.close()
        self.pond = self._open()

    def play(self, kind: str, given: object) -> None:
        match kind:
            case "idle":
                assert isinstance(given, int)
                self.clock.set(self.clock() + given * 60 * SECOND)
            case "ask":
                self.check(str(given))
            case "reopen":
                self.reopen()
            case "kill":
                self.kill()
            case _:
                self.push(kind, given)

    def push(self, stream: str, v: object) -> None:
        self.at += 1
        self.pond.ingest(stream, [{"ts": to_datetime(self.at * SECOND), "v": v}])
        self.pond.wait_until_matched()

    def check(self, *names: str) -> None:
        for name in names:
            asked, computed = (self.pond.query(n).invoke() for n in (name, f"{name}_lazy"))
            assert asked.as_of == computed.as_of, name
            assert Counter(asked.rows()) == Counter(computed.rows()), name

    def matched(self) -> list[str]:
        """The queries that have slots."""
        version = self.pond._components.log.version
        return [
            name
            for name in QUERIES
            if any(leaf.slot is not None for leaf in version.leaves(self.pond.query(name).id))
        ]


def test_who_is_not_asked_for_an_hour_is_descheduled_until_somebody_asks(tmp_path: Path) -> None:
    twins = Twins(tmp_path / "store")
    try:
        twins.clock.set(twins.clock() + 2 * SECOND)
        for v in (1, 3, 5):
            twins.push("s", v)
            twins.push("t", v)
        twins.clock.set(twins.clock() + HOUR // 2)
        twins.check("same")
        twins.pond.query("total").fetch()
        assert sorted(twins.matched()) == sorted(_MATCHED)
        twins.clock.set(twins.clock() + HOUR // 2 + SECOND)
        twins.push("s", 4)
        assert twins.matched() == ["same", "total"], "one was asked for, one is followed"
        runtime = twins.pond.query("selection").plan("runtime")
        assert "not matched, as nobody asks since" in runtime
        for begin_again in (twins.reopen, twins.kill):
            begin_again()
            twins.push("s", 5)
            assert twins.matched() == ["same", "total"]
        twins.check("selection")
        twins.pond.wait_until_matched()
        assert twins.matched() == ["selection", "same", "total"]
        version = twins.pond._components.log.version
        (leaf,) = version.leaves(twins.pond.query("selection").id)
        for segment in version.segments(version.find("s").id):
            assert max(m.upto for m in version.matches(segment.id)) > leaf.slot, "caught up"
        twins.check(*QUERIES)
    finally:
        twins.pond.close()


def play(steps: list[tuple[str, object]]) -> None:
    with TemporaryDirectory() as folder:
        twins = Twins(Path(folder) / "store")
        try:
            for kind, given in steps:
                twins.play(kind, given)
            twins.check(*QUERIES)
        finally:
            twins.pond.close()


@settings(max_examples=3, phases=[Phase.explicit, Phase.generate])
@given(st.lists(_STEP, min_size=4, max_size=9))
def test_no_answer_changes(steps: list[tuple[str, object]]) -> None:
    play(steps)


@pytest.mark.slow
@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(st.lists(_STEP, min_size=8, max_size=24))
def test_no_answer_changes_in_long_histories(steps: list[tuple[str, object]]) -> None:
    play(steps)
