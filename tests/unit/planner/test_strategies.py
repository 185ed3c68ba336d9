"""Strategies and rewritings of dataflows: what plans look like, and that answers do not move."""

from __future__ import annotations

from textwrap import dedent

import pytest

from millpond.cql.dialect import parse_query
from millpond.errors import MillpondError
from millpond.planner.bind import bind
from millpond.planner.dataflow import Plan, plan_changes


def planned(names, text: str, **options) -> Plan:  # type: ignore[no-untyped-def]
    return plan_changes(bind(parse_query(text), text, names), names, **options)


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
        expire  (WEAK, state: 10 partitions by expiration)
          join f.carrier = g.carrier  (WEAK, state: rows by key, both sides)
            distinct δ*  (WEAK, state: its output and who takes over, by row)
              window [RANGE 1 HOUR]  (WEAKEST)
                stream flights  (MONOTONIC)
            distinct δ*  (as above)"""
    )


def test_a_negation_is_pulled_above_a_join(names) -> None:  # type: ignore[no-untyped-def]
    lines = planned(names, NEGATION).explained.split("\n")
    order = [line.split()[0] for line in lines]
    assert order.index("antijoin") < order.index("join")
    below = lines[order.index("join")]
    assert "(WEAK," in below
    as_written = planned(names, NEGATION, rules=()).explained.split("\n")
    order = [line.split()[0] for line in as_written]
    assert order.index("join") < order.index("antijoin")


def test_negative_announces_at_every_window(names) -> None:  # type: ignore[no-untyped-def]
    lines = planned(names, JOIN, strategy="negative").explained.split("\n")
    assert not any("δ*" in line for line in lines)
    windows = [i for i, line in enumerate(lines) if line.strip().startswith("window")]
    assert windows
    assert all(lines[i - 1].strip().startswith("expire") for i in windows)


def test_direct_is_refused_where_rows_leave_before_their_time(names) -> None:  # type: ignore[no-untyped-def]
    planned(names, JOIN, strategy="direct")
    with pytest.raises(MillpondError) as caught:
        planned(names, NEGATION, strategy="direct")
    assert caught.value.code == "CQL-214"
    assert "antijoin" in (caught.value.detail or "")


def test_many_premature_expirations_announce_above_the_negation(names) -> None:  # type: ignore[no-untyped-def]
    text = (
        "SELECT DISTINCT delay FROM flights [RANGE 1 HOUR] f WHERE NOT EXISTS"
        " (SELECT 1 FROM flights [RANGE 2 HOURS] h WHERE h.tailnum = f.tailnum)"
    )
    plan = planned(names, text, premature=0.6, partitions=50)
    assert "50 partitions by expiration" in plan.explained


def test_equal_queries_have_equal_plans_whatever_they_call_things(names) -> None:  # type: ignore[no-untyped-def]
    one = planned(names, "SELECT carrier AS c FROM flights [NOW] WHERE delay > 5 AND origin = 'x'")
    other = planned(
        names, "SELECT f.carrier c FROM flights [NOW] f WHERE origin = 'x' AND f.delay > 5"
    )
    assert one.key == other.key
