"""Hypothesis strategies for scripts: queries of many constructs, and what happens to a pond.

`strategies.py` draws streams of any columns and the queries of plain SQL over them. Here the
declarations are always the same, so that a query may combine any constructs: ASOF JOIN, LATERAL,
DISTINCT ON, TUMBLE and HOP, grouping sets, EXCEPT ALL … BY, relations of both kinds, derived
relations and streams, windows behind queries. And more may happen: elements that are late or too
far ahead, updates of relations dated back, restarts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.tools.strategies import SECOND, windows

from millpond.model.time import format_instant, to_datetime

#: What every script declares. Stream `d` has what is chosen of `s`, relation `w` groups it.
DECLARATIONS = (
    "CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 2 SECONDS"
    " AHEAD INTERVAL 30 SECONDS",
    "CREATE STREAM t (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts AHEAD INTERVAL 30 SECONDS",
    "CREATE RELATION r (k STRING, v INTEGER)",
    "CREATE NON RETROACTIVE RELATION n (k STRING, v INTEGER)",
    "CREATE STREAM d AS SELECT ts, k, v FROM s WHERE v >= 1",
    "CREATE RELATION w AS SELECT k, count(*) AS v FROM s [RANGE 4 SECONDS] GROUP BY k",
)
_COLUMNS = (("k", "VARCHAR"), ("v", "INTEGER"))
_KEYS = st.sampled_from((None, "a", "b", ""))
_NUMBERS = st.sampled_from((None, 0, 1, 2, 3))


@dataclass(frozen=True)
class Script:
    """The queries of a script, each over `DECLARATIONS`, and its events.

    An event is a statement, a stream's name with the rows of an epoch, or 'reopen'.
    """

    queries: tuple[str, ...]
    events: tuple[str | tuple[str, tuple[dict[str, Any], ...]], ...]
    instants: tuple[int, ...]

    @property
    def updates_back(self) -> bool:
        """Whether a relation is updated: at an instant that may have been delivered."""
        return any(isinstance(event, str) and event != "reopen" for event in self.events)

    def __str__(self) -> str:
        """Write the script as a golden."""
        lines = [f"{declaration};" for declaration in DECLARATIONS]
        for number, query in enumerate(self.queries):
            option = "WITH (changes = 'from beginning') "
            lines.append(f"CREATE QUERY q{number} {option}AS {query};")
        for event in self.events:
            if isinstance(event, tuple):
                lines.append(f"feed {event[0]}:")
                for row in event[1]:
                    shown = ["NULL" if v is None else str(v) or "''" for v in row.values()]
                    lines.append("  " + " | ".join(shown))
            else:
                lines.append(f"-- {event}" if event == "reopen" else f"{event};")
        return "\n".join(lines)


@st.composite
def _streams(draw: st.DrawFn) -> str:
    """Draw an occurrence of a stream with columns ts, k and v."""
    window = draw(windows(_COLUMNS))
    return draw(st.sampled_from("sstd")) + window


@st.composite
def _tables(draw: st.DrawFn) -> str:
    """Draw an item of FROM with columns k and v: a stream, a relation, or a query over them."""
    match draw(st.sampled_from(("stream", "stream", "stream", "relation", "query", "behind"))):
        case "relation":
            return draw(st.sampled_from(("r", "w")))
        case "query":
            inner = draw(_streams())
            made = (
                f"(SELECT k, max(v) AS v FROM {inner} GROUP BY k)",
                f"(SELECT k, v FROM {inner} UNION SELECT k, v FROM r)",
                f"(SELECT i.k, n.v FROM {inner} AS i, n WHERE i.k = n.k)",
            )
            return draw(st.sampled_from(made))
        case "behind":
            inner = f"SELECT k, v FROM {draw(_streams())}"
            return f"(ISTREAM({inner}))" + draw(windows(_COLUMNS))
        case _:
            return draw(_streams())


_ASOF = (
    "SELECT p.k, p.v, q.v AS u FROM {one} AS p ASOF JOIN {two} AS q ON p.k = q.k AND p.ts >= q.ts",
    "SELECT p.v, q.k, q.v AS u FROM {one} AS p ASOF LEFT JOIN {two} AS q"
    " ON p.k = q.k AND p.ts > q.ts",
    "SELECT p.v, count(q.v) AS u FROM {one} AS p ASOF LEFT JOIN {two} AS q ON p.ts <= q.ts"
    " GROUP BY p.v",
)
_TUMBLE = (
    "SELECT window_start, k, count(*) AS c FROM TUMBLE({one}, ts, INTERVAL 3 SECONDS)"
    " GROUP BY window_start, k",
    "SELECT window_end, k, v FROM HOP({one}, ts, INTERVAL 2 SECONDS, INTERVAL 4 SECONDS)",
    "SELECT TUMBLE_START(ts, INTERVAL 5 SECONDS) AS a, sum(v) AS b FROM {one}"
    " GROUP BY TUMBLE(ts, INTERVAL 5 SECONDS)",
    "SELECT window_start, max(v) AS m FROM HOP({one}, ts, INTERVAL 2 SECONDS, INTERVAL 6 SECONDS)"
    " WHERE k <> 'b' GROUP BY window_start HAVING count(*) > 1",
)
_LATERAL = (
    "SELECT p.k, l.c FROM {a} AS p, LATERAL (SELECT count(*) AS c FROM {b} AS q WHERE q.k = p.k) l",
    "SELECT p.v, l.v AS u FROM {a} AS p LEFT JOIN LATERAL (SELECT q.v FROM {b} AS q"
    " WHERE q.k = p.k ORDER BY q.v DESC LIMIT 1) AS l ON TRUE",
    "SELECT p.v, l.u FROM {a} AS p, LATERAL (SELECT p.v + q.v AS u FROM {b} AS q"
    " WHERE q.k >= p.k) AS l",
)
_DISTINCT_ON = (
    "SELECT DISTINCT ON (k) k, v FROM {a} AS p ORDER BY k, v DESC",
    "SELECT DISTINCT ON (p.v) p.v, q.v AS u FROM {a} AS p JOIN {b} AS q ON p.k = q.k",
    "SELECT count(*) AS c FROM (SELECT DISTINCT ON (v % 2) k, v FROM {a} AS p) AS x",
)
_SETS = (
    "SELECT k, v, count(*) AS c FROM {a} AS p GROUP BY ROLLUP (k, v)",
    "SELECT k, v, grouping(v) AS g, max(v) AS m FROM {a} AS p GROUP BY CUBE (k, v)",
    "SELECT k, sum(v) AS m FROM {a} AS p GROUP BY GROUPING SETS ((k), ()) HAVING count(*) > 1",
)
_NEGATIONS = (
    "SELECT k, v FROM {one} AS p EXCEPT ALL SELECT k FROM {b} AS q BY (k)",
    "SELECT DISTINCT k, v FROM {one} AS p EXCEPT ALL SELECT k FROM {b} AS q BY (k)",
    "SELECT k, count(*) AS v FROM {one} AS p GROUP BY k EXCEPT ALL SELECT v FROM {b} AS q BY (v)",
    "(SELECT k, v FROM {one} AS p UNION SELECT k, v FROM {two} AS q)"
    " EXCEPT ALL SELECT k FROM {b} AS x BY (k)",
    "(SELECT k, v FROM {one} AS p INTERSECT ALL SELECT k, v FROM {two} AS q)"
    " EXCEPT ALL SELECT v FROM {b} AS x BY (v)",
    "(SELECT k, v FROM {one} AS p EXCEPT ALL SELECT k, v FROM {a} AS q)"
    " EXCEPT ALL SELECT k FROM {b} AS x BY (k)",
    "SELECT p.k, q.v FROM {one} AS p, {two} AS q WHERE p.k = q.k"
    " EXCEPT ALL SELECT v FROM {b} AS x BY (v)",
)
_ATTACHED = (
    "SELECT p.k, n.v FROM {one} AS p JOIN n ON n.k = p.k",
    "SELECT p.v, n.v AS u FROM {one} AS p LEFT JOIN n ON n.k = p.k AND n.v > p.v",
    "SELECT p.v, q.v AS u, n.v AS m FROM {one} AS p, {two} AS q, n WHERE p.k = q.k AND n.k = q.k",
    "SELECT k, v FROM {one} AS p WHERE k NOT IN (SELECT n.k FROM n WHERE n.v >= p.v)",
    "SELECT p.k, p.v FROM {one} AS p SEMI JOIN n ON n.k = p.k",
    "SELECT k, (SELECT max(n.v) FROM n WHERE n.k = p.k) AS m FROM {one} AS p",
    "SELECT n.v, count(*) AS c FROM n, {one} AS p WHERE n.k = p.k GROUP BY n.v",
    "SELECT p.v, n.v AS u, r.v AS m FROM {one} AS p, n, r WHERE n.k = p.k AND r.k = p.k",
    "SELECT x.k, n.v FROM (SELECT k, v FROM {one} AS p WHERE v >= 1) AS x"
    " LEFT JOIN n ON n.k = x.k AND n.v > x.v",
    "SELECT x.*, n.v AS m FROM (SELECT p.*, q.v AS u FROM {one} AS p, {two} AS q WHERE p.k = q.k)"
    " AS x, n WHERE n.k = x.k",
    "SELECT p.k, l.m FROM {one} AS p, LATERAL (SELECT max(n.v) AS m FROM n WHERE n.k = p.k) AS l",
    "SELECT p.k, l.v FROM {one} AS p LEFT JOIN LATERAL (SELECT v FROM n WHERE n.v >= p.v) AS l"
    " ON TRUE",
    "SELECT p.k, p.v, q.v AS u FROM {one} AS p LEFT JOIN {two} AS q"
    " ON p.v = q.v AND p.k IN (SELECT n.k FROM n)",
    "SELECT k, v FROM {a} AS p UNION ALL SELECT k, v FROM n",
    "SELECT k, v FROM n WHERE v > 0 EXCEPT SELECT k, v FROM {a} AS p",
)
_OTHERS = (
    "SELECT p.k, q.v FROM {a} AS p FULL JOIN {b} AS q ON p.k = q.k",
    "SELECT k, v FROM {a} AS p WHERE v >= (SELECT avg(v) FROM {b} AS q)",
    "SELECT k, v FROM {a} AS p WHERE k NOT IN (SELECT k FROM {b} AS q WHERE q.v = p.v)",
    "SELECT k, v FROM {a} AS p WHERE v IN (SELECT u FROM (SELECT v + 1, v AS u FROM {b} AS q))",
    "SELECT k, v FROM {a} AS p UNION ALL (SELECT k, v FROM {b} AS q INTERSECT SELECT k, v FROM r)",
    "SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v) AS place FROM {a} AS p",
    "SELECT k, v FROM {a} AS p QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC) = 1",
    "SELECT k, v FROM {a} AS p ORDER BY v DESC, k LIMIT 2 OFFSET 1",
    "SELECT p.k, sum(p.v) AS u FROM {a} AS p SEMI JOIN {b} AS q ON p.k = q.k GROUP BY p.k",
    "SELECT k, list(v ORDER BY v) AS l, median(v) AS m FROM {a} AS p GROUP BY k",
    "WITH x AS (SELECT k, v FROM {a} AS p) SELECT x.k, y.v FROM x, x AS y WHERE x.v < y.v",
)
#: Aggregates over joins, which may be computed without pairs.
OVER_JOINS = (
    "SELECT p.k, min(q.v) AS a, max(q.v) AS b FROM {a} AS p JOIN {b} AS q ON p.k = q.k"
    " GROUP BY p.k",
    "SELECT max(p.v) AS a, min(q.v) AS b, count(*) AS n FROM {a} AS p, {b} AS q WHERE p.k = q.k",
    "SELECT p.v % 2 AS o, max(q.v) AS a, sum(q.v) AS n FROM {a} AS p LEFT JOIN {b} AS q"
    " ON p.k = q.k GROUP BY 1",
    "SELECT q.k, count(DISTINCT p.v) AS a, avg(q.v) AS b, bool_or(p.v > q.v) AS c FROM {a} AS p"
    " FULL JOIN {b} AS q ON p.k = q.k GROUP BY q.k HAVING count(*) > 1",
    "SELECT p.k, max(x.v) AS a, sum(q.v) AS b FROM {a} AS p, {b} AS q, {one} AS x"
    " WHERE p.k = q.k AND q.v = x.v GROUP BY p.k",
    "SELECT k, max(v) AS a, count(*) AS n FROM (SELECT p.k, q.v FROM {a} AS p RIGHT JOIN {b} AS q"
    " ON p.v = q.v UNION ALL SELECT k, v FROM {a} AS y) AS z GROUP BY k",
)
_ALL = (_ASOF, _TUMBLE, _LATERAL, _DISTINCT_ON, _SETS, _NEGATIONS, _ATTACHED, _OTHERS, OVER_JOINS)


@st.composite
def script_queries(draw: st.DrawFn, kinds: tuple[tuple[str, ...], ...] = _ALL) -> str:
    """Draw a relation-valued query over `DECLARATIONS`."""
    template = draw(st.sampled_from(draw(st.sampled_from(kinds))))
    items = {"one": _streams(), "two": _streams(), "a": _tables(), "b": _tables()}
    return template.format(**{name: draw(item) for name, item in items.items()})


@st.composite
def _epochs(draw: st.DrawFn, around: int) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Draw an epoch of s or t: most elements near a second, some late, some too far ahead."""
    name = draw(st.sampled_from("sst"))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        second = around + draw(st.sampled_from((0, 0, 0, 1, 1, -1, -2, -4, 90)))
        at = second * SECOND + draw(st.sampled_from((0, 0, 0, 0, 1, -1)))
        rows.append({"ts": to_datetime(at), "k": draw(_KEYS), "v": draw(_NUMBERS)})
    return name, tuple(rows)


@st.composite
def _updates(draw: st.DrawFn, upto: int) -> str:
    """Draw an update of r, often dated back, or of n, which cannot be where it was delivered."""
    name = draw(st.sampled_from("rn"))
    low = 0 if name == "r" else upto
    second = draw(st.integers(low, upto + 1))
    at = f" AT TIMESTAMP '{format_instant(second * SECOND)}'"
    key = f"'{draw(_KEYS) or ''}'"
    number = draw(st.integers(0, 3))
    rows = (
        "SELECT k, v FROM w" if name == "r" and draw(st.booleans()) else f"VALUES ({key}, {number})"
    )
    change = (
        f"INSERT INTO {name} {rows}{at}",
        f"DELETE FROM {name} WHERE k = {key}{at}",
        f"UPDATE {name} SET v = {number} WHERE k <> {key}{at}",
    )
    return draw(st.sampled_from(change))


@st.composite
def scripts(
    draw: st.DrawFn, most_queries: int = 3, kinds: tuple[tuple[str, ...], ...] = _ALL
) -> Script:
    """Draw a script."""
    count = draw(st.integers((most_queries + 1) // 2, most_queries))
    asked = tuple(draw(script_queries(kinds)) for _ in range(count))
    events: list[str | tuple[str, tuple[dict[str, Any], ...]]] = []
    second = 1
    for _ in range(draw(st.integers(3, 9))):
        match draw(st.sampled_from(("epoch", "epoch", "epoch", "update", "reopen"))):
            case "update":
                events.append(draw(_updates(second)))
            case "reopen":
                events.append("reopen")
            case _:
                events.append(draw(_epochs(second)))
                second += draw(st.sampled_from((0, 1, 1, 2, 4)))
    instants = tuple(draw(st.lists(st.integers(0, second + 6), min_size=1, max_size=3)))
    return Script(asked, tuple(events), tuple(i * SECOND for i in instants))
