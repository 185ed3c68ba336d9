"""Precision is carried from the sources to the answer by what each operator says."""

from __future__ import annotations

import pytest
from tests.unit.planner.conftest import StaticNames, stream

from millpond.cql import parse_query
from millpond.operators.protocol.precision import EXACT, Precision
from millpond.planner.approximate.precision import PrecisionModel, mark_leaves
from millpond.planner.bind.bind import bind
from millpond.planner.dataflow.plan import plan_changes
from millpond.planner.optimize.statistics import GuessedStatistics

NAMES = StaticNames(
    *(stream(n, name, "ts TIMESTAMP, a INTEGER, b INTEGER") for n, name in enumerate("stu", 1))
)


def predict(text: str, *shares: float) -> Precision | None:
    bound = bind(parse_query(text), text, NAMES)
    known = GuessedStatistics()
    plan = plan_changes(mark_leaves(bound), NAMES, known=known)
    return PrecisionModel.of(plan.root, known, [100.0] * len(shares)).predict(shares)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("SELECT a + 1 AS x FROM s [RANGE 1 HOUR] WHERE b > 0", 0.5),
        ("SELECT s.a FROM s [RANGE 1 HOUR], t [RANGE 1 HOUR] WHERE s.a = t.a", 0.75),
        ("SELECT x.a FROM s [RANGE 1 HOUR] x, s [RANGE 1 HOUR] y WHERE x.a = y.b", 0.75),
        ("SELECT a FROM s [RANGE 1 HOUR] UNION ALL SELECT a FROM t [RANGE 1 HOUR]", 0.5),
        # 1,000 elements in the window, and 1,000 values that are guessed: (1 - e^-½) / (1 - e^-1).
        ("SELECT DISTINCT a FROM s [RANGE 1 HOUR]", 0.3775),
        ("SELECT a FROM s [RANGE 1 HOUR] INTERSECT SELECT a FROM t [RANGE 1 HOUR]", 0.6125),
        ("SELECT a FROM s [RANGE 1 HOUR] WHERE a IN (SELECT a FROM t [RANGE 1 HOUR])", 0.6888),
        ("SELECT a FROM s [RANGE 1 HOUR] EXCEPT SELECT a FROM t [RANGE 1 HOUR]", 0.3775),
        ("SELECT s.a FROM s [RANGE 1 HOUR] ANTI JOIN t [RANGE 1 HOUR] ON s.a = t.a", 0.5),
    ],
)  # fmt: skip
def test_every_operator_that_has_a_formula(text: str, missing: float) -> None:
    shares = (0.5,) * (2 if any(f" {word} " in text for word in ("t", "y")) or "," in text else 1)
    found = predict(text, *shares)
    assert found is not None
    assert found.missing == pytest.approx(missing, abs=1e-3)
    assert (found.wrong > 0) == ("EXCEPT" in text or "ANTI" in text)
    assert predict(text, *(1.0 for _ in shares)) == EXACT


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a, count(*) AS n FROM s [RANGE 1 HOUR] GROUP BY a",
        "SELECT a FROM s [ROWS 10]",
        "SELECT a FROM s [RANGE 1 HOUR] ORDER BY a LIMIT 3",
        "SELECT a FROM s [RANGE 1 HOUR] INTERSECT ALL SELECT a FROM t [RANGE 1 HOUR]",
    ],
)
def test_what_has_no_formula_is_not_predicted(text: str) -> None:
    assert predict(text, 0.5, 0.5) is None
    assert predict(text, 1.0, 1.0) == EXACT


def test_a_right_side_that_is_whole_makes_no_wrong_rows() -> None:
    text = "SELECT a FROM s [RANGE 1 HOUR] EXCEPT SELECT a FROM t [RANGE 1 HOUR]"
    found = predict(text, 0.5, 1.0)
    assert found is not None
    assert found.wrong == 0
