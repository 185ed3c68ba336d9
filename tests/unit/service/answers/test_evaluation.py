"""Evaluation: when a query is evaluated over lumps, and what is done where that fails."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.answers import evaluation
from millpond.service.answers.evaluation import Evaluation
from millpond.service.pond import Pond

#: So many rows of one key on each side are more pairs than a quick evaluation holds.
SIZE = 500
STAMP = "2026-01-01 00:00:00"


@pytest.fixture
def hot(pond: Pond) -> Pond:
    for name in "ab":
        pond.execute(
            f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER, d DOUBLE, s STRING)"
            " TIMESTAMP BY ts"
        )
        rows = [{"ts": STAMP, "k": 7, "v": n, "d": 0.5, "s": "no number"} for n in range(SIZE)]
        pond.ingest(name, rows)
    return pond


@pytest.fixture
def over_lumps(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each SQL that is run, whether it is over lumps."""
    found: list[bool] = []
    run = Evaluation._run

    def note(self: Any, sql: str, *given: Any, **named: Any) -> Any:
        found.append("__m0_0" in sql)
        return run(self, sql, *given, **named)

    monkeypatch.setattr(Evaluation, "_run", note)
    return found


@pytest.mark.parametrize(
    ("text", "expected", "lumped"),
    [
        ("SELECT count(*) AS c FROM a, b WHERE a.k = b.k", SIZE**2, True),
        ("SELECT sum(a.d) AS x FROM a, b WHERE a.k = b.k", SIZE**2 / 2, False),
        ("SELECT count(*) AS c FROM a, b WHERE a.k = b.k LIMIT 1", SIZE**2, False),
        ("SELECT count(*) AS c FROM a, b WHERE a.k <= b.k", SIZE**2, False),
        ("SELECT median(a.v) AS c FROM a, b WHERE a.k = b.k", (SIZE - 1) / 2, False),
        ("SELECT count(*) AS c FROM a LEFT JOIN b ON a.k = b.k", SIZE**2, False),
    ],
)
def test_many_pairs_of_a_key_are_counted_over_lumps(
    hot: Pond, over_lumps: list[bool], text: str, expected: Any, lumped: bool
) -> None:
    """Not at once, if the answer could be another in its last digit."""
    assert hot.ask(text).rows() == [(expected,)]
    assert over_lumps == [lumped]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(a.d) AS x FROM a, b WHERE a.k = b.k",
        "SELECT count(*) / 2 AS c FROM a, b WHERE a.k <= b.k LIMIT 1",
    ],
)
def test_more_than_a_query_may_hold_are_counted_over_lumps(
    hot: Pond, over_lumps: list[bool], text: str
) -> None:
    hot.register(text, "q", max_memory="16MB")
    assert hot.query("q").invoke().rows() == [(SIZE**2 / 2,)]
    assert over_lumps == [True]


GUARDED = (
    "SELECT count(*) AS c, sum(CASE WHEN b.v < 0 THEN CAST(a.s AS INTEGER) + b.v END) AS x"
    " FROM a, b WHERE a.k = b.k"
)


@pytest.mark.parametrize("memory", ["16MB", "1GB"])
def test_what_only_lumps_fail_on_is_computed_of_pairs(
    hot: Pond, over_lumps: list[bool], memory: str
) -> None:
    hot.register(GUARDED, "q", max_memory=memory)
    assert hot.query("q").invoke().rows() == [(SIZE**2, None)]
    assert over_lumps == [True, False]


def test_what_fails_of_pairs_fails(hot: Pond) -> None:
    with pytest.raises(MillpondError, match="POND-404"):
        hot.ask(GUARDED.replace("b.v < 0", "b.v < 1"))


def test_what_duckdb_joins_for_long_is_counted_over_lumps(
    hot: Pond, over_lumps: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "SELECT count(*) AS c, sum(a.v - b.v) AS x FROM a LEFT JOIN b ON a.k = b.k"
    monkeypatch.setattr(evaluation, "_FEW_PAIRS", 1)
    assert hot.ask(text).rows() == [(SIZE**2, 0)]
    monkeypatch.setattr(evaluation, "_PATIENCE", 1e-9)
    monkeypatch.setattr(evaluation, "_PATIENCE_A_ROW", 0.0)
    text = "SELECT count(*) AS c FROM a x LEFT JOIN b y ON x.k = y.k LEFT JOIN a z ON y.k = z.k"
    assert hot.ask(text).rows() == [(SIZE**3,)]
    assert over_lumps == [False, False, True]
