"""Conditions that are answered by a filter: which may be, and what the changes are then.

With the least share of false positives a filter of a few keys is wrong in none of these cases, but
for rows that count longer than their window by less than that share of it.
"""

# ruff: noqa: E501 - queries are as long as they are
from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from tests.integration.planner.test_every_reduction import END, find_exact_changes, make_world
from tests.tools.changes_play import WorldNames, run
from tests.unit.planner.approximate.test_safety import bind_text

from millpond.catalog.tolerance import Reduction
from millpond.cql import parse_query
from millpond.planner.approximate.filters import survey_filters
from millpond.planner.approximate.reductions import reduce_query, survey
from millpond.planner.bind.bind import bind
from millpond.planner.dataflow.plan import plan_changes

LEAST = Reduction(false_positives=0.01)

#: Queries, and what is in the way of a filter for each of their conditions; None if nothing is.
CONDITIONS: dict[str, list[str | None]] = {
    "SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.a = s.a)": [None],
    "SELECT a FROM s [RANGE 9 SECONDS] WHERE b = 1 AND a IN (SELECT a FROM t [RANGE 7 SECONDS])": [None],
    "SELECT a FROM s [NOW] WHERE NOT EXISTS (SELECT 1 FROM t [RANGE 5 SECONDS] WHERE t.a = s.a AND t.b > 0)": [None],
    "SELECT DISTINCT a FROM s [RANGE 9 SECONDS] WHERE (a IN (SELECT a FROM t [RANGE 7 SECONDS]))": [None],
    "SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t [RANGE 4 SECONDS] WHERE t.a = s.a AND t.b = s.b)"
    " AND NOT EXISTS (SELECT 1 FROM u [RANGE 4 SECONDS] WHERE u.a = s.a)": [None, None],
    "SELECT x.a FROM (SELECT a FROM s WHERE a IN (SELECT a FROM t [RANGE 6 SECONDS])) x JOIN u ON x.a = u.a": [None],
    "SELECT a FROM s WHERE a IN (SELECT a FROM t) EXCEPT SELECT a FROM u": [None],
    "SELECT a FROM u EXCEPT SELECT a FROM s WHERE a IN (SELECT a FROM t)": ["subtracted"],
    "SELECT count(*) FROM s WHERE a IN (SELECT a FROM t)": ["aggregate"],
    "SELECT a FROM s WHERE a IN (SELECT a FROM t) ORDER BY a LIMIT 2": ["LIMIT"],
    "SELECT a FROM s WHERE b = 1 OR a IN (SELECT a FROM t)": ["stand by itself"],
    "SELECT a FROM s WHERE NOT (b = 1 AND a IN (SELECT a FROM t))": ["stand by itself"],
    "SELECT a FROM s WHERE a NOT IN (SELECT a FROM t)": ["NULLs"],
    "SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.a < s.a)": ["more than keys"],
    "SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t)": ["no key"],
    "SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t [ROWS 5] WHERE t.a = s.a)": ["RANGE"],
    "SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE t.a = s.a)": ["RANGE"],
    "SELECT a FROM s WHERE a IN (SELECT max(a) FROM t)": ["elements of a stream"],
    "SELECT a FROM s WHERE a IN (SELECT t.a FROM t, u WHERE t.a = u.a)": ["one stream"],
    "ISTREAM(SELECT a FROM s WHERE a IN (SELECT a FROM t))": ["stream-valued"],
}  # fmt: skip


@pytest.mark.parametrize("text", CONDITIONS)
def test_which_conditions_may_be_filtered(text: str) -> None:
    found = survey_filters(bind_text(text))
    assert len(found) == len(CONDITIONS[text])
    for one, words in zip(found, CONDITIONS[text], strict=True):
        assert (one.against is None) == (words is None), one
        assert words is None or words in str(one.against)


def lengthen(text: str) -> str:
    """The query with its conditions' windows longer by as much as rows may count longer."""

    def longer(found: re.Match[str]) -> str:
        micros = int(found[2]) * 1_000_000
        return f"{found[1]}{micros + micros // 10_000} MICROSECONDS"

    return re.sub(r"(FROM [tu] \[RANGE )(\d+) SECONDS", longer, text)


def add_up(of: Any, at: int) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for change in of:
        if change.at <= at:
            found[change.row] += change.sign
    return +found


FILTERED = [text for text, found in CONDITIONS.items() if set(found) == {None}]
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("text", FILTERED)
def test_changes_are_those_of_a_window_that_is_a_little_longer(text: str, seed: int) -> None:
    """Rows of whole seconds leave in between: each instant of a second is exact but its first."""
    world = make_world(seed, "stu", "a INTEGER, b INTEGER", {"a": [0, 1, 1, None], "b": [0, 1, 2]})
    names = WorldNames(world)
    bound = bind(parse_query(text), text, names)
    reduced = reduce_query(bound, survey(bound), LEAST)
    assert reduced is not None
    plan = plan_changes(reduced.bound, names)
    assert any(node.name.startswith("filtered") for node in plan.nodes())
    cuts = [END - second * 1_000_000 for second in (95, 88, 80)]
    given, _ = run(world, [plan], [END])
    cut, _ = run(world, [plan], [*cuts, END])
    exact = find_exact_changes(world, text)
    longer = find_exact_changes(world, lengthen(text))
    ends = [END - second * 1_000_000 - 1 for second in range(60, 100)]
    for at in (*ends, *(end + 1 for end in ends), END):
        rows = add_up(given[plan.key], at)
        assert rows == add_up(cut[plan.key], at)
        if at in ends:
            assert rows == add_up(exact, at) == add_up(longer, at)
        elif "NOT EXISTS" not in text:
            assert add_up(exact, at) <= rows <= add_up(longer, at)
