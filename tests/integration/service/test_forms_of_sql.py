"""Forms of SQL and CQL that people try first, one by one: those of the changelog's "More of SQL".

Each form is a statement and the rows of its answer at an instant. Its changes, folded up to each
instant, have to be its answer there. What is refused is listed too, with its code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools import golden_table as cells

from millpond.errors import MillpondError
from millpond.model.time import parse_instant
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: What the forms are about; these statements are forms themselves: columns that are computed, NOT
#: NULL, TIMESTAMPTZ, arrays and structs; columns named in CREATE; INSERT ... SELECT; DELETE with a
#: query.
DECLARATIONS = """
    CREATE STREAM s (at DOUBLE, k STRING NOT NULL, v INTEGER, tags STRING[],
        place STRUCT(x INTEGER, y STRING), j JSON, z TIMESTAMPTZ,
        ts TIMESTAMP AS (to_timestamp(at))) TIMESTAMP BY ts;
    CREATE STREAM p (ts TIMESTAMP, k STRING, price INTEGER) TIMESTAMP BY ts;
    CREATE RELATION r (k STRING, v INTEGER);
    CREATE RELATION copied (k STRING, v INTEGER);
    CREATE NON RETROACTIVE RELATION n (k STRING, v INTEGER);
    CREATE RELATION named (key, most) AS SELECT k, max(v) FROM s [RANGE 3 SECONDS] GROUP BY k;
    INSERT INTO r VALUES ('a', 1), ('b', 2), ('c', 3);
    INSERT INTO n VALUES ('a', 10);
    INSERT INTO copied SELECT k, v + 1 FROM r;
    DELETE FROM copied WHERE k IN (SELECT k FROM r WHERE v = 3);
"""
#: Elements of s by second: k, v. Their other columns follow from these.
ELEMENTS = ((1, "a", 1), (2, "b", 2), (3, "a", 3), (5, "c", 4))
PRICES = ((1, "a", 100), (3, "a", 300), (4, "b", 400))

#: Form: (query, second of the answer, its rows).
FORMS: dict[str, tuple[str, int, list[tuple[Any, ...]]]] = {
    # point by point what was once refused
    "SAMPLE over a query": (
        "SELECT k, v FROM (SELECT k, v FROM s WHERE v > 1) AS x SAMPLE(100)",
        3,
        [("a", 3), ("b", 2)],
    ),
    "a query in a window's WHERE": (
        "SELECT v FROM s [RANGE 2 SECONDS WHERE k IN (SELECT k FROM r WHERE v < 3)]",
        3,
        [(2,), (3,)],
    ),
    "DELETE with a query": ("SELECT k, v FROM copied", 5, [("a", 2), ("b", 3)]),
    "a non-retroactive relation alone": ("SELECT k, v FROM n", 5, [("a", 10), ("b", 20)]),
    "a non-retroactive relation on a side of UNION": (
        "SELECT k FROM s [RANGE 1 SECOND] UNION ALL SELECT k FROM n",
        3,
        [("a",), ("a",)],
    ),
    "a non-retroactive relation beside a query": (
        "SELECT x.v, n.v AS u FROM (SELECT k, v FROM s) AS x LEFT JOIN n ON n.k = x.k",
        3,
        [(1, 10), (2, None), (3, 10)],
    ),
    "EXCEPT ALL BY over groups": (
        "SELECT k, count(*) AS c FROM s GROUP BY k EXCEPT ALL SELECT k FROM r WHERE v = 2 BY (k)",
        3,
        [("a", 2)],
    ),
    "the last rows that a query chooses": (
        "SELECT x.k, x.v FROM (SELECT k, v FROM s WHERE k IN (SELECT k FROM r WHERE v < 3) "
        "QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) <= 1) AS x",
        5,
        [("a", 3), ("b", 2)],
    ),
    "a log of changes as of each element": (
        "SELECT s.v, p.price FROM s ASOF LEFT JOIN p ON s.k = p.k AND s.ts >= p.ts",
        3,
        [(1, 100), (2, None), (3, 300)],
    ),
    "a window on a query that is a stream": (
        "SELECT c FROM (ISTREAM(SELECT count(*) AS c FROM s [RANGE 3 SECONDS])) [RANGE 1 SECOND]",
        3,
        [(3,)],
    ),
    # what people try first
    "VALUES as a query": ("VALUES (1, 'a'), (2, 'b')", 3, [(1, "a"), (2, "b")]),
    "VALUES in FROM": ("SELECT a FROM (VALUES (1), (2)) AS x (a)", 3, [(1,), (2,)]),
    "ASOF JOIN": (
        "SELECT s.v, p.price FROM s ASOF JOIN p ON s.k = p.k AND s.ts >= p.ts",
        5,
        [(1, 100), (3, 300)],
    ),
    "ASOF LEFT JOIN": (
        "SELECT s.v, p.price FROM s ASOF LEFT JOIN p ON s.k = p.k AND s.ts >= p.ts",
        5,
        [(1, 100), (2, None), (3, 300), (4, None)],
    ),
    "LATERAL": (
        "SELECT s.k, x.m FROM s, LATERAL (SELECT max(v) AS m FROM r WHERE r.k = s.k) AS x",
        2,
        [("a", 1), ("b", 2)],
    ),
    "TUMBLE in FROM": (
        "SELECT window_start, v FROM TUMBLE(s, ts, INTERVAL 2 SECONDS)",
        3,
        [("00:00:00", 1), ("00:00:02", 2), ("00:00:02", 3)],
    ),
    "TUMBLE with Flink's names": (
        "SELECT window_end, count(*) AS c FROM TABLE(TUMBLE(DATA => TABLE s, "
        "TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL 2 SECONDS)) GROUP BY window_end",
        3,
        [("00:00:02", 1), ("00:00:04", 2)],
    ),
    "HOP in FROM": (
        "SELECT window_start, v FROM HOP(s, ts, INTERVAL 1 SECOND, INTERVAL 2 SECONDS)",
        2,
        [("00:00:00", 1), ("00:00:01", 1), ("00:00:01", 2), ("00:00:02", 2)],
    ),
    "GROUP BY TUMBLE": (
        "SELECT TUMBLE_START(ts, INTERVAL 2 SECONDS) AS t, sum(v) AS total FROM s"
        " GROUP BY TUMBLE(ts, INTERVAL 2 SECONDS)",
        3,
        [("00:00:00", 1), ("00:00:02", 5)],
    ),
    "DISTINCT ON": (
        "SELECT DISTINCT ON (k) k, v FROM s ORDER BY k, v DESC",
        3,
        [("a", 3), ("b", 2)],
    ),
    "INSERT ... SELECT": ("SELECT sum(v) AS total FROM copied", 3, [(5,)]),
    "columns named in CREATE": ("SELECT key, most FROM named", 5, [("a", 3), ("c", 4)]),
    "bare relations": ("r EXCEPT copied", 3, [("a", 1), ("b", 2), ("c", 3)]),
    "a query in the WHERE of ROWS": (
        "SELECT k, v FROM s [ROWS 2 WHERE k IN (SELECT k FROM r) AND v <> 2]",
        3,
        [("a", 1), ("a", 3)],
    ),
    "PARTITION BY a qualified column": (
        "SELECT k, v FROM s [PARTITION BY s.k ROWS 1]",
        3,
        [("a", 3), ("b", 2)],
    ),
    "a window before the alias": ("SELECT x.v FROM s [RANGE 1 SECOND] AS x", 3, [(3,)]),
    "a window behind the alias": ("SELECT x.v FROM s AS x [RANGE 1 SECOND]", 3, [(3,)]),
    "TIMESTAMPTZ": (
        "SELECT v FROM s WHERE z = TIMESTAMPTZ '1970-01-01 02:00:03+02:00'",
        3,
        [(3,)],
    ),
    "arrays": ("SELECT tags[1] AS first, len(tags) AS many FROM s WHERE v = 1", 3, [("a", 2)]),
    "structs": ("SELECT place.y FROM s WHERE place.x = 2", 3, [("b",)]),
    "JSON": ("SELECT j -> 'u' ->> 'id' AS id, j ->> 'n' AS n FROM s WHERE v = 3", 3, [("a", "3")]),
    "a computed column": ("SELECT max(ts) AS last FROM s", 3, [("00:00:03",)]),
    "NOT NULL": ("SELECT count(*) AS rejects FROM s$rejects", 5, [(0,)]),
}
#: Form: (query, what the error says). docs/spec/left_open.md gives the reasons.
REFUSED = {
    "a non-retroactive relation that a log feeds": (
        "CREATE NON RETROACTIVE RELATION fed (t TIMESTAMP, k STRING, PRIMARY KEY (k)) "
        "TIMESTAMP BY t",
        "NON RETROACTIVE",
    ),
    "a non-retroactive relation joined with groups": (
        "SELECT x.c FROM (SELECT k, count(*) AS c FROM s GROUP BY k) AS x JOIN n ON n.k = x.k",
        "no stream beside it",
    ),
    "a non-retroactive relation before a RIGHT JOIN": (
        "SELECT n.v FROM n RIGHT JOIN s ON n.k = s.k",
        "RIGHT or FULL",
    ),
}

#: The last second that has happened when each form is registered once more. It is not final then,
#: so its changes are delivered, and those of the seconds before it are not.
_LATE = 3
#: After all elements.
_LATER = "TIMESTAMP '1970-01-01 00:01:00'"


def tell(opened: Pond | OraclePond) -> None:
    """Let all elements and updates happen."""
    opened.execute(DECLARATIONS)
    for number, (query, _, _) in enumerate(FORMS.values()):
        opened.execute(f"CREATE QUERY q{number} WITH (changes = 'from beginning') AS {query}")
    for second in range(1, 9):
        rows = [make_row(*element) for element in ELEMENTS if element[0] == second]
        if rows:
            assert opened.ingest("s", rows).rejected == 0
        prices = [(k, price) for at, k, price in PRICES if at == second]
        for k, price in prices:
            opened.execute(f"INSERT INTO p VALUES ({at(second)}, '{k}', {price})")
        if second == 4:
            opened.execute(f"INSERT INTO n VALUES ('b', 20) AT {at(5)}")
        if second == _LATE and isinstance(opened, Pond):
            # A query over a query that is a stream begins where that stream's elements have come.
            opened.catch_up()
            for number, (query, _, _) in enumerate(FORMS.values()):
                opened.execute(f"CREATE QUERY late{number} AS {query}")
    for stream in "sp":
        opened.execute(f"HEARTBEAT {stream} AT {_LATER}")
    opened.catch_up()


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    clock = ManualClock()
    with open_local(Path(tmp_path_factory.mktemp("forms")) / "store", clock) as opened:
        tell(opened)
        yield opened


@pytest.fixture(scope="module")
def oracle() -> OraclePond:
    naive = OraclePond(ManualClock())
    tell(naive)
    return naive


def at(second: int) -> str:
    return f"TIMESTAMP '1970-01-01 00:00:{second:02}'"


def make_row(second: int, k: str, v: int) -> dict[str, Any]:
    return {
        "at": float(second),
        "k": k,
        "v": v,
        "tags": [k, "x"],
        "place": {"x": v, "y": k},
        "j": f'{{"u": {{"id": "{k}"}}, "n": {v}}}',
        "z": f"1970-01-01 01:00:{second:02}+01:00",
    }


def answer(pond: Pond | OraclePond, name: str, second: int) -> Counter[tuple[str, ...]]:
    (result,) = pond.execute(f"INVOKE {name} AT {at(second)}")
    assert result.answer is not None
    return Counter(map(tuple, cells.show_rows(result.answer.rows())))


def fold(
    changes: list[tuple[Any, ...]], second: int, before: Mapping[tuple[str, ...], int] | None = None
) -> Counter[tuple[str, ...]]:
    """Add the changes up to a second to the answer before them."""
    folded = Counter(before)
    for _, when, sign, *row in changes:
        if when <= parse_instant(f"1970-01-01 00:00:{second:02}"):
            folded[tuple(cells.show_rows([tuple(row)])[0])] += 1 if sign == "+" else -1
    return +folded


@pytest.mark.parametrize("form", FORMS)
def test_the_form_is_answered_and_its_changes_are_the_answer(pond: Pond, form: str) -> None:
    name = f"q{list(FORMS).index(form)}"
    _, second, rows = FORMS[form]
    assert answer(pond, name, second) == Counter(map(tuple, cells.show_rows(rows)))
    (fetched,) = pond.execute(f"FETCH {name}")
    changes = fetched.changes.rows()
    assert changes, "an answer that never changed cannot show that changes are right"
    for instant in range(9):
        assert fold(changes, instant) == answer(pond, name, instant), f"at second {instant}"


@pytest.mark.parametrize("form", FORMS)
def test_changes_from_a_registration_on_add_up_from_the_answer_before_it(
    pond: Pond, form: str
) -> None:
    name = f"late{list(FORMS).index(form)}"
    (fetched,) = pond.execute(f"FETCH {name}")
    assert fetched.changes is not None
    changes = fetched.changes.rows()
    assert all(when >= parse_instant(f"1970-01-01 00:00:{_LATE:02}") for _, when, *_ in changes)
    for instant in range(_LATE, 9):
        assert fold(changes, instant, answer(pond, name, _LATE - 1)) == answer(pond, name, instant)


@pytest.mark.parametrize("form", [f for f in FORMS if "SAMPLE" not in f])  # it samples nothing
def test_the_form_is_what_the_oracle_says(pond: Pond, oracle: OraclePond, form: str) -> None:
    name = f"q{list(FORMS).index(form)}"
    for instant in range(9):
        assert answer(pond, name, instant) == answer(oracle, name, instant), f"second {instant}"


@pytest.mark.parametrize("form", REFUSED)
def test_the_form_is_refused_with_its_reason(pond: Pond, form: str) -> None:
    query, said = REFUSED[form]
    with pytest.raises(MillpondError) as caught:
        pond.execute(query)
    assert caught.value.code == "CQL-301"
    assert said in caught.value.render()
    assert caught.value.hint


def test_an_element_without_a_value_that_is_not_null_is_rejected(pond: Pond) -> None:
    late = {**make_row(60, "a", 1), "at": 61.0, "k": None}
    assert pond.ingest("s", [late]).rejected == 1
