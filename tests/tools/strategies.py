"""Hypothesis strategies for whole scenarios: schemas, feeds, windows, predicates, queries, cuts.

A `Scenario` has everything that the laws of SEMANTICS section 7 quantify over. Values are drawn
from few, awkward values (NULL, NaN, both zeros, the empty string) and timestamps from few seconds,
so that ties, groups, matches and window edges are frequent.

Only queries whose answer is a function of the bags are drawn: no LIMIT without an order, and no
sums of floats, whose last digits depend on the order of the summands.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from hypothesis import strategies as st

from millpond.model import time

SECOND = 1_000_000

#: For each type: its values (NULL is added), and how each is written in CQL.
VALUES: dict[str, tuple[tuple[Any, str], ...]] = {
    "VARCHAR": (("a", "'a'"), ("b", "'b'"), ("", "''"), ("ab", "'ab'"), ("é", "'é'")),
    "INTEGER": tuple((n, str(n)) for n in (-1, 0, 1, 2, 3)),
    "BIGINT": ((0, "0"), (7, "7"), (2**40, str(2**40))),
    "DOUBLE": (
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.5, "1.5"),
        (-2.0, "-2.0"),
        (float("nan"), "'nan'::DOUBLE"),
        (float("inf"), "'inf'::DOUBLE"),
    ),
    "BOOLEAN": ((True, "true"), (False, "false")),
    "DATE": (
        (date(2024, 2, 29), "DATE '2024-02-29'"),
        (date(2024, 3, 1), "DATE '2024-03-01'"),
    ),
    "TIMESTAMPTZ": (
        (datetime(1970, 1, 1, tzinfo=UTC), "TIMESTAMPTZ '1970-01-01 01:00:00+01'"),
        (datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC), "'1970-01-01 00:00:03'"),
        (datetime(2024, 3, 1, tzinfo=UTC), "TIMESTAMP '2024-03-01 00:00:00'"),
    ),
    "INTEGER[]": (([], "[]"), ([1], "[1]"), ([1, None], "[1, NULL]"), ([None], "[NULL]")),
    "STRUCT(a INTEGER, b DOUBLE[])": tuple(
        (value, f"CAST(CAST('{json.dumps(value)}' AS JSON) AS STRUCT(a INTEGER, b DOUBLE[]))")
        for value in (
            {"a": 1, "b": [0.0]},
            {"a": 1, "b": [-0.0, None]},
            {"a": 1, "b": [-0.0]},
            {"a": None, "b": None},
        )
    ),
}

#: Predicates on parts of values, by type; `{}` stands for the column.
PARTS = {
    "INTEGER[]": ("list_contains({}, 1)", "{}[1] = 1", "len({}) > 1"),
    "STRUCT(a INTEGER, b DOUBLE[])": ("{}.a = 1", "{}.b[1] >= 0", "{}['a'] IS NULL"),
}

#: Columns that a stream may have. Every stream has ts, k and v, so that any two streams can join.
OPTIONAL_COLUMNS = (
    *(("x", "DOUBLE"), ("b", "BOOLEAN"), ("d", "DATE"), ("w", "BIGINT")),
    *(("z", "TIMESTAMPTZ"), ("l", "INTEGER[]"), ("r", "STRUCT(a INTEGER, b DOUBLE[])")),
)


@dataclass(frozen=True)
class Stream:
    """A stream: its columns after `ts`, DELAY in seconds, and its elements in order of arrival."""

    name: str
    columns: tuple[tuple[str, str], ...]
    delay: int
    rows: tuple[dict[str, Any], ...]

    @property
    def declaration(self) -> str:
        columns = "".join(f", {name} {kind}" for name, kind in self.columns)
        delay = f" DELAY INTERVAL {self.delay} SECONDS" if self.delay else ""
        return f"CREATE STREAM {self.name} (ts TIMESTAMP{columns}) TIMESTAMP BY ts{delay}"


@dataclass(frozen=True)
class Scenario:
    """The events of a pond, and the instants at which its queries are invoked.

    Attributes:
        streams: The streams, with the elements that arrive on each.
        queries: CQL of the standing queries.
        epochs: The cut: for each epoch, a stream's name and the number of its next rows.
        registered: For each query, the number of epochs before it is registered.
        instants: When to invoke, microseconds.
    """

    streams: tuple[Stream, ...]
    queries: tuple[str, ...]
    epochs: tuple[tuple[str, int], ...]
    registered: tuple[int, ...]
    instants: tuple[int, ...]

    def batches(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """The epochs' rows, in order."""
        rest = {stream.name: list(stream.rows) for stream in self.streams}
        cut = []
        for name, count in self.epochs:
            cut.append((name, rest[name][:count]))
            rest[name] = rest[name][count:]
        return cut


def columns() -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    """Draw a stream's columns after `ts`."""
    return st.sets(st.sampled_from(OPTIONAL_COLUMNS), max_size=2).map(
        lambda extra: (("k", "VARCHAR"), ("v", "INTEGER"), *sorted(extra))
    )


def instants_of_elements() -> st.SearchStrategy[int]:
    """Draw a timestamp: mostly a whole second, sometimes a microsecond beside a whole second."""
    beside = st.sampled_from((0, 0, 0, 0, 1, -1))
    return st.builds(lambda s, d: s * SECOND + d, st.integers(0, 12), beside)


@st.composite
def streams(draw: st.DrawFn, name: str, most: int = 14) -> Stream:
    """Draw a stream with its feed, which arrives out of order as far as DELAY allows."""
    kinds = draw(columns())
    delay = draw(st.sampled_from((0, 0, 2, 5)))
    value = {kind: st.sampled_from((None, *(v for v, _ in VALUES[kind]))) for kind in VALUES}
    row = st.fixed_dictionaries({column: value[kind] for column, kind in kinds})
    # By default Hypothesis draws mostly short lists, and short feeds reach no window's edge.
    count = draw(st.sampled_from((most, most // 2, most - 3, 1, 0)))
    element = st.tuples(instants_of_elements(), row)
    elements = draw(st.lists(element, min_size=count, max_size=count))
    lag = draw(st.lists(st.integers(0, delay * SECOND), min_size=14, max_size=14))
    ordered = sorted(elements, key=lambda element: element[0] + lag[_lag_of(element[0])])
    rows = tuple({"ts": time.to_datetime(at), **values} for at, values in ordered)
    return Stream(name, kinds, delay, rows)


def _lag_of(at: int) -> int:
    """Find the lag of an element: one lag for each second, so that ties keep their order."""
    return max(0, at // SECOND) % 14


@st.composite
def predicates(draw: st.DrawFn, kinds: tuple[tuple[str, str], ...], of: str = "") -> str:
    """Draw a predicate over a stream's columns, each qualified by `of`."""
    if draw(st.integers(0, 7)) == 0:
        # A conjunct that fails on most texts, and a conjunct that excludes these, in any order.
        sheltered = [f"CAST('1' || {of}k AS INTEGER) = 1", f"length({of}k) = 0"]
        return " AND ".join(draw(st.permutations(sheltered)))
    atoms = draw(st.lists(_atoms(kinds, of), min_size=1, max_size=3))
    text = atoms[0]
    for atom in atoms[1:]:
        text = f"({text} {draw(st.sampled_from(('AND', 'OR')))} {atom})"
    return f"NOT ({text})" if draw(st.integers(0, 5)) == 0 else text


@st.composite
def _atoms(draw: st.DrawFn, kinds: tuple[tuple[str, str], ...], of: str) -> str:
    column, kind = draw(st.sampled_from(kinds))
    name = of + column
    constant = st.sampled_from(tuple(text for _, text in VALUES[kind]))
    # DuckDB has no BETWEEN of arrays.
    shapes = ["compare", "compare", "in", "null" if kind.endswith("[]") else "between", "null"]
    shape = draw(st.sampled_from([*shapes, "like"] if kind == "VARCHAR" else shapes))
    negated = draw(st.sampled_from(("", "NOT ")))
    if kind in PARTS and draw(st.booleans()):
        return draw(st.sampled_from(PARTS[kind])).format(name)
    match shape:
        case "compare":
            operator = draw(st.sampled_from(("=", "<>", "<", "<=", ">", ">=")))
            return f"{name} {operator} {draw(constant)}"
        case "in":
            members = draw(st.lists(st.one_of(constant, st.just("NULL")), min_size=1, max_size=3))
            return f"{name} {negated}IN ({', '.join(members)})"
        case "between":
            return f"{name} {negated}BETWEEN {draw(constant)} AND {draw(constant)}"
        case "null":
            return f"{name} IS {negated}NULL"
        case _:
            pattern = draw(st.sampled_from(("a%", "%b", "_", "", "%", "a_")))
            return f"{name} {negated}LIKE '{pattern}'"


@st.composite
def windows(draw: st.DrawFn, kinds: tuple[tuple[str, str], ...]) -> str:
    """Draw a window in brackets, or none."""
    seconds = st.integers(1, 8)
    where = f" WHERE {draw(predicates(kinds))}" if draw(st.integers(0, 3)) == 0 else ""
    match draw(
        st.sampled_from(("none", "unbounded", "range", "range", "slide", "rows", "by", "now"))
    ):
        case "unbounded":
            return f" [RANGE UNBOUNDED{where}]"
        case "range":
            return f" [RANGE {draw(seconds)} SECONDS{where}]"
        case "slide":
            return f" [RANGE {draw(seconds)} SECONDS SLIDE {draw(seconds)} SECONDS{where}]"
        case "rows":
            return f" [ROWS {draw(st.integers(1, 5))}{where}]"
        case "by":
            by = draw(
                st.lists(
                    st.sampled_from([c for c, _ in kinds]), min_size=1, max_size=2, unique=True
                )
            )
            return f" [PARTITION BY {', '.join(by)} ROWS {draw(st.integers(1, 3))}{where}]"
        case "now":
            return f" [NOW{where}]"
        case _:
            return ""


_KINDS = (
    *("select", "select", "star", "group", "scalar", "distinct", "join", "join", "outer"),
    *("set", "exists", "in", "period", "nested", "negation", "filtered", "over", "over"),
)

#: Window functions in the order of time, and the frames of those that have one.
_NUMBERING = ("row_number()", "rank()", "dense_rank()", "lag(v)", "lag(k, 2, 'none')")
_FRAMED = (
    "count(*)",
    "sum(v)",
    "avg(v)",
    "min(k)",
    "max(v)",
    "count(DISTINCT k)",
    "first_value(v)",
)
_OVER_FRAMES = (
    *("", "", " ROWS UNBOUNDED PRECEDING", " ROWS 2 PRECEDING", " RANGE CURRENT ROW"),
    *(" ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING", " RANGE INTERVAL 2 SECONDS PRECEDING"),
)


@st.composite
def _window_functions(draw: st.DrawFn) -> str:
    """Draw window functions in the order of time; of the first value frames of time are left open.

    Which of the rows of one instant is the first in a frame of time is not defined.
    """
    by = draw(st.sampled_from(("", "", "PARTITION BY k ", "PARTITION BY v, k ")))
    frame = draw(st.sampled_from(_OVER_FRAMES))
    call = draw(st.sampled_from(_FRAMED))
    if call.startswith("first") and "RANGE" in frame:
        call = "count(v)"
    number = draw(st.sampled_from(_NUMBERING))
    over = draw(st.sampled_from((by, "PARTITION BY k ")))
    return f"{call} OVER ({by}ORDER BY ts{frame}) AS x, {number} OVER ({over}ORDER BY ts) AS y"


@st.composite
def queries(draw: st.DrawFn, sources: tuple[Stream, ...]) -> str:
    """Draw a query over the streams."""
    one, other = draw(st.sampled_from(sources)), draw(st.sampled_from(sources))
    leaf = one.name + draw(windows(one.columns))
    second = other.name + draw(windows(other.columns))
    where = draw(st.one_of(st.just(""), predicates(one.columns).map(lambda p: f" WHERE {p}")))
    kind = draw(st.sampled_from(_KINDS))
    match kind:
        case "select":
            names = ", ".join(name for name, _ in one.columns)
            return f"SELECT {names} FROM {leaf}{where}"
        case "star":
            return f"SELECT * FROM {leaf}{where}"
        case "group":
            having = draw(st.sampled_from(("", " HAVING count(*) > 1", " HAVING sum(v) >= 0")))
            key = draw(st.sampled_from([name for name, _ in one.columns]))
            aggregates = (
                "count(*) AS n, sum(v) AS total, count(DISTINCT k) AS ks, max(ts) AS latest"
            )
            return f"SELECT {key}, {aggregates} FROM {leaf}{where} GROUP BY {key}{having}"
        case "scalar":
            least = ", ".join(f"min({name}) AS least_{name}" for name, _ in one.columns)
            return f"SELECT count(*) AS n, avg(v) AS mean, {least} FROM {leaf}{where}"
        case "distinct":
            return f"SELECT DISTINCT k, v > 0 AS positive FROM {leaf}{where}"
        case "join":
            on = draw(st.sampled_from(("p.k = q.k", "p.v = q.v", "p.v < q.v", "p.ts <= q.ts")))
            more = draw(st.one_of(st.just(""), predicates(one.columns, "p.").map(" AND {}".format)))
            return f"SELECT p.k, p.v AS pv, q.v AS qv FROM {leaf} p, {second} q WHERE {on}{more}"
        case "outer":
            side = draw(st.sampled_from(("LEFT", "RIGHT", "FULL")))
            more = draw(
                st.one_of(st.just(""), predicates(other.columns, "q.").map(" WHERE {}".format))
            )
            return (
                f"SELECT p.v AS pv, q.v AS qv, q.ts AS qt FROM {leaf} p"
                f" {side} JOIN {second} q ON p.k = q.k{more}"
            )
        case "set":
            words = ("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")
            operator = draw(st.sampled_from(words))
            return f"SELECT k, v FROM {leaf}{where} {operator} SELECT k, v FROM {second}"
        case "exists":
            no = draw(st.sampled_from(("", "NOT ")))
            inner = f"SELECT 1 FROM {second} q WHERE q.v = p.v"
            return f"SELECT k, v FROM {leaf} p WHERE {no}EXISTS ({inner})"
        case "in":
            no = draw(st.sampled_from(("", "NOT ")))
            return f"SELECT k, v FROM {leaf} WHERE v {no}IN (SELECT v FROM {second})"
        case "negation":
            left = draw(st.sampled_from(("k, v", "k, count(*) AS v", "k, max(v) AS v")))
            grouped = " GROUP BY k" if "(" in left else ""
            by = draw(st.sampled_from(("k", "v", "k, v")))
            right = "k, v" if by != "v" else "v"
            return (
                f"SELECT {left} FROM {leaf}{where}{grouped}"
                f" EXCEPT ALL SELECT {right} FROM {second} BY ({by})"
            )
        case "filtered":
            size, slide = draw(st.integers(1, 8)), draw(st.sampled_from(("", " SLIDE 3 SECONDS")))
            no = draw(st.sampled_from(("", "NOT ")))
            inside = f"RANGE {size} SECONDS{slide} WHERE v {no}IN (SELECT o.v FROM {second} o)"
            return f"SELECT k, count(*) AS n FROM {one.name} [{inside}]{where} GROUP BY k"
        case "over":
            whole = draw(st.sampled_from((one.name, one.name, leaf)))
            chosen = draw(st.sampled_from(("", "", " QUALIFY y IS NOT NULL")))
            return f"SELECT k, v, {draw(_window_functions())} FROM {whole}{where}{chosen}"
        case "period":
            return f"SELECT k, v FROM {one.name}{where} {draw(st.sampled_from(_PERIODS))}"
        case _:
            return (
                f"SELECT n, count(*) AS groups FROM"
                f" (SELECT k, count(*) AS n FROM {leaf}{where} GROUP BY k) AS g GROUP BY n"
            )


@st.composite
def queries_over_queries(draw: st.DrawFn, sources: tuple[Stream, ...]) -> str:
    """Draw a query over a query in FROM that is a stream, with a window behind it."""
    one, other = draw(st.sampled_from(sources)), draw(st.sampled_from(sources))
    leaf = one.name + draw(windows(one.columns))
    second = other.name + draw(windows(other.columns))
    inner = draw(
        st.sampled_from(
            (
                f"SELECT k, v FROM {leaf}",
                f"SELECT k, count(*) AS v FROM {leaf} GROUP BY k",
                f"SELECT p.k, q.v FROM {leaf} p, {second} q WHERE p.k = q.k",
                f"SELECT DISTINCT k, length(k) AS v FROM {leaf}",
            )
        )
    )
    stream = f"{draw(st.sampled_from(('ISTREAM', 'ISTREAM', 'DSTREAM')))}({inner})"
    window = draw(windows((("k", "VARCHAR"), ("v", "INTEGER"))))
    item = draw(st.sampled_from((f"({stream}){window} AS i", f"{stream} AS i{window}")))
    match draw(st.sampled_from(("select", "group", "join"))):
        case "select":
            return f"SELECT k, v FROM {item} WHERE v >= 0"
        case "group":
            return f"SELECT k, count(*) AS n, max(v) AS most FROM {item} GROUP BY k"
        case _:
            return f"SELECT i.k, i.v, o.v AS other FROM {item}, {second} AS o WHERE i.k = o.k"


_PERIODS = (
    "BEGIN NOW END NOW",
    "BEGIN NOW - INTERVAL 5 SECONDS END NOW",
    "BEGIN NOW - INTERVAL 5 SECONDS END NOW - INTERVAL 2 SECONDS",
    "BEGIN TIMESTAMP '1970-01-01 00:00:03' END NOW",
    "BEGIN TIMESTAMP '1970-01-01 00:00:03' END TIMESTAMP '1970-01-01 00:00:06'",
    "BEGIN NOW - INTERVAL 3 SECONDS END TIMESTAMP '1970-01-01 00:00:06'",
)


def _few(rest: int) -> st.SearchStrategy[int]:
    """Draw the size of an epoch: mostly small, also 1."""
    return st.integers(1, min(rest, 5))


@st.composite
def cuts(draw: st.DrawFn, sources: tuple[Stream, ...]) -> tuple[tuple[str, int], ...]:
    """Draw a way to cut the streams' feeds into epochs and to interleave the epochs."""
    pieces: list[list[tuple[str, int]]] = []
    for stream in sources:
        rest = len(stream.rows)
        own: list[tuple[str, int]] = []
        while rest:
            count = draw(st.integers(min(rest, 2), rest)) if len(own) > 2 else draw(_few(rest))
            own.append((stream.name, count))
            rest -= count
        pieces.append(own)
    epochs = []
    while any(pieces):
        own = draw(st.sampled_from([p for p in pieces if p]))
        epochs.append(own.pop(0))
    return tuple(epochs)


@st.composite
def scenarios(draw: st.DrawFn, most_queries: int = 4, *, nested: bool = False) -> Scenario:
    """Draw a scenario over one or two streams; `nested` with a query over a query in FROM too."""
    names = draw(st.sampled_from((("s",), ("s", "t"))))
    sources = tuple(draw(streams(name)) for name in names)
    asked = tuple(draw(st.lists(queries(sources), min_size=1, max_size=most_queries)))
    if nested:
        asked = (*asked[1:], draw(queries_over_queries(sources)))
    epochs = draw(cuts(sources))
    when = st.integers(0, len(epochs))
    registered = tuple(draw(when) for _ in asked)
    instants = draw(st.lists(instants_of_elements(), min_size=1, max_size=3))
    return Scenario(sources, asked, epochs, registered, (*instants, 14 * SECOND))


@st.composite
def recuts(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw a scenario with the same elements in another order within DELAY, and another cut.

    Elements of one timestamp keep their order, which ROWS windows show.
    """
    sources = []
    for stream in scenario.streams:
        lag = draw(st.lists(st.integers(0, stream.delay * SECOND), min_size=14, max_size=14))
        stamped = [(time.from_datetime(row["ts"]), row) for row in stream.rows]
        stamped.sort(key=lambda e: e[0] + lag[_lag_of(e[0])])
        sources.append(replace(stream, rows=tuple(row for _, row in stamped)))
    again = tuple(sources)
    epochs = draw(cuts(again))
    registered = tuple(min(when, len(epochs)) for when in scenario.registered)
    return replace(scenario, streams=again, epochs=epochs, registered=registered)
