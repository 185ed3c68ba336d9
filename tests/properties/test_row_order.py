"""Calls that show the order of rows read them by timestamp, and in one instant as they arrived.

How arrivals are cut into batches, merging, restarts, and the way of evaluation do not show.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.time import to_datetime
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
STREAM = (
    "CREATE STREAM s (ts TIMESTAMP, k VARCHAR, v VARCHAR, n INTEGER) TIMESTAMP BY ts"
    " DELAY INTERVAL 1 HOUR"
)
#: Each call, and what it gives for values and numbers in order.
CALLS: dict[str, Any] = {
    "first(v)": lambda values, _: values[0],
    "last(v)": lambda values, _: values[-1],
    "list(v)": lambda values, _: values,
    "string_agg(v, ',')": lambda values, _: ",".join(values),
    "list(v ORDER BY n)": lambda values, numbers: _by(values, numbers),
    "string_agg(v, ',' ORDER BY n)": lambda values, numbers: ",".join(_by(values, numbers)),
    "last(v ORDER BY n)": lambda values, numbers: _by(values, numbers)[-1],
    "mode(v)": lambda values, _: max(values, key=Counter(values).__getitem__),
    "arg_max(v, n)": lambda values, numbers: values[numbers.index(max(numbers))],
    "arg_min(v, n)": lambda values, numbers: values[numbers.index(min(numbers))],
}
_COLUMNS = ", ".join(f"{call} AS c{i}" for i, call in enumerate(CALLS))
TEXT = f"SELECT k, {_COLUMNS} FROM s [RANGE 5 SECONDS] GROUP BY k"
Row = tuple[int, str, str, int]


def _by(values: list[str], numbers: list[int]) -> list[str]:
    return [value for _, value in sorted(zip(numbers, values, strict=True), key=lambda p: p[0])]


def answer(rows: list[Row], at: int, span: int = 5) -> list[tuple[Any, ...]]:
    """The answer at an instant, of rows in the order in which they arrived."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row[0]):
        if at - span < row[0] <= at:
            groups.setdefault(row[1], []).append(row)
    return sorted(
        (k, *(call([r[2] for r in own], [r[3] for r in own]) for call in CALLS.values()))
        for k, own in groups.items()
    )


def play(pond: Pond, rows: list[Row], cuts: list[int]) -> None:
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        elements = [
            {"ts": to_datetime(at * SECOND), "k": k, "v": v, "n": n}
            for at, k, v, n in rows[first:last]
        ]
        pond.ingest("s", elements)
        pond.wait_until_matched()


def fold(changes: list[tuple[Any, ...]], at: int) -> list[tuple[Any, ...]]:
    held: Counter[str] = Counter()
    rows = {}
    for _, when, sign, *row in changes:
        if when <= at * SECOND:
            held[repr(row)] += 1 if sign == "+" else -1
            rows[repr(row)] = tuple(row)
    return sorted(rows[key] for key in (+held).elements())


@pytest.mark.slow
@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.integers(10, 16),
            st.sampled_from("kl"),
            st.sampled_from("abc"),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=20,
    ),
    st.data(),
)
def test_rows_are_read_by_timestamp_then_as_they_arrived(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    directory = tmp_path_factory.mktemp("pond") / "store"
    pond = open_local(directory, clock=ManualClock(SECOND))
    pond.execute(STREAM)
    for way in ("lazy", "none", "eager"):
        pond.register(TEXT, name=way, materialize=way)
    pond.register(TEXT, name="followed", changes="from registration")
    play(pond, rows, cuts)
    for again in (False, True):
        if again:
            pond.close()
            pond = open_local(directory, clock=ManualClock(SECOND))
        for at in (12, 14, 16, 18):
            expected = answer(rows, at)
            for name in ("lazy", "none", "eager", "followed"):
                assert sorted(pond.query(name).invoke(at * SECOND).rows()) == expected, name
        latest = max(at for at, *_ in rows)
        assert sorted(pond.query("eager").invoke().rows()) == answer(rows, latest)
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:01:00'")
    (result,) = pond.execute("FETCH followed")
    for at in (12, 14, 16, 18):
        assert fold(result.changes.rows(), at) == answer(rows, at)
    pond.close()


def test_what_a_where_takes_away_shows_in_no_order(tmp_path: Path) -> None:
    """DuckDB hands few rows on later than many that came after them."""
    matches = [at % 100 == 0 or 2048 <= at < 4096 for at in range(6000)]
    rows: list[Row] = [(at, "ab"[at % 2], f"v{at}", n) for at, n in enumerate(map(int, matches))]
    with open_local(tmp_path) as pond:
        pond.execute(STREAM)
        text = f"SELECT k, {_COLUMNS} FROM s WHERE n = (SELECT max(n) FROM s) GROUP BY k"
        pond.register(text, "q")
        play(pond, rows, [70, 3000])
        got = sorted(pond.query("q").invoke().rows())
    assert got == answer([row for row in rows if row[3]], at=6000, span=6001)


def test_which_of_equal_rows_leaves_shows(tmp_path: Path) -> None:
    """Two rows of `a` differ in v alone, by which the window counts, and `b` is between them."""
    rows: list[Row] = [(1, "a", "x", 1), (1, "b", "y", 2), (1, "a", "z", 1), (2, "c", "z", 5)]
    text = (
        "SELECT list(n) AS l, last(k) AS m FROM s [PARTITION BY v ROWS 1]"
        " WHERE ts < TIMESTAMP '1970-01-01 00:00:02'"
    )
    with open_local(tmp_path) as pond:
        pond.execute(STREAM)
        pond.register(text, "q", changes="from beginning", follow=True)
        play(pond, rows, [2, 3])
        pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 02:00:00'")
        assert pond.query("q").invoke().rows() == [([1, 2], "b")]
        assert list(_fold(pond, "q")) == [([1, 2], "b")]


def _fold(pond: Pond, name: str) -> list[tuple[Any, ...]]:
    """Add the changes of a query up; each row that leaves has come."""
    held: dict[str, list[tuple[Any, ...]]] = {}
    for change in pond.query(name).fetch():
        if change.sign == "+":
            held.setdefault(repr(change.row), []).append(change.row)
        else:
            assert held.get(repr(change.row)), f"{change.row} leaves and never came"
            held[repr(change.row)].pop()
    return [row for rows in held.values() for row in rows]


@pytest.mark.parametrize("window", ["", " [RANGE 1 HOUR]"])
@pytest.mark.parametrize("by", ["", "PARTITION BY k "])
def test_over_takes_equal_rows_as_they_arrived(tmp_path: Path, by: str, window: str) -> None:
    """DuckDB sorts few rows stably, and many not: 45 elements of one instant are many."""
    rows = [(10 + n // 45, "kl"[n % 2], str(n), n * 37 % 90) for n in range(90)]
    expected = []
    for at, k, v, n in rows:
        before = [r for r in rows if (r[0], int(r[2])) < (at, int(v)) and (not by or r[1] == k)]
        last = before[-1][2] if before else None
        expected.append((v, len(before) + 1, last, sum(r[3] for r in before[-2:]) + n))
    over = f"({by}ORDER BY ts"
    text = (
        f"SELECT v, row_number() OVER {over}) AS r, lag(v) OVER {over}) AS l,"
        f" sum(n) OVER {over} ROWS 2 PRECEDING) AS t FROM s{window}"
    )
    with open_local(tmp_path / "store", clock=ManualClock(SECOND)) as pond:
        pond.execute(STREAM)
        for way in ("lazy", "none", "eager"):
            pond.register(text, name=way, materialize=way)
        pond.register(text, name="followed", changes="from registration")
        play(pond, rows, [30, 50])
        for name in ("lazy", "none", "eager", "followed"):
            assert sorted(pond.query(name).invoke().rows()) == sorted(expected), name
        pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:01:00'")
        (result,) = pond.execute("FETCH followed")
        assert fold(result.changes.rows(), 20) == sorted(expected)
