"""A followed query that tolerates it is reduced while it runs, and made whole again.

What is decided is recorded. At every instant the changes so far add up to the answer of the query
that was in force there, which another pond computes of a query that is written so; and another
pond that is told what was recorded has the same changes, however its elements come.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.unit.service.conftest import components_of

from millpond.catalog.objects import QueryDef
from millpond.catalog.tolerance import Reduction, parse_reduction
from millpond.model.loss import Cause
from millpond.model.time import BEGINNING, LAST, parse_instant, to_datetime
from millpond.service.changes.giving_way.reducing import Decision
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
WHY = re.compile(r'after (.*) the changes of "q" are reduced to (.*), before to .*')
SEED = zlib.crc32(b"s:0")


@dataclass(frozen=True)
class Case:
    """A query, what it tolerates, and the same query written as far reduced as that allows."""

    name: str
    tolerate: str
    whole: str
    reduced: str
    options: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case(
        "window",
        "window 2 seconds",
        "SELECT k, v FROM s [RANGE 9 SECONDS] WHERE v >= 0",
        "SELECT k, v FROM s [RANGE 2 SECONDS] WHERE v >= 0",
    ),
    Case(
        "sample",
        "sample 40 %",
        "SELECT k, v FROM s [RANGE 9 SECONDS]",
        "SELECT k, v FROM s [RANGE 9 SECONDS] SAMPLE(40)",
        {"seed": SEED},
    ),
    Case(
        "join",
        "window 2 seconds",
        "SELECT s.v, t.v AS w FROM s [RANGE 9 SECONDS], t [RANGE 9 SECONDS] WHERE s.k = t.k",
        "SELECT s.v, t.v AS w FROM s [RANGE 2 SECONDS], t [RANGE 2 SECONDS] WHERE s.k = t.k",
    ),
    Case(
        "unbounded",
        "sample 40 %",
        "SELECT k, v FROM s",
        "SELECT k, v FROM s [RANGE UNBOUNDED] SAMPLE(40)",
        {"seed": SEED},
    ),
    Case(
        "distinct",
        "window 3 seconds",
        "SELECT DISTINCT k FROM s [RANGE UNBOUNDED]",
        "SELECT DISTINCT k FROM s [RANGE 3 SECONDS]",
    ),
    # A second is ten slices: at whole seconds, a filter of few keys is exact.
    Case(
        "filter",
        "false positives 1 %",
        "SELECT k, v FROM s [RANGE 9 SECONDS] WHERE k IN (SELECT k FROM t [RANGE 10 SECONDS])",
        "SELECT k, v FROM s [RANGE 9 SECONDS] WHERE k IN (SELECT k FROM t [RANGE 10 SECONDS])",
    ),
]


@contextmanager
def opened(store: Path) -> Iterator[Pond]:
    with open_local(store, ManualClock(1_000 * SECOND)) as pond:
        if not pond.streams():
            for stream in "st":
                pond.execute(
                    f"CREATE STREAM {stream} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts"
                )
        yield pond


def push(pond: Pond, stream: str, rows: Sequence[tuple[int, int]]) -> None:
    """Push elements (second, key); their `v` tells the one from the other."""
    given = [{"ts": to_datetime(at * SECOND), "k": k, "v": at * 10 + k} for at, k in rows]
    pond.ingest(stream, given)


def changes_of(pond: Pond) -> list[tuple[Any, ...]]:
    return [row[1:] for row in pond.query("q").fetch(limit=100_000).rows()]


def add_up(changes: Sequence[tuple[Any, ...]], at: int) -> Counter[tuple[Any, ...]]:
    held: Counter[tuple[Any, ...]] = Counter()
    for when, sign, *row in changes:
        if when <= at:
            held[tuple(row)] += 1 if sign == "+" else -1
    assert all(count >= 0 for count in held.values())
    return +held


def read_decisions(pond: Pond) -> list[tuple[int, Reduction]]:
    """What was recorded: after which instant the changes are of which reduction."""
    found = []
    text = "SELECT why FROM system$actions WHERE action = 'reduce' AND name = 'q'"
    for (why,) in pond.ask(text).rows():
        match = re.fullmatch(
            r'after (.*) the changes of "q" are reduced to (.*), before to .*', why
        )
        assert match is not None
        is_first = match[1] == "beginning of time"
        at = BEGINNING - 1 if is_first else parse_instant(match[1])
        found.append((at, parse_reduction(match[2])))
    return found


def in_force(decisions: Sequence[tuple[int, Reduction]], at: int) -> Reduction:
    """The reduction of the changes at an instant."""
    return next((r for after, r in reversed(decisions) if after < at), Reduction())


class Recorded:
    """Decides as was recorded."""

    def __init__(self, decisions: Sequence[tuple[int, Reduction]]) -> None:
        self._decisions = decisions

    def __call__(self, query: QueryDef, after: int) -> Decision:
        upto = next((a for a, _ in self._decisions if a > after), LAST)
        return Decision(in_force(self._decisions, after + 1), upto)


def check(
    folder: Path, case: Case, steps: Sequence[tuple[str, bool, bool]], keys: str
) -> list[tuple[int, Reduction]]:
    """Run a query under steps: each may reduce or reopen, and pushes some elements.

    Args:
        folder: Where stores may lie.
        case: The query.
        steps: Of each second: the keys that come, whether the query is reduced from there on, and
            whether the pond is opened again before.
        keys: The keys of the elements of the other stream.

    Returns:
        What was decided.
    """
    register = {"tolerate": case.tolerate, "changes": "from beginning", "follow": True}
    fed: list[tuple[str, list[tuple[int, int]]]] = []
    runs = iter(range(len(steps) + 1))
    second = 0

    def run(part: Sequence[tuple[str, bool, bool]]) -> None:
        nonlocal second
        with opened(folder / "one") as pond:
            if next(runs) == 0:
                pond.register(case.whole, "q", **register)
            ladder = components_of(pond).advancer.ladder
            for some, reduces, _ in part:
                ladder.reduced_weight = 1.0 if reduces else 0.0
                second += 1
                for stream, chosen in (("t", keys), ("s", some)):
                    rows = [(second, int(k)) for k in chosen]
                    if rows:
                        push(pond, stream, rows)
                        fed.append((stream, rows))
                for stream in "st":
                    pond.execute(f"HEARTBEAT {stream} AT TIMESTAMP '1970-01-01 00:00:{second:02}'")
                pond.query("q").fetch()

    start = 0
    for number, (_, _, again) in enumerate(steps):
        if again and number:
            run(steps[start:number])
            start = number
    run(steps[start:])

    with opened(folder / "one") as pond:
        made, decisions = changes_of(pond), read_decisions(pond)
        page = pond.query("q").fetch(limit=100_000)
        was_reduced = any(r for _, r in decisions)
        assert page.exact is not was_reduced
        causes = {Cause.SHORTENED, Cause.SAMPLED, Cause.FILTERED}
        assert {loss.cause for loss in page.loss} <= causes
        stored = components_of(pond).log.version.change_log(pond.query("q").definition.id)
        assert stored is not None
        assert stored.derived is not None
        periods = [(after, parse_reduction(text)) for after, text in stored.derived.periods]
        assert periods[len(periods) - len(decisions) :] == decisions

    with opened(folder / "two") as pond:
        for stream, rows in fed:
            push(pond, stream, rows)
        for stream in "st":
            pond.execute(f"HEARTBEAT {stream} AT TIMESTAMP '1970-01-01 00:00:{second:02}'")
        pond.register(case.whole, "whole")
        pond.register(case.reduced, "reduced", **case.options)
        for at in range(0, second * SECOND, SECOND):
            name = "reduced" if in_force(decisions, at) else "whole"
            answer = pond.query(name).invoke(at=at)
            assert add_up(made, at) == Counter(answer.rows()), (at, name)

        components_of(pond).derivations.switches.decide = Recorded(decisions)
        pond.register(case.whole, "q", **register)
        assert changes_of(pond) == made
    return decisions


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_changes_are_those_of_the_query_in_force_at_every_instant(
    tmp_path: Path, case: Case
) -> None:
    steps = [
        ("0123", False, False), ("12", False, False), ("0", True, False), ("13", True, False),
        ("", True, False), ("0022", True, False), ("1", False, False), ("3", False, True),
        ("01", True, False), ("2", False, False),
    ]  # fmt: skip
    decisions = check(tmp_path, case, steps, "012")
    assert [bool(reduction) for _, reduction in decisions] == [True, False, True, False]


def test_a_clock_that_is_set_back_takes_reductions_back_too(tmp_path: Path) -> None:
    case = CASES[0]
    with opened(tmp_path / "store") as pond:
        pond.register(
            case.whole, "q", tolerate=case.tolerate, changes="from beginning", follow=True
        )
        ladder = components_of(pond).advancer.ladder
        for second in range(1, 7):
            ladder.reduced_weight = float(second > 3)
            push(pond, "s", [(second, 1)])
            pond.query("q").fetch()
        assert read_decisions(pond) != []
        ladder.reduced_weight = 0.0
        pond.execute("ALTER STREAM s RESET CLOCK TO TIMESTAMP '1970-01-01 00:00:02'")
        for second in range(3, 8):
            push(pond, "s", [(second, 2)])
        page = pond.query("q").fetch()
        assert page.exact
        made = [row[1:] for row in page.rows()]
        for at in range(0, 7 * SECOND, SECOND):
            assert add_up(made, at) == Counter(pond.query("q").invoke(at=at).rows())


ONE_STEP = st.tuples(
    st.text("0123", max_size=4), st.booleans(), st.integers(0, 5).map(lambda n: n == 0)
)


def test_state_that_outgrows_its_room_reduces_the_lightest_who_tolerate_it(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The ladder by itself: by measured bytes, lightest first, and whole again with more room."""
    if request.config.getoption("--under-pressure") is not None:
        pytest.skip("it needs a state of the size that it has without constraints")
    text = "SELECT s.v, t.v AS w FROM s [RANGE 40 SECONDS], t [RANGE 40 SECONDS] WHERE s.k = t.k"
    queries = {
        "light": (1, "window 2 seconds"),
        "heavy": (5, "window 2 seconds"),
        "strict": (1, ""),
    }

    def steps(pond: Pond) -> list[tuple[Any, ...]]:
        asked = "SELECT name, before, after FROM system$actions WHERE action = 'reduce'"
        return pond.ask(asked).rows()

    def feed(pond: Pond, first: int) -> None:
        for second in range(first, first + 3):
            for stream in "st":
                push(pond, stream, [(second, k) for k in range(300)])
            pond.catch_up()

    with opened(tmp_path / "store") as pond:
        for name, (weight, tolerate) in queries.items():
            options = {"tolerate": tolerate} if tolerate else {}
            differing = text if name == "strict" else f"{text} AND s.v + t.v < {10**6 + weight}"
            pond.register(
                differing, name, weight=weight, changes="from beginning", follow=True, **options
            )
        feed(pond, 1)
        assert steps(pond) == []
        held = pond.entities.one("memory:all").figures["bytes"]
        # State grows to more than half of the room.
        pond.execute(f"ALTER SYSTEM SET (state_limit = '{held // 300} KB')")
        feed(pond, 4)
        assert steps(pond)[:2] == [("state", 0.0, 1.0), ("light", 0.0, 0.95)]
        assert not pond.query("light").fetch(limit=100_000).exact
        assert pond.query("strict").fetch(limit=100_000).exact
        pond.execute("ALTER SYSTEM SET (state_limit = '1 GB')")
        feed(pond, 7)
        feed(pond, 10)
        assert {name: after for name, _, after in steps(pond)} == dict.fromkeys(
            {name for name, _, _ in steps(pond)}, 0.0
        )
        assert "strict" not in {name for name, _, _ in steps(pond)}
        for name in queries:
            page = [row[1:] for row in pond.query(name).fetch(limit=1_000_000).rows()]
            at = page[-1][0]
            assert add_up(page, at) == Counter(pond.query(name).invoke(at=at).rows())


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(steps=st.lists(ONE_STEP, min_size=2, max_size=14), keys=st.text("0123", max_size=2))
def test_changes_are_those_of_the_query_in_force_at_every_instant_of_any_history(
    tmp_path_factory: pytest.TempPathFactory,
    case: Case,
    steps: list[tuple[str, bool, bool]],
    keys: str,
) -> None:
    check(tmp_path_factory.mktemp("run"), case, steps, keys)
