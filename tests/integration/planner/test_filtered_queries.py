"""Queries that tolerate false positives: changes by a filter, which say so; answers are exact."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

from tests.unit.service.conftest import components_of

from millpond.model.loss import Cause
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

ASKED = (
    "SELECT k, v FROM s [RANGE 1 HOUR] WHERE {} (SELECT 1 FROM t [RANGE 1 HOUR] WHERE t.k = s.k)"
)


def add_up(pond: Pond, name: str) -> Counter[Any]:
    held: Counter[Any] = Counter()
    for _, _, sign, *row in pond.query(name).fetch(limit=1_000_000).rows():
        held[tuple(row)] += 1 if sign == "+" else -1
    return +held


def test_changes_are_filtered_and_say_so_and_answers_are_exact(tmp_path: Path) -> None:
    """Of 3,000 rows without a partner about 50 % are let through, by a filter of 4,000 keys."""
    with open_local(tmp_path / "store", ManualClock()) as pond:
        for name in "st":
            pond.execute(
                f"CREATE STREAM {name} (ts TIMESTAMP, k STRING, v INTEGER, note STRING)"
                " TIMESTAMP BY ts"
            )
        note = "x" * 200
        elements = [
            {"ts": f"1970-01-01 00:00:{n // 100:02}", "k": f"user {n}", "v": n, "note": note}
            for n in range(4_000)
        ]
        pond.ingest("t", elements)
        pond.ingest("s", [{**e, "k": f"user {e['v'] * 4 // 3}"} for e in elements[1_000:]])
        for name in "st":
            pond.execute(f"HEARTBEAT {name} AT TIMESTAMP '1970-01-01 00:00:50'")
        pond.execute("ALTER SYSTEM SET (query_memory = '1 MB')")
        for name, condition in (("some", "EXISTS"), ("no", "NOT EXISTS")):
            text = ASKED.format(condition)
            pond.register(text, name, tolerate="false positives 50 %", changes="from beginning")
            pond.register(f"{text} AND v >= 0", f"{name} exact", changes="from beginning")
        for name in ("some", "no"):
            reduced = pond.query(name)
            assert reduced.describe()["reduced"] == "false positives 50 %"
            answer, exact = reduced.invoke(), add_up(pond, f"{name} exact")
            assert answer.exact
            assert Counter(answer.rows()) == exact
            page, found = reduced.fetch(limit=1_000_000), add_up(pond, name)
            assert not page.exact
            (loss,) = page.loss
            assert (loss.stream, loss.cause, loss.wrong) == ("t", Cause.FILTERED, 50.0)
            assert "50 % of what is not" in str(loss)
            wrong, missing = (found - exact).total(), (exact - found).total()
            others = 3_000 - exact.total()
            if name == "some":
                assert missing == 0
                assert 0 < wrong <= 0.5 * others + 4 * (0.25 * others) ** 0.5
            else:
                assert wrong == 0
                assert 0 < missing <= 0.5 * exact.total() + 4 * (0.25 * exact.total()) ** 0.5
        (told,) = pond.execute('EXPLAIN APPROXIMATION "some"')
        explained = str(told.text)
        assert "EXISTS (… FROM t): a filter may answer it in the changes" in explained
        assert "predicted: 0 % of the rows missing" in explained


def test_changes_in_many_steps_and_over_restarts_are_exact_but_for_false_positives(
    tmp_path: Path,
) -> None:
    """No row of the other side leaves; of so few keys, none is found that is not there."""
    chosen = random.Random(7)
    texts = {
        name: f"SELECT k, v FROM s [RANGE 3 SECONDS] WHERE {condition}"
        " (SELECT 1 FROM t [RANGE 1000 SECONDS] WHERE t.k = s.k)"
        for name, condition in (("some", "EXISTS"), ("no", "NOT EXISTS"))
    }
    for part in range(3):
        with open_local(tmp_path / "store", ManualClock(1_000_000_000)) as pond:
            components_of(pond).advancer.ladder.reduced_weight = 1.0
            if not part:
                for name in "st":
                    pond.execute(
                        f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts"
                    )
                for name, text in texts.items():
                    pond.register(
                        text, name, tolerate="false positives 1 %", changes="from beginning"
                    )
            for second in range(1 + 10 * part, 11 + 10 * part):
                for name, many in (("t", 3), ("s", 40)):
                    rows = [
                        {"ts": f"1970-01-01 00:00:{second:02}", "k": chosen.randrange(200), "v": n}
                        for n in range(many)
                    ]
                    pond.ingest(name, rows)
                pond.catch_up()
                for name in texts:
                    pond.query(name).fetch()
            for name in texts:
                page = pond.query(name).fetch(limit=1_000_000)
                assert not page.exact
                for second in range(1, 10 + 10 * part):
                    held: Counter[Any] = Counter()
                    for _, at, sign, *row in page.rows():
                        if at <= second * 1_000_000:
                            held[tuple(row)] += 1 if sign == "+" else -1
                    answer = pond.query(name).invoke(at=second * 1_000_000)
                    assert +held == Counter(answer.rows()), (name, second)
