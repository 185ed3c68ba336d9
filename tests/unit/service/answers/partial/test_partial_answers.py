"""Answers in parts, held to whole answers: no row twice, none that is no result, all of it."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.service.conftest import OpenPond

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

STREAMS = (
    "CREATE STREAM s (ts TIMESTAMP, item INTEGER, price DOUBLE) TIMESTAMP BY ts"
    " DELAY INTERVAL 3 SECONDS;"
    "CREATE STREAM t (ts TIMESTAMP, item INTEGER, name VARCHAR) TIMESTAMP BY ts;"
)
SUMMARIES = (
    "CREATE SUMMARY si ON s (item) WITH GRANULARITY 16 SECONDS AND COLLAPSE (2, 3) MEMORY '256 KB';"
    "CREATE SUMMARY ti ON t (item) WITH GRANULARITY 8 SECONDS AND COLLAPSE (3, 2) MEMORY '256 KB';"
    "CREATE SUMMARY sp ON s (price) WITH GRANULARITY 16 SECONDS AND COLLAPSE (2, 3)"
    " USING HISTOGRAM;"
    "CREATE SUMMARY sa ON s (item) WITH GRANULARITY 16 SECONDS AND COLLAPSE (2, 3) USING SAMPLE;"
)
ITEM = "SUMMARY(si).ESTIMATE.COUNT(item)"
DESC = f"WITH PREFERENCE DESC {ITEM}"
S_ITEM = "SUMMARY(si).ESTIMATE.COUNT(s.item)"
SELECTIONS = {
    "desc": f"SELECT item, price FROM s [RANGE 1 MINUTE] WHERE price > 40 {DESC}",
    "asc": "SELECT item FROM s [RANGE 40 SECONDS] WHERE item < 30"
    f" WITH PREFERENCE ASC {ITEM} FADE FACTOR 0.5",
    "weighted": f"SELECT price + 1 AS more FROM s WITH PREFERENCE WEIGHTED {ITEM} * item",
    "histogram": "SELECT item FROM s [RANGE UNBOUNDED WHERE price > 10]"
    " WITH PREFERENCE DESC SUMMARY(sp).ESTIMATE.COUNT(price)",
    "sample": "SELECT item FROM s WITH PREFERENCE ASC SUMMARY(sa).ESTIMATE.FREQUENCY(item)",
    "recent": "SELECT item, price FROM s [RANGE 1 MINUTE] WHERE price < 90",
    "slide": f"SELECT item FROM s [RANGE 30 SECONDS SLIDE 20 SECONDS] WITH PREFERENCE DESC {ITEM}",
}
JOINS = {
    "both": "SELECT s.price, name FROM s [RANGE 1 MINUTE], t [RANGE 30 SECONDS]"
    f" WHERE s.item = t.item WITH PREFERENCE DESC {S_ITEM} * SUMMARY(ti).ESTIMATE.COUNT(t.item)"
    " FADE FACTOR 0.8",
    "first": "SELECT s.item, name FROM s, t WHERE s.item = t.item AND price > 20 AND name <> 'b'"
    f" WITH PREFERENCE ASC {S_ITEM}",
    "band": "SELECT s.item, s.ts FROM s [RANGE UNBOUNDED WHERE price > 5] JOIN t"
    " ON s.item = t.item AND s.ts <= t.ts"
    " WITH PREFERENCE WEIGHTED SUMMARY(ti).ESTIMATE.COUNT(t.item)",
}
QUERIES = {**SELECTIONS, **JOINS}


def rows_of(seed: int, count: int, seconds: int) -> tuple[pa.Table, pa.Table]:
    random = np.random.default_rng(seed)
    ts = random.integers(0, seconds * 1_000_000, count).astype("datetime64[us]")
    items = random.zipf(1.4, count).clip(1, 40).astype(np.int32)
    missing = random.random(count) < 0.05
    s = pa.table(
        {
            "ts": ts,
            "item": pa.array(items, mask=missing),
            "price": pa.array(random.random(count) * 100, mask=random.random(count) < 0.02),
        }
    )
    t = pa.table(
        {"ts": ts, "item": pa.array(items[::-1]), "name": random.choice(["a", "b"], count)}
    )
    return s, t.slice(0, count // 3)


def fill(pond: Pond, seed: int, count: int = 600, cuts: int = 4, seconds: int = 70) -> None:
    s, t = rows_of(seed, count, seconds)
    s = s.sort_by("ts")
    t = t.sort_by("ts")
    for part in range(cuts):
        low, high = part * count // cuts, (part + 1) * count // cuts
        pond.ingest("s", s.slice(low, high - low))
        pond.ingest("t", t.slice(low // 3, high // 3 - low // 3))
    pond.catch_up()


def read_parts(pond: Pond, name: str, budget: str) -> list[Any]:
    """The parts of an answer, one after the other."""
    parts: list[Any] = []
    after = None
    while True:
        parts.append(pond.query(name).invoke(budget=budget, after=after))
        if parts[-1].part.whole:
            return parts
        after = parts[-1].part.cursor
        assert len(parts) < 5_000


@pytest.fixture
def filled(pond: Pond) -> Pond:
    pond.execute(STREAMS + SUMMARIES)
    for name, text in QUERIES.items():
        pond.register(text, name)
    fill(pond, 1)
    return pond


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with open_local(tmp_path_factory.mktemp("read_only") / "store") as pond:
        pond.execute(STREAMS + SUMMARIES)
        for name, text in QUERIES.items():
            pond.register(text, name)
        fill(pond, 1)
        yield pond


@pytest.mark.parametrize("name", QUERIES)
def test_the_parts_together_are_the_answer(read_only: Pond, name: str) -> None:
    """Whatever the budgets: with probes also in one order, that of the ranking."""
    exact = Counter(read_only.query(name).invoke().rows())
    sequences = []
    for budget in ("40 probes" if name in JOINS else "7 probes", "1000000 probes", "2 ms"):
        parts = read_parts(read_only, name, budget)
        rows = list(itertools.chain(*(part.rows() for part in parts)))
        assert Counter(rows) == exact
        assert len(rows) > 20
        sequences.append(rows)
        assert [part.part.whole for part in parts] == [False] * (len(parts) - 1) + [True]
        # The last part of several is not the answer.
        assert [part.exact for part in parts] == [
            part.part.whole and len(parts) == 1 for part in parts
        ]
        shares = [part.part.share for part in parts]
        assert shares == sorted(shares)
        assert 0 <= shares[0] <= shares[-1] == 1
        assert parts[-1].part.rows == len(rows)
        # With more than a third looked at, the number of rows is about known. Of "band" it is not:
        # the newest elements come first, and they are before fewer of the other stream.
        middle = next(part.part for part in parts if part.part.share > 0.35)
        assert name == "band" or middle.rows == pytest.approx(len(rows), rel=0.35)
    assert sequences[0] == sequences[1] == sequences[2]


def test_runs_with_probes_repeat_bit_for_bit_over_cut_restart_and_merging(
    open_pond: OpenPond, tmp_path: Path
) -> None:
    seen = []
    for number, cuts in enumerate((1, 4, 17)):
        with open_local(tmp_path / f"store{number}") as pond:
            pond.execute(STREAMS)
            if number:
                pond.execute(SUMMARIES)
            fill(pond, 2, cuts=cuts)
            if not number:
                pond.execute(SUMMARIES)  # created late, over kept elements
            for name, text in QUERIES.items():
                pond.register(text, name)
            if number == 1:
                pond.wait_until_matched()
        with open_local(tmp_path / f"store{number}") as pond:
            seen.append(
                {
                    name: [part.rows() for part in read_parts(pond, name, "150 probes")]
                    for name in QUERIES
                    if name != "sample"
                }
            )
    assert seen[0] == seen[1] == seen[2]


def test_the_most_promising_come_first(filled: Pond) -> None:
    items = Counter(filled.ask("SELECT item FROM s [RANGE 1 MINUTE] WHERE price > 40").rows())
    first = filled.query("desc").invoke(budget="40 probes").rows()
    assert {(item,) for item, _ in first} <= {row for row, _ in items.most_common(3)}
    rare = filled.query("asc").invoke(budget="25 probes").rows()
    counts = Counter(filled.ask("SELECT item FROM s [RANGE 40 SECONDS]").rows())
    usual = [counts[row] for row in counts.elements()]
    assert np.mean([counts[row] for row in rare]) < np.mean(usual)


def test_a_weighted_part_is_a_faithful_sample(filled: Pond) -> None:
    filled.register(
        f"SELECT item FROM s WHERE item > 0 WITH PREFERENCE WEIGHTED {ITEM}", "faithful"
    )
    part = Counter(filled.query("faithful").invoke(budget="300 probes").rows())
    whole = Counter(filled.query("faithful").invoke().rows())
    for item, count in whole.most_common(4):
        assert part[item] == pytest.approx(count * sum(part.values()) / sum(whole.values()), abs=24)


def test_the_number_of_rows_of_a_band_is_between_what_was_found_and_what_may_be(
    filled: Pond,
) -> None:
    """Each pair of equal keys that is left is a row at most; of the rest nothing is known."""
    ((pairs,),) = filled.ask("SELECT COUNT(*) FROM s, t WHERE s.item = t.item").rows()
    whole = len(filled.query("band").invoke().rows())
    given = off = 0
    for part in read_parts(filled, "band", "60 probes"):
        given += len(part.rows())
        left = (1 - part.part.share) * pairs
        assert given - 1e-6 <= part.part.rows <= given + left + 1e-6
        assert given <= whole <= given + left + 1e-6
        off = max(off, abs(part.part.rows - whole))
    assert given == whole < pairs
    assert off > 0


def test_what_comes_later_is_no_part_of_an_answer_that_is_gone_on_with(filled: Pond) -> None:
    whole = Counter(filled.query("desc").invoke().rows())
    first = filled.query("desc").invoke(budget="50 probes")
    fill(filled, 3, count=90, cuts=1, seconds=75)
    rest = [first]
    while not rest[-1].part.whole:
        rest.append(filled.query("desc").invoke(budget="90 probes", after=rest[-1].part.cursor))
    assert Counter(itertools.chain(*(part.rows() for part in rest))) == whole
    assert {part.as_of for part in rest} == {first.as_of}


def test_aggregates_of_a_part_are_estimates(filled: Pond) -> None:
    text = "SELECT count(*) AS n, sum(price) AS s, avg(price) AS a, median(price) AS m FROM s"
    filled.register(f"{text} WHERE item < 30 WITH PREFERENCE WEIGHTED {ITEM}", "figures")
    handle = filled.query("figures")
    ((count, total, mean, middle),) = handle.invoke().rows()
    answer = handle.invoke(budget="300 probes")
    assert not answer.exact
    ((n, s, a, m),) = answer.rows()
    assert n == pytest.approx(count, rel=0.1)
    assert s == pytest.approx(total, rel=0.15)
    assert a == pytest.approx(mean, rel=0.15)
    assert m == pytest.approx(middle, rel=0.3)
    assert isinstance(n, int)
    every = handle.invoke(budget="1000000 probes")
    assert every.exact
    assert every.rows()[0][0] == count
    on = handle.invoke(budget="100000 probes", after=answer.part.cursor)
    assert on.rows()[0][0] == count
    assert on.exact  # of all elements, those before the cursor too


ON = f"WITH PREFERENCE DESC {S_ITEM}"
NOT_OF = "SELECT item FROM s WITH PREFERENCE DESC SUMMARY"
REFUSED = [
    ("SELECT item FROM s WITH PREFERENCE DESC 1", "CQL-224", "without an estimate"),
    (f"SELECT item FROM t {DESC}", "CQL-224", 'is not of "t" (item)'),
    (f"{NOT_OF}(si).ESTIMATE.COUNT(price)", "CQL-224", "is not of"),
    (f"{NOT_OF}(no).ESTIMATE.COUNT(item)", "CQL-201", 'no summary "no"'),
    (f"SELECT item FROM s {DESC} * price", "CQL-224", "no attribute of a summary"),
    (f"SELECT item FROM s {DESC} > 3", "CQL-205", "PREFERENCE needs a number"),
    (f"SELECT DISTINCT item FROM s {DESC}", "CQL-224", "takes no preference"),
    (f"SELECT item FROM s [ROWS 5] {DESC}", "CQL-224", "ROWS window"),
    (f"SELECT item FROM s ORDER BY 1 {DESC}", "CQL-224", "ORDER BY"),
    (f"SELECT max(item) FROM s {DESC}", "CQL-224", "takes no preference"),
    (f"SELECT s.item FROM s, t WHERE s.item < t.item {ON}", "CQL-224", "joined by a = b"),
    (f"SELECT s.item FROM s, t WHERE s.ts = t.ts {ON}", "CQL-224", "join's key"),
    (f"SELECT s.item FROM s JOIN t USING (item) {ON}", "CQL-224", "joined with USING or NATURAL"),
    (f"SELECT s.item FROM s NATURAL JOIN t {ON}", "CQL-224", "joined with USING or NATURAL"),
    (
        f"SELECT item FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.item = s.item) {DESC}",
        "CQL-224",
        "has a subquery",
    ),
    (f"SELECT item FROM s {DESC} + SUMMARY(sa).ESTIMATE.COUNT(item)", "CQL-224", "two summaries"),
    (f"SELECT item FROM s WHERE {ITEM} > 3", "CQL-224", "an estimate in WHERE"),
    (f"SELECT count(*) FROM s GROUP BY {ITEM}", "CQL-224", "an estimate in GROUP BY"),
    (f"SELECT item FROM s [NOW WHERE {ITEM} > 1]", "CQL-224", "an estimate in a window"),
    ("SELECT SUMMARY(si).ESTIMATE.COUNT(1, 2)", "CQL-224", "single values only"),
    ("SELECT SUMMARY(si).ESTIMATE.COUNT(nix) FROM s", "CQL-202", "nix"),
]


@pytest.mark.parametrize(("text", "code", "words"), REFUSED)
def test_what_cannot_be_served_is_refused(pond: Pond, text: str, code: str, words: str) -> None:
    pond.execute(STREAMS + SUMMARIES)
    with pytest.raises(MillpondError) as failure:
        pond.register(text)
    assert failure.value.code == code
    assert words in str(failure.value)


@pytest.mark.parametrize(
    ("name", "budget", "after", "code"),
    [
        ("negative", "5 probes", None, "POND-404"),
        ("nan", "5 probes", None, "POND-404"),
        ("desc", "0 probes", None, "CQL-103"),
        ("desc", "soon", None, "CQL-103"),
        ("desc", "5 probes", "nonsense", "POND-412"),
        ("desc", "5 probes", "1.2.3.4.5,6,7", "POND-412"),
        ("desc", None, "1.2.3.4.5,6,7", "CQL-103"),
        ("ordered", "5 probes", None, "CQL-224"),
        ("plain", "5 probes", None, "CQL-224"),
    ],
)
def test_bad_budgets_cursors_and_weights(
    filled: Pond, name: str, budget: str, after: str, code: str
) -> None:
    filled.register(f"SELECT item FROM s WITH PREFERENCE WEIGHTED -{ITEM}", "negative")
    filled.register(f"SELECT item FROM s WITH PREFERENCE ASC 0 / (0 * {ITEM})", "nan")
    filled.register("SELECT item FROM s ORDER BY item", "ordered")
    filled.register("SELECT s.item FROM s, t WHERE s.item = t.item", "plain")
    with pytest.raises(MillpondError) as failure:
        filled.query(name).invoke(budget=budget, after=after)
    assert failure.value.code == code


@pytest.mark.parametrize("place", range(2, 8))
def test_a_cursor_that_no_part_gave_is_refused(read_only: Pond, place: int) -> None:
    cursor = read_only.query("desc").invoke(budget="5 probes").part.cursor
    numbers = re.split(r"([.,])", cursor)
    for other in ("0", "7", "9" * 20, numbers[2 * place] + "0"):
        numbers[2 * place] = other
        with pytest.raises(MillpondError, match="POND-412"):
            read_only.query("desc").invoke(budget="5 probes", after="".join(numbers))


def test_a_cursor_goes_on_at_its_own_instant(read_only: Pond) -> None:
    query = read_only.query("desc")
    first = query.invoke(budget="5 probes")
    assert query.invoke(budget="5 probes", after=first.part.cursor, at=first.as_of).rows()
    with pytest.raises(MillpondError, match="CQL-103: a cursor goes on at the instant"):
        query.invoke(budget="5 probes", after=first.part.cursor, at=first.as_of - 1)


def test_a_question_asked_once_has_no_budget(read_only: Pond) -> None:
    with pytest.raises(MillpondError, match="CQL-224: a question asked once is answered whole"):
        read_only.ask(f"SELECT item FROM s {DESC} BUDGET '2 probes'")
    assert read_only.ask(f"SELECT item FROM s {DESC}").exact


def test_a_cursor_is_of_one_query(filled: Pond) -> None:
    cursor = filled.query("desc").invoke(budget="5 probes").part.cursor
    with pytest.raises(MillpondError, match="POND-412"):
        filled.query("asc").invoke(budget="5 probes", after=cursor)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER STREAM s RESET CLOCK TO TIMESTAMP '1970-01-01 00:00:30'",
        "DROP QUERY again; DROP SUMMARY other;"
        "CREATE SUMMARY other ON s (item) WITH GRANULARITY 32 SECONDS AND COLLAPSE (3, 2)",
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT price FROM s WITH PREFERENCE ASC SUMMARY(other).ESTIMATE.COUNT(item)",
        "SELECT a.price FROM s a, s b WHERE a.item = b.item"
        " WITH PREFERENCE ASC SUMMARY(other).ESTIMATE.COUNT(a.item)",
    ],
)
def test_a_cursor_of_what_was_taken_back_or_made_again_is_refused(
    pond: Pond, change: str, text: str
) -> None:
    """Its parts would be of two answers: rows twice, rows lost, and called exact."""
    pond.execute(
        f"{STREAMS}CREATE SUMMARY other ON s (item) WITH GRANULARITY 16 SECONDS AND COLLAPSE (2, 3)"
    )
    fill(pond, 1, count=60, cuts=1)
    cursor = pond.register(text, "again").invoke(budget="5 probes").part.cursor
    assert not pond.query("again").invoke(budget="5 probes", after=cursor).part.whole
    pond.execute(change)
    if "SUMMARY" in change:
        pond.register(text, "again")
    with pytest.raises(MillpondError, match=r"(?s)POND-412.*a stream or summary was made again"):
        pond.query("again").invoke(budget="5 probes", after=cursor)
    assert pond.query("again").invoke(budget="100000 probes").exact


def test_a_query_over_nothing_is_answered_whole(pond: Pond) -> None:
    pond.execute(STREAMS + SUMMARIES)
    for name, text in QUERIES.items():
        answer = pond.register(text, name).invoke(budget="5 probes")
        assert (answer.rows(), answer.exact, answer.part.share) == ([], True, 1)


@settings(max_examples=6)
@given(
    st.integers(0, 2**32), st.integers(1, 300), st.integers(1, 9), st.sampled_from(list(QUERIES))
)
def test_random_histories(
    tmp_path_factory: Any, seed: int, count: int, cuts: int, name: str
) -> None:
    with open_local(tmp_path_factory.mktemp("pond") / "store") as pond:
        pond.execute(STREAMS + SUMMARIES)
        pond.register(QUERIES[name], name)
        fill(pond, seed, count=count, cuts=cuts, seconds=100)
        whole = Counter(pond.query(name).invoke().rows())
        parts = read_parts(pond, name, "60 probes")
        assert Counter(itertools.chain(*(part.rows() for part in parts))) == whole
