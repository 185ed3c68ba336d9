"""Strategies and rewritings of dataflows: what plans look like, and that answers do not move."""

from __future__ import annotations

from textwrap import dedent

import pyarrow as pa
import pytest

from millpond.cql.print.dialect import parse_query
from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.errors import MillpondError
from millpond.operators.protocol.cost_model import ColumnEstimate, guess_selectivity
from millpond.operators.source import SEQUENCE
from millpond.planner.bind.bind import bind
from millpond.planner.dataflow.plan import Plan, plan_changes
from millpond.planner.optimize.statistics import GuessedStatistics, ObservedStatistics, StreamSample


def planned(names, text: str, **options) -> Plan:  # type: ignore[no-untyped-def]
    return plan_changes(bind(parse_query(text), text, names), names, **options)


class Rare(GuessedStatistics):
    """Knows how often two rows agree in a column, and how many come in a second."""

    def __init__(self, repeat: float = 1e-7, rate: float = 1_000.0) -> None:
        self._repeat, self._rate = repeat, rate

    def rate(self, stream: str) -> float:
        return self._rate

    def column(self, stream: str, column: str) -> ColumnEstimate:
        return ColumnEstimate(1 / self._repeat, self._repeat)


JOIN = (
    "SELECT DISTINCT f.carrier FROM flights [RANGE 1 HOUR] f, flights [RANGE 1 HOUR] g"
    " WHERE f.carrier = g.carrier"
)
#: Query 5 of the update-pattern paper (figure 6): a negation joined with a third window.
NEGATION = (
    "SELECT n.tailnum, g.delay FROM (SELECT f.tailnum, f.delay FROM flights [RANGE 1 HOUR] f"
    " WHERE NOT EXISTS (SELECT 1 FROM flights [RANGE 2 HOURS] h WHERE h.tailnum = f.tailnum)) n"
    " JOIN flights [RANGE 3 HOURS] g ON n.tailnum = g.tailnum"
)


def test_duplicates_are_eliminated_below_a_join(names) -> None:  # type: ignore[no-untyped-def]
    assert planned(names, JOIN).explained == dedent(
        """\
        join f.carrier = g.carrier  (WEAK, state: rows by key, both sides)
          distinct δ*, announcing  (WEAK, state: its output, by row)
            window [RANGE 1 HOUR]: carrier  (WEAKEST)
              stream flights  (MONOTONIC)
          distinct δ*, announcing  (as above)"""
    )


def test_a_negation_is_pulled_above_a_join(names) -> None:  # type: ignore[no-untyped-def]
    lines = planned(names, NEGATION, known=Rare(1e-9)).explained.split("\n")
    order = [line.split()[0] for line in lines]
    assert order.index("antijoin") < order.index("join")
    below = lines[order.index("join")]
    assert "(WEAK," in below
    as_written = planned(names, NEGATION, known=Rare(1e-9), rules=()).explained.split("\n")
    order = [line.split()[0] for line in as_written]
    assert order.index("join") < order.index("antijoin")


def test_negative_announces_at_every_window(names) -> None:  # type: ignore[no-untyped-def]
    lines = planned(names, JOIN, strategy="negative").explained.split("\n")
    assert not any("δ*" in line for line in lines)
    windows = [i for i, line in enumerate(lines) if line.strip().startswith("window")]
    assert windows
    seen = [i for i in windows if "(as above)" not in lines[i]]
    assert all(lines[i + 1].strip().startswith("kept elements") for i in seen)


def test_direct_is_refused_where_rows_leave_before_their_time(names) -> None:  # type: ignore[no-untyped-def]
    planned(names, JOIN, strategy="direct")
    with pytest.raises(MillpondError) as caught:
        planned(names, NEGATION, strategy="direct")
    assert caught.value.code == "CQL-214"
    assert "antijoin" in (caught.value.detail or "")


def test_direct_keeps_state_in_the_order_of_arrival_and_rewrites_nothing(names) -> None:  # type: ignore[no-untyped-def]
    assert planned(names, JOIN, strategy="direct").explained == dedent(
        """\
        expire  (WEAK, state: rows in order of arrival)
          distinct  (WEAK, state: its input in order of arrival, its output by row)
            join f.carrier = g.carrier  (WEAK, state: rows by key, both sides)
              window [RANGE 1 HOUR]: carrier  (WEAKEST)
                stream flights  (MONOTONIC)
              window [RANGE 1 HOUR]: carrier  (as above)"""
    )


PAIRS = (
    "SELECT f.tailnum, g.delay FROM flights [RANGE 1 HOUR] f, flights [RANGE 2 HOURS] g"
    " WHERE f.tailnum = g.tailnum"
)


def test_large_results_are_announced_from_the_windows_on(names) -> None:  # type: ignore[no-untyped-def]
    few = planned(names, PAIRS, known=Rare())
    assert few.explained.startswith("expire  (WEAK, state: 10 partitions")
    many = planned(names, PAIRS, known=Rare(1e-2))
    lines = [line.strip() for line in many.explained.split("\n")]
    assert [line.split()[0] for line in lines[:2]] == ["join", "window"]
    assert lines[2].startswith("kept elements")


def test_more_partitions_where_more_rows_wait(names) -> None:  # type: ignore[no-untyped-def]
    few = Rare(1e-9)
    assert "10 partitions by expiration" in planned(names, PAIRS, known=few).explained
    text = PAIRS.replace("1 HOUR", "1 DAYS").replace("2 HOURS", "1 DAYS")
    assert "50 partitions by expiration" in planned(names, text, known=few).explained
    assert "5 partitions" in planned(names, PAIRS, known=few, partitions=5).explained


def test_the_chosen_plan_is_expected_to_cost_no_more_than_any_other(names) -> None:  # type: ignore[no-untyped-def]
    for text in (JOIN, NEGATION, PAIRS):
        for known in (GuessedStatistics(), Rare(), Rare(1e-2), Rare(1e-6)):
            aware = planned(names, text, known=known).cost
            assert aware <= planned(names, text, known=known, rules=()).cost * (1 + 1e-9)
            assert aware <= planned(names, text, known=known, partitions=50).cost * (1 + 1e-9)


def test_what_runs_already_costs_nothing(names) -> None:  # type: ignore[no-untyped-def]
    written = planned(names, PAIRS, known=Rare())
    assert written.cost > 0
    known = Rare(1e-2)
    alone = planned(names, PAIRS, known=known)
    assert alone.root.key != written.root.key
    known.running = frozenset(node.key for node in written.nodes())
    assert planned(names, PAIRS, known=known).root.key == written.root.key


def test_samples_show_rates_values_and_what_passes() -> None:
    rows = pa.table(
        {"carrier": ["AA"] * 900 + [f"c{i}" for i in range(100)], "delay": [1.5] * 1000}
    )
    known = ObservedStatistics(
        {"flights": StreamSample(20.0, rows, 50_000)}, DuckDBScalars(), steps=2.0
    )
    assert (known.rate("flights"), known.rate("weather")) == (
        20.0,
        GuessedStatistics().rate("weather"),
    )
    carrier = known.column("flights", "carrier")
    assert carrier.repeat == pytest.approx(0.81, abs=0.01)
    assert 101 <= carrier.distinct <= 50_000
    assert known.column("flights", "delay").distinct == 1
    types = pa.schema([("c0", pa.string())])
    share = known.estimate_selectivity("flights", ("carrier",), types, ("c0 = 'AA'",))
    assert share == pytest.approx(0.9, abs=0.01)
    assert 0 < known.estimate_selectivity("flights", ("carrier",), types, ("c0 = 'ZZ'",)) < 0.01
    # What looks like a column in a text is none.
    share = known.estimate_selectivity("flights", ("carrier",), types, ("c0 <> 'c77'",))
    assert share == pytest.approx(0.999, abs=0.01)
    # What a sample or a ROWS window reads besides is not asked by the predicate.
    sampled = pa.schema([("c0", pa.string()), ("c1", pa.int64())])
    columns = ("carrier", SEQUENCE)
    share = known.estimate_selectivity("flights", columns, sampled, ("c0 = 'AA'",))
    assert share == pytest.approx(0.9, abs=0.01)
    unknown = known.estimate_selectivity("flights", columns, sampled, ("c1 > 5",))
    assert unknown == guess_selectivity(("c1 > 5",))


def test_equal_queries_have_equal_plans_whatever_they_call_things(names) -> None:  # type: ignore[no-untyped-def]
    one = planned(names, "SELECT carrier AS c FROM flights [NOW] WHERE delay > 5 AND origin = 'x'")
    other = planned(
        names, "SELECT f.carrier c FROM flights [NOW] f WHERE origin = 'x' AND f.delay > 5"
    )
    assert one.key == other.key
