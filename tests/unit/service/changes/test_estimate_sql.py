"""Aggregates with a budget that are followed: estimates, exact ones where the budget is enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.service.answers.partial.test_partial_answers import STREAMS, SUMMARIES, rows_of

from millpond.engine.promising.estimating import MATCHED, REST, VALUED
from millpond.engine.promising.step import FamilyState
from millpond.errors import MillpondError
from millpond.runtime import look_task
from millpond.runtime.look_state import write_state
from millpond.service.changes import looks
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

ITEM = "SUMMARY(si).ESTIMATE.COUNT(item)"
#: Followed aggregates, without their preferences.
AGGREGATES = {
    "counted": ("SELECT COUNT(*) AS n, COUNT(price) AS m FROM s [RANGE 5 SECONDS] WHERE item < 9",
                f"DESC {ITEM}"),
    "summed": ("SELECT SUM(item) AS n, SUM(price) AS m, COUNT(*) FROM s [RANGE 2100 MILLISECONDS]",
               f"DESC {ITEM} * item"),
    "averaged": ("SELECT AVG(price * 2) AS share, AVG(item) FROM s [RANGE 7 SECONDS]"
                 " WHERE price > 20", f"WEIGHTED {ITEM}"),
    "middle": ("SELECT MEDIAN(price) AS m, MEDIAN(ts) FROM s [RANGE 4 SECONDS] WHERE item <> 2",
               f"WEIGHTED {ITEM}"),
    "everything": ("SELECT COUNT(*), SUM(item), AVG(price) FROM s", f"ASC {ITEM}"),
    "sliding": ("SELECT SUM(price), COUNT(*), MEDIAN(item) FROM s"
                " [RANGE 6 SECONDS SLIDE 4 SECONDS]", f"DESC {ITEM}"),
    "before": ("SELECT COUNT(*), SUM(item) FROM s BEGIN NOW - INTERVAL 5 SECONDS"
               " END NOW - INTERVAL 2 SECONDS", f"DESC {ITEM}"),
    "since": ("SELECT COUNT(*), AVG(item) FROM s BEGIN TIMESTAMP '1970-01-01 00:00:11' END NOW",
              f"DESC {ITEM}"),
    "instant": ("SELECT COUNT(*), AVG(ts) FROM s [NOW]", f"DESC {ITEM}"),
}  # fmt: skip
END = "HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:50'"
SECONDS, LINE = 30, 250_000


def follow(pond: Pond, budget: str) -> None:
    for name, (text, preference) in AGGREGATES.items():
        query = f"{text} WITH PREFERENCE {preference} BUDGET '{budget}'"
        pond.register(query, name, changes="from beginning")
        pond.query(name).fetch()


def rows(seed: int, count: int) -> pa.Table:
    return rows_of(seed, count, SECONDS)[0].sort_by("ts")


def read(pond: Pond, name: str) -> list[tuple[Any, ...]]:
    """All estimates of a query: instant, columns, priority and share."""
    found = pond.query(name).fetch()
    while found.as_of < 49_900_000:
        found = pond.query(name).fetch()
    assert all(sign == "+" for _, _, sign, *_ in found.rows())
    return [(at, *row) for _, at, _, *row in found.rows()]


def answer_at(pond: Pond, name: str, at: int) -> tuple[Any, ...]:
    return tuple(pond.query(name).invoke(at=at).rows()[0])


def assert_close(found: tuple[Any, ...], wanted: tuple[Any, ...], where: object) -> None:
    assert len(found) == len(wanted), where
    for one, other in zip(found, wanted, strict=True):
        if isinstance(other, float) and one is not None:
            assert math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9), where
        else:
            assert one == other, where


@pytest.fixture
def ready(pond: Pond) -> Pond:
    pond.execute(STREAMS + SUMMARIES)
    return pond


def test_with_budget_enough_each_estimate_is_the_exact_aggregate(ready: Pond) -> None:
    follow(ready, "100000 probes")
    given = rows(1, 400)
    for start in (0, 130, 260):
        ready.ingest("s", given.slice(start, 130 if start < 260 else 140))
    ready.execute(END)
    for name in AGGREGATES:
        found = read(ready, name)
        assert len(found) > 30, name
        for at, *columns, _, share in found:
            assert share == 1.0
            assert_close(tuple(columns), answer_at(ready, name, at), (name, at))
        assert ready.query(name).fetch().exact


def test_estimates_come_where_the_window_changes_and_at_no_other_step(ready: Pond) -> None:
    follow(ready, "100000 probes")
    table = rows(2, 60)
    ready.ingest("s", table)
    ready.execute(END)
    stamps = table["ts"].cast(pa.int64()).to_pylist()
    steps = [at // LINE for at, *_ in read(ready, "counted")]
    changes = [*stamps, *(ts + 5_000_000 for ts in stamps)]
    assert steps == sorted({at // LINE for at in changes})


def test_a_small_budget_gives_estimates_that_say_so(ready: Pond) -> None:
    follow(ready, "0.5 probes")
    ready.ingest("s", rows(3, 900))
    ready.execute(END)
    for name in AGGREGATES:
        found = read(ready, name)
        shares = [row[-1] for row in found]
        assert all(0 <= share <= 1 for share in shares), name
        if name != "instant":
            assert 0.2 < sum(shares) / len(shares) < 0.95, name
            assert not ready.query(name).fetch().exact
    averages = [
        (at, float(row[0]), answer_at(ready, "averaged", at)[0])
        for at, *row in read(ready, "averaged")
        if row[0] is not None and row[-1] > 0.3
    ]
    assert len(averages) > 30
    errors = [abs(found / wanted - 1) for _, found, wanted in averages if wanted]
    assert sum(errors) / len(errors) < 0.1


@settings(max_examples=2)
@given(
    st.lists(st.floats(0.05, 0.95), max_size=3, unique=True).map(sorted),
    st.lists(st.floats(0.05, 0.95), min_size=1, max_size=2, unique=True).map(sorted),
)
@pytest.mark.slow
def test_runs_with_probes_repeat_over_cuts_and_restarts(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[float], restarts: list[float]
) -> None:
    whole = _run(tmp_path_factory.mktemp("whole"), [], [])
    found = _run(tmp_path_factory.mktemp("cut"), cuts, restarts)
    for name, every in whole.items():
        assert len(every) > 30, name
        assert [row[0] for row in found[name]] == [row[0] for row in every], name
        for one, other in zip(found[name], every, strict=True):
            assert_close(one, other, name)


def _run(path: Path, cuts: list[float], restarts: list[float]) -> dict[str, list[tuple[Any, ...]]]:
    table, every = rows(4, 300), [*sorted({*cuts, *restarts}), 1.0]
    pond = open_local(path / "store")
    try:
        pond.execute(STREAMS + SUMMARIES)
        follow(pond, "0.7 probes")
        begin = 0
        for end in every:
            upto = int(end * table.num_rows)
            pond.ingest("s", table.slice(begin, upto - begin))
            begin = upto
            if end in restarts:
                pond.catch_up()
                pond.close()
                pond = open_local(path / "store")
        pond.execute(END)
        return {name: read(pond, name) for name in AGGREGATES}
    finally:
        pond.close()


def test_followed_from_now_on_the_window_before_counts(ready: Pond) -> None:
    table = rows(5, 400)
    ready.ingest("s", table.slice(0, 200))
    follow_text, preference = AGGREGATES["averaged"]
    query = f"{follow_text} WITH PREFERENCE {preference} BUDGET '100000 probes'"
    ready.register(query, "averaged")
    ready.query("averaged").fetch()
    ready.ingest("s", table.slice(200, 200))
    ready.execute(END)
    found = read(ready, "averaged")
    assert len(found) > 30
    for at, *columns, _, share in found:
        assert share == 1.0
        assert_close(tuple(columns), answer_at(ready, "averaged", at), at)


def test_nan_infinity_and_an_empty_window_leave_no_trace(ready: Pond) -> None:
    text = "SELECT SUM(price) AS s, AVG(price) AS a, COUNT(*) AS n FROM s [RANGE 1 SECONDS]"
    query = f"{text} WITH PREFERENCE DESC {ITEM} BUDGET '10 probes'"
    ready.register(query, "q", changes="from beginning")
    ready.query("q").fetch()
    prices = [1.0, float("nan"), float("inf"), -0.0, 2.5]
    stamps = [n * 3_000_000 for n in range(5)]
    items = pa.array([1, 2, None, 3, 3], pa.int32())
    ts = pa.array(stamps, pa.timestamp("us"))
    ready.ingest("s", pa.table({"ts": ts, "item": items, "price": prices}))
    ready.execute(END)
    sums = [(row[1], row[3]) for row in read(ready, "q")]
    assert [n for _, n in sums] == [1, 0] * 5
    assert [s for s, _ in sums[1::2]] == [None] * 5
    assert math.isnan(sums[2][0])
    assert [sums[0][0], *(s for s, _ in sums[4::2])] == [1.0, math.inf, 0.0, 2.5]


def test_one_aggregate_that_cannot_be_computed_stops_alone(ready: Pond) -> None:
    for name, value in (
        ("good", "item"),
        ("bad", "CAST('x' || item AS INTEGER)"),
        ("also", "item"),
    ):
        query = f"SELECT SUM({value}) AS s FROM s [RANGE 2 SECONDS] WITH PREFERENCE DESC {ITEM}"
        ready.register(f"{query} BUDGET '9 probes'", name, changes="from beginning")
        ready.query(name).fetch()
    ready.ingest("s", rows(6, 50))
    ready.execute(END)
    assert read(ready, "good") == read(ready, "also") != []
    with pytest.raises(MillpondError, match="POND-402"):
        ready.query("bad").fetch()


RANKED = (
    "SELECT SUM(item) AS n, SUM(s.item) AS again, SUM(price) AS other FROM s [RANGE 8 SECONDS]"
    f" WHERE price < 60 WITH PREFERENCE DESC {ITEM} * item BUDGET '0.2 probes'"
)


def _push_ranked(pond: Pond) -> None:
    """Sums of the column that ranks, followed over two jobs; what ranks highest comes first."""
    pond.register(RANKED, "ranked", changes="from beginning")
    pond.query("ranked").fetch()
    table = rows(8, 1_500)
    for start in (0, 700):
        pond.ingest("s", table.slice(start, 800 if start else 700))
        pond.catch_up()
        pond.query("ranked").fetch()
    pond.execute(END)


def _find_errors(pond: Pond) -> list[float]:
    """Estimate by estimate, the sum as a multiple of the exact one; of windows that are full."""
    found = [row for row in read(pond, "ranked") if 8_000_000 < row[0] < 30_000_000]
    assert all(row[1] == row[2] for row in found)
    return [row[1] / answer_at(pond, "ranked", row[0])[0] for row in found[::6]]


def test_the_rest_of_a_sum_of_what_ranks_is_no_multiple_of_the_greatest_values(
    ready: Pond, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of answers in parts; scaled by the share, the sums are far too large."""
    _push_ranked(ready)
    errors = _find_errors(ready)
    assert len(errors) > 10
    assert max(abs(error - 1) for error in errors) < 0.3
    assert sum(errors) / len(errors) == pytest.approx(1, abs=0.08)
    make_look = looks.make_look
    monkeypatch.setattr(
        "millpond.service.changes.new_derivations.make_look",
        lambda *given: replace(look, known=()) if (look := make_look(*given)) else None,
    )
    with open_local(tmp_path / "scaled") as other:
        other.execute(STREAMS + SUMMARIES)
        _push_ranked(other)
        scaled = _find_errors(other)
    assert sum(scaled) / len(scaled) > 1.3


def test_what_an_earlier_version_kept_of_a_sum_is_scaled(
    ready: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its panes do not say what the values of the rest add up to; they leave with the window."""

    def write(state: FamilyState, numbers: Sequence[int], at: int) -> Any:
        for number, kept in enumerate(state.panes):
            if kept is not None and at < 16_000_000 and kept.num_rows:
                state.panes[number] = kept.drop_columns([REST, VALUED, MATCHED])
        return write_state(state, numbers, at)

    monkeypatch.setattr(look_task, "write_state", write)
    _push_ranked(ready)
    found = read(ready, "ranked")
    first_job = max(row[0] for row in found if row[0] < 16_000_000)
    late = [row for row in found if first_job + 9_000_000 < row[0] < 30_000_000]
    assert len(late) > 10
    for row in late[::6]:
        assert row[1] == pytest.approx(answer_at(ready, "ranked", row[0])[0], rel=0.3)
