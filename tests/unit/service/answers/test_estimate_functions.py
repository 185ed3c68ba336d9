"""Estimates in SELECT lists, and their errors, against exact counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond


@pytest.fixture
def filled(pond: Pond) -> Pond:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, item INTEGER, price DOUBLE, who VARCHAR) TIMESTAMP BY ts;"
        "CREATE SUMMARY i ON s (item) WITH GRANULARITY 8 SECONDS AND COLLAPSE (4, 3);"
        "CREATE SUMMARY h ON s (price) WITH GRANULARITY 8 SECONDS AND COLLAPSE (4, 3)"
        " USING HISTOGRAM;"
        "CREATE SUMMARY w ON s (who) WITH GRANULARITY 8 SECONDS AND COLLAPSE (4, 3);"
        "CREATE SUMMARY a ON s (price) WITH GRANULARITY 8 SECONDS AND COLLAPSE (4, 3) USING SAMPLE"
    )
    random = np.random.default_rng(5)
    count = 500
    pond.ingest(
        "s",
        pa.table(
            {
                "ts": np.sort(random.integers(0, 60_000_000, count)).astype("datetime64[us]"),
                "item": pa.array(random.integers(0, 20, count), mask=random.random(count) < 0.1),
                "price": random.random(count) * 50,
                "who": random.choice(["ann", "bob"], count),
            }
        ),
    )
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:01:01'")
    pond.catch_up()
    return pond


def test_estimates_stand_beside_exact_values(filled: Pond) -> None:
    answer = filled.ask(
        "SELECT item, count(*) AS n, SUMMARY(i).ESTIMATE.COUNT(item) AS about,"
        " SUMMARY(i).ESTIMATE.ERROR(item) AS off FROM s WHERE item IS NOT NULL GROUP BY item"
    )
    assert not answer.exact
    assert answer.estimated == ("i",)
    assert len(answer) == 20
    for _, n, about, off in answer.rows():
        assert abs(n - about) <= off
    exact = filled.ask("SELECT item FROM s")
    assert exact.exact


def test_questions_asked_once(filled: Pond) -> None:
    rows = Counter(filled.ask("SELECT who, item IS NULL AS lacks FROM s").rows())
    known = sum(count for (_, lacks), count in rows.items() if not lacks)
    bobs = sum(count for (who, _), count in rows.items() if who == "bob")
    (found,) = filled.ask(
        "SELECT SUMMARY(i).ESTIMATE.TOTAL() AS t, SUMMARY(w).ESTIMATE.COUNT('bob') AS b,"
        " SUMMARY(w).ESTIMATE.FREQUENCY('bob') AS f, SUMMARY(i).ESTIMATE.COUNT(NULL) AS n,"
        " SUMMARY(i).ESTIMATE.CONFIDENCE() AS c"
    ).rows()
    assert found[0] == known  # NULL is no value
    assert found[1] == pytest.approx(bobs, abs=1)
    assert found[2] == pytest.approx(bobs / 500, abs=0.01)
    assert found[3] is None
    assert 0 < found[4] <= 1


@pytest.mark.parametrize("name", ["h", "a"])
def test_ranges(filled: Pond, name: str) -> None:
    prices = [price for (price,) in filled.ask("SELECT price FROM s").rows()]
    ((about, off, share),) = filled.ask(
        f"SELECT SUMMARY({name}).ESTIMATE.COUNT(10.0, 20.0), SUMMARY({name}).ESTIMATE.ERROR(10.0,"
        f" 20.0), SUMMARY({name}).ESTIMATE.FREQUENCY(10.0, 20.0)"
    ).rows()
    exact = sum(10 <= price <= 20 for price in prices)
    assert abs(about - exact) <= off + 1e-6
    assert share == pytest.approx(about / 500)


def test_an_estimate_can_be_compared_outside_of_the_query_that_computes_it(filled: Pond) -> None:
    text = "SELECT DISTINCT item, SUMMARY(i).ESTIMATE.COUNT(item) AS n FROM s"
    every = filled.ask(text).rows()
    some = filled.ask(f"SELECT item FROM ({text}) WHERE n > 22").rows()
    assert Counter(some) == Counter((item,) for item, n in every if n is not None and n > 22)


def test_answers_with_estimates_are_not_kept(filled: Pond) -> None:
    text = "SELECT count(*) AS n, SUMMARY(i).ESTIMATE.TOTAL() AS t FROM s"
    handle = filled.register(text, "kept", materialize="eager")
    before = handle.invoke().rows()
    filled.ingest("s", [{"ts": "1970-01-01 00:02:00", "item": 1, "price": 1.0, "who": "ann"}])
    filled.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:03:00'")
    filled.catch_up()
    after = handle.invoke().rows()
    assert (before[0][0], after[0][0]) == (500, 501)
    assert after[0][1] != before[0][1]


def test_other_answers_do_not_change(filled: Pond) -> None:
    text = "SELECT item, count(*) AS n FROM s GROUP BY item"
    before = Counter(filled.ask(text).rows())
    filled.execute("DROP SUMMARY i; DROP SUMMARY h; DROP SUMMARY w; DROP SUMMARY a")
    assert Counter(filled.ask(text).rows()) == before
    with pytest.raises(MillpondError, match='CQL-201: no summary "i"'):
        filled.ask("SELECT SUMMARY(i).ESTIMATE.TOTAL()")


def test_estimates_beside_what_may_grow_are_refused(filled: Pond) -> None:
    with pytest.raises(MillpondError, match="CQL-224"):
        filled.ask("SELECT SUMMARY(i).ESTIMATE.TOTAL(), repeat(who, 1000000) FROM s")


@pytest.mark.parametrize(
    "statement",
    [
        "FETCH e",
        "FETCH i",
        "CREATE STREAM d AS ISTREAM(SELECT SUMMARY(i).ESTIMATE.COUNT(item) AS n FROM s)",
    ],
)
def test_estimates_are_not_followed(filled: Pond, statement: str) -> None:
    filled.register("SELECT SUMMARY(i).ESTIMATE.COUNT(item) AS n FROM s", "e")
    filled.register("ISTREAM(SELECT SUMMARY(i).ESTIMATE.COUNT(item) AS n FROM s)", "i")
    with pytest.raises(MillpondError, match="CQL-224: the changes of a query with estimates"):
        filled.execute(statement)
    assert filled.query("e").invoke().estimated == ("i",)
    assert all(stream.derived is None for stream in filled.streams())


def test_estimates_are_called_what_they_are_written_as(filled: Pond) -> None:
    """Columns without a name, errors, and statements that take no estimate."""
    filled.execute("CREATE RELATION r (k INTEGER PRIMARY KEY, n DOUBLE)")
    answer = filled.ask(
        "SELECT k, SUMMARY(I).estimate.COUNT(k) + 1, SUMMARY(w).ESTIMATE.TOTAL() FROM r"
    )
    names = ["k", "SUMMARY(I).ESTIMATE.COUNT(k) + 1", "SUMMARY(w).ESTIMATE.TOTAL()"]
    assert answer.table.column_names == names
    total, count = filled.ask(
        "SELECT * FROM (SELECT SUMMARY(w).ESTIMATE.TOTAL(), SUMMARY(i).ESTIMATE.COUNT(1) AS n)"
    ).rows()[0]
    assert total == 500
    assert count > 0
    for text, code, words in (
        ("SELECT SUMMARY(i).ESTIMATE.COUNT(2.5)", "CQL-205", "SUMMARY(i).ESTIMATE.COUNT does not"),
        ("INSERT INTO r VALUES (1, SUMMARY(i).ESTIMATE.COUNT(1))", "CQL-224", "in VALUES"),
        ("UPDATE r SET n = SUMMARY(i).ESTIMATE.COUNT(k)", "CQL-224", "an estimate in SET"),
        ("DELETE FROM r WHERE n > SUMMARY(i).ESTIMATE.COUNT(k)", "CQL-224", "an estimate in WHERE"),
    ):
        with pytest.raises(MillpondError) as failure:
            filled.execute(text)
        assert failure.value.code == code
        assert words in str(failure.value)
        assert "__" not in str(failure.value)
    filled.execute("INSERT INTO r SELECT 1, SUMMARY(i).ESTIMATE.COUNT(1)")
    assert filled.ask("SELECT n FROM r").rows()[0][0] > 0
