"""Queries that tolerate are reduced and say so; all others are as they ever were."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest

from millpond.model.loss import Cause
from millpond.service.pond import Pond

GROUPS = 1_500
SCHEMA = "CREATE STREAM s (ts TIMESTAMP, g INTEGER, v DOUBLE) TIMESTAMP BY ts;"


def elements(count: int) -> list[dict[str, Any]]:
    """A second apart; values of several sizes."""
    chosen = random.Random(7)
    return [
        {
            "ts": f"2024-01-{1 + i // 86400:02} {i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}",
            "g": chosen.randrange(GROUPS),
            "v": chosen.choice([chosen.gauss(50, 20), chosen.random()]),
        }
        for i in range(count)
    ]


@pytest.fixture
def full(pond: Pond) -> Pond:
    """A pond in which a query is granted little."""
    pond.execute(SCHEMA)
    pond.ingest("s", elements(40_000))
    pond.catch_up()
    pond.alter_system(query_memory="200 KB")
    return pond


ESTIMATED = "SELECT g, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM s GROUP BY g"


def test_bounds_of_thousands_of_cells_hold_at_their_confidence(full: Pond) -> None:
    full.register(ESTIMATED, "q", tolerate="sample 5 %, error 99.9 % at 80 %")
    full.alter_system(query_memory="1 GB")
    exact = {row[0]: row for row in full.ask(ESTIMATED)}
    full.query("q").alter(tolerate="sample 25 %")
    full.alter_system(query_memory="200 KB")
    full.query("q").alter(tolerate="sample 5 %")
    answer = full.query("q").invoke()
    assert not answer.exact
    assert answer.bounds is not None
    assert set(answer.bounds.columns) == {"n", "total", "mean"}
    (loss,) = answer.loss
    assert loss.cause is Cause.SAMPLED
    assert loss.kept is not None
    assert 5 <= loss.kept < 100
    rows = answer.rows()
    assert 1_000 < len(rows) <= GROUPS
    for place, name in enumerate(("n", "total", "mean"), 1):
        cells = answer.bounds.columns[name]
        missed = 0
        for row, cell in zip(rows, cells, strict=True):
            assert cell is not None
            assert cell[0] <= row[place] <= cell[1]
            missed += not cell[0] <= exact[row[0]][place] <= cell[1]
        allowed = 1 - answer.bounds.confidence
        assert missed <= allowed * len(rows) + 4 * math.sqrt(len(rows) * allowed)
    # Each element is scaled by the same share: the whole is not biased.
    total = sum(row[1] for row in rows)
    assert abs(total - 40_000) < 4 * math.sqrt(40_000 * (1 - loss.kept / 100) / (loss.kept / 100))


def test_an_answer_whose_interval_is_too_wide_is_exact(full: Pond) -> None:
    whole = full.ask("SELECT count(*) AS n, sum(v) AS total FROM s")
    text = "SELECT count(*) AS n, sum(v) AS total FROM s"
    wide = full.register(text, tolerate="sample 5 %, error 0.001 %").invoke()
    assert wide.exact
    assert wide.rows() == whole.rows()
    narrow = full.register(text, tolerate="sample 5 %, error 40 %").invoke()
    assert not narrow.exact
    assert narrow.bounds is not None
    for place, (name, cells) in enumerate(narrow.bounds.columns.items()):
        (cell,) = cells
        value = narrow.rows()[0][place]
        assert cell is not None, name
        assert max(cell[1] - value, value - cell[0]) <= 0.4 * abs(value)


def test_no_interval_is_given_where_elements_are_missing_besides(pond: Pond) -> None:
    pond.execute(f"{SCHEMA.replace(';', '')} RETAIN 1 HOUR")
    pond.alter_system(query_memory="20 KB")
    whole = elements(20_000)
    for first in range(0, len(whole), 1_000):
        pond.ingest("s", whole[first : first + 1_000])
        pond.catch_up()
    pond.wait_until_matched()
    text = "SELECT count(*) AS n, sum(v) AS total, avg(v) AS mean FROM s [RANGE 1 HOUR]"
    kept_from = pond._components.log.version.clock(pond.streams()[0].id).kept_from
    assert kept_from
    sampled = pond.register(text, tolerate="sample 10 %")
    close = pond.register(text, tolerate="sample 10 %, error 50 %")
    for handle in (sampled, close):
        answer = handle.invoke()
        assert {loss.cause for loss in answer.loss} == {Cause.SAMPLED}
        assert answer.bounds is not None
    # Half of the window has expired, so nothing bounds what the exact answer would be.
    answer = sampled.invoke(kept_from + 1_800_000_000)
    assert {loss.cause for loss in answer.loss} == {Cause.EXPIRED, Cause.SAMPLED}
    assert answer.bounds is None
    # Nor can an interval be narrow enough: what there is is read whole.
    answer = close.invoke(kept_from + 1_800_000_000)
    assert {loss.cause for loss in answer.loss} == {Cause.EXPIRED}
    assert answer.bounds is None
    assert answer.rows()[0][0] == 1_800


@pytest.mark.parametrize("tolerate", ["window 10 minutes", "sample 5 %", "window 1 h, sample 60 %"])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT g, v FROM s [RANGE 10 HOURS] WHERE v > 60",
        "SELECT g, v FROM s WHERE v > 60",
        "SELECT DISTINCT g FROM s [RANGE 10 HOURS]",
        "SELECT a.g, b.v FROM s [RANGE 10 HOURS] a JOIN s [RANGE 1 HOUR] b USING (g)"
        " WHERE a.v > 80 AND b.v > 80",
    ],
)
def test_reduced_answers_and_changes_are_parts_of_exact_ones(
    full: Pond, text: str, tolerate: str
) -> None:
    whole = full.register(text, "whole", changes="from beginning")
    part = full.register(text, "part", changes="from beginning", tolerate=tolerate)
    exact, reduced = whole.invoke(), part.invoke()
    assert exact.exact
    assert not reduced.exact
    assert 0 < len(reduced) < len(exact)
    assert Counter(reduced.rows()) < Counter(exact.rows())
    causes = {"window": Cause.SHORTENED, "sample": Cause.SAMPLED}
    assert {loss.cause for loss in reduced.loss} == {
        cause for word, cause in causes.items() if word in tolerate
    }
    held: Counter[Any] = Counter()
    page = part.fetch(limit=1_000_000)
    assert {loss.cause for loss in page.loss} == {loss.cause for loss in reduced.loss}
    for change in page:
        held[change.row] += 1 if change.sign == "+" else -1
    assert all(count >= 0 for count in held.values())
    final = part.invoke(at=page.as_of)
    assert +held == Counter(final.rows())
    assert whole.fetch(limit=1).exact


def test_a_small_sample_is_part_of_a_greater_one(full: Pond) -> None:
    text = "SELECT g, v FROM s WHERE v > 60"
    full.alter_system(query_memory="1 KB")
    small, great = (
        full.register(f"{text} AND g >= {0}", tolerate=f"sample {share} %").invoke()
        for share in (5, 20)
    )
    assert 0 < len(small) < len(great)
    assert Counter(small.rows()) < Counter(great.rows())
