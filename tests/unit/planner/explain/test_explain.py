"""EXPLAIN's texts, and the patterns of edges."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from millpond.cql.tree.explain_levels import Level
from millpond.errors import MillpondError
from millpond.model.patterns import Pattern
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.explain.explain import explain
from millpond.planner.explain.logical_plan import plan_logically

Binding = Callable[[str], BoundQuery]


def test_logical(binding: Binding) -> None:
    bound = binding(
        "SELECT carrier, count(*) AS n FROM flights [RANGE 1 HOUR WHERE dest = 'SFO'] "
        "WHERE delay > 60 GROUP BY carrier"
    )
    assert explain(bound, "logical") == dedent(
        """\
        project carrier, count(*) AS n  WEAK
          group-by carrier: count(*)    WEAK
            select delay > 60           WEAKEST
              window [RANGE 1 HOUR]     WEAKEST
                select dest = 'SFO'     MONOTONIC
                  stream flights        MONOTONIC"""
    )


def test_rewritten_tells_what_is_matched_and_what_is_left(binding: Binding) -> None:
    bound = binding(
        "SELECT carrier AS c FROM flights [RANGE 1 HOUR WHERE dest = 'SFO'] SAMPLE(10) "
        "WHERE delay > 60 AND lower(carrier) = 'aa' AND (origin = 'JFK' OR origin LIKE 'S%')"
    )
    assert explain(bound, "rewritten", lambda leaf, _: f"factor of {leaf.stream}") == dedent(
        """\
        projection carrier AS c
          leaf_0: carrier, origin, delay
            window [RANGE 1 HOUR], chosen at invocation
              factor of flights: delay > 60 (pushed)
              factor of flights: lower(carrier) = 'aa' (pushed)
              factor of flights: (origin = 'JFK' OR origin LIKE 'S%') (pushed)
              factor of flights: dest = 'SFO' (in the window)
              sample 10 %
              stream flights"""
    )


def test_shared_and_runtime_print_the_facts_they_are_given(binding: Binding) -> None:
    bound = binding("SELECT f.carrier FROM flights f JOIN planes p ON f.tailnum = p.tailnum")
    text = explain(
        bound, "shared", query="q", leaves=[{"slot": 3, "filters": {"delay": "2 %"}, "of": [1]}]
    )
    assert text.splitlines() == [
        "query: q",
        "residual (DuckDB, at invocation)",
        "  SELECT f.carrier FROM leaf_0 AS f JOIN rel_0 AS p ON f.tailnum = p.tailnum",
        "  leaf_0: carrier, tailnum",
        "    window [RANGE UNBOUNDED], chosen at invocation",
        "      stream flights",
        "        slot: 3",
        "        filters:",
        "          delay: 2 %",
        "        of:",
        "          1",
        "  rel_0: relation planes, tailnum",
    ]


def test_syntax_is_a_tree_of_the_text(binding: Binding) -> None:
    lines = explain(binding("SELECT carrier FROM flights [NOW] WHERE delay > 3"), "syntax")
    assert lines.splitlines()[0] == "Select"
    assert "  where: Where" in lines
    assert "Column delay" in lines


def test_every_level_takes_every_query(binding: Binding) -> None:
    # Only the service knows what may be approximated (test_explain_approximation.py).
    levels = [level for level in Level if level is not Level.APPROXIMATION]
    for text in (
        "SELECT 1",
        "ISTREAM(SELECT DISTINCT carrier FROM flights [ROWS 1])",
        "WITH c AS (SELECT * FROM flights) SELECT * FROM c a, c b WHERE a.ts = b.ts LIMIT 1",
        "SELECT carrier FROM flights WHERE delay IN (SELECT wind FROM weather) "
        "EXCEPT SELECT model FROM planes BEGIN NOW - 1 HOUR END NOW",
        "SELECT (SELECT max(wind) FROM weather) FROM flights QUALIFY row_number() OVER () < 3",
    ):
        for level in levels:
            assert explain(binding(text), level)


def test_an_unknown_level(binding: Binding) -> None:
    with pytest.raises(MillpondError) as caught:
        explain(binding("SELECT 1"), "physical")
    assert caught.value.code == "CQL-214"


PATTERNS = [
    ("SELECT * FROM flights", Pattern.MONOTONIC),
    ("SELECT * FROM flights [RANGE UNBOUNDED] WHERE delay > 3", Pattern.MONOTONIC),
    ("SELECT * FROM flights [RANGE 1 HOUR]", Pattern.WEAKEST),
    ("SELECT * FROM flights [NOW]", Pattern.WEAKEST),
    ("SELECT * FROM flights [RANGE 1 HOUR SLIDE 1 MINUTE]", Pattern.WEAKEST),
    ("SELECT * FROM flights [ROWS 3]", Pattern.STRICT),
    ("SELECT * FROM flights [PARTITION BY dest ROWS 3]", Pattern.STRICT),
    ("SELECT * FROM flights BEGIN NOW - 1 HOUR END NOW", Pattern.WEAKEST),
    ("SELECT * FROM flights BEGIN '2013-01-01' END NOW", Pattern.MONOTONIC),
    ("SELECT ts FROM flights UNION ALL SELECT ts FROM weather", Pattern.MONOTONIC),
    ("SELECT ts FROM flights UNION SELECT ts FROM weather", Pattern.MONOTONIC),
    (
        "SELECT ts FROM flights [RANGE 1 HOUR] UNION ALL SELECT ts FROM weather [RANGE 1 HOUR]",
        Pattern.WEAKEST,
    ),
    (
        "SELECT ts FROM flights [RANGE 1 HOUR] UNION ALL SELECT ts FROM weather [RANGE 2 HOURS]",
        Pattern.WEAK,
    ),
    (
        "SELECT ts FROM flights [ROWS 1] UNION ALL SELECT ts FROM weather [RANGE 2 HOURS]",
        Pattern.STRICT,
    ),
    ("SELECT 1 FROM flights f JOIN weather w ON f.ts = w.ts", Pattern.MONOTONIC),
    ("SELECT 1 FROM flights [NOW] f JOIN weather w ON f.ts = w.ts", Pattern.WEAK),
    ("SELECT 1 FROM flights f LEFT JOIN weather w ON f.ts = w.ts", Pattern.STRICT),
    ("SELECT 1 FROM flights f JOIN planes p ON f.tailnum = p.tailnum", Pattern.STRICT),
    ("SELECT 1 FROM flights f ANTI JOIN weather w ON f.ts = w.ts", Pattern.STRICT),
    ("SELECT DISTINCT dest FROM flights", Pattern.MONOTONIC),
    ("SELECT DISTINCT dest FROM flights [RANGE 1 HOUR]", Pattern.WEAK),
    ("SELECT count(*) FROM flights [ROWS 3]", Pattern.WEAK),
    ("SELECT dest FROM flights EXCEPT SELECT origin FROM weather", Pattern.STRICT),
    ("SELECT dest FROM flights INTERSECT SELECT origin FROM weather", Pattern.MONOTONIC),
    ("SELECT 1 FROM flights WHERE dest IN (SELECT origin FROM weather)", Pattern.MONOTONIC),
    ("SELECT 1 FROM flights WHERE dest NOT IN (SELECT origin FROM weather)", Pattern.STRICT),
    ("SELECT 1 FROM flights WHERE NOT EXISTS (SELECT 1 FROM weather)", Pattern.STRICT),
    ("SELECT * FROM flights LIMIT 3", Pattern.STRICT),
    ("RSTREAM(SELECT * FROM flights [ROWS 3])", Pattern.MONOTONIC),
]


@pytest.mark.parametrize(("text", "pattern"), PATTERNS)
def test_patterns(binding: Binding, text: str, pattern: Pattern) -> None:
    assert plan_logically(binding(text)).pattern is pattern
