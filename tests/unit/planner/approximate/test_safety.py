"""What is called safe is checked with the oracle: on small bags, less of it gives less."""

# ruff: noqa: E501 - queries are as long as they are
from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.unit.planner.conftest import StaticNames, stream

from millpond.cql import parse_query
from millpond.planner.approximate.safety import find_obstacle
from millpond.planner.bind.bind import bind
from millpond.planner.bind.bound_query import BoundQuery

STREAMS = ("s", "t", "u")
CREATE = "".join(
    f"CREATE STREAM {name} (ts TIMESTAMP, a INTEGER, b INTEGER) TIMESTAMP BY ts;"
    for name in STREAMS
)
NAMES = StaticNames(
    *(stream(n, name, "ts TIMESTAMP, a INTEGER, b INTEGER") for n, name in enumerate(STREAMS, 1))
)

#: Queries, each with the streams that may be reduced in it.
QUERIES = {
    "SELECT a, b FROM s": "s",
    "SELECT a + b AS c FROM s [RANGE 1 HOUR] WHERE a > 0": "s",
    "SELECT DISTINCT a FROM s [RANGE 1 HOUR]": "s",
    "SELECT s.a, t.b FROM s [RANGE 1 HOUR], t [RANGE 1 HOUR] WHERE s.a = t.a": "st",
    "SELECT s.a, t.b FROM s JOIN t ON s.a = t.a JOIN u ON u.b = t.b": "stu",
    "SELECT s.a, t.b FROM s LEFT JOIN t ON s.a = t.a": "s",
    "SELECT s.a, t.b FROM s RIGHT JOIN t ON s.a = t.a": "t",
    "SELECT s.a, t.b FROM s FULL JOIN t ON s.a = t.a": "",
    "SELECT s.a, u.b FROM s JOIN t ON s.a = t.a LEFT JOIN u ON u.b = t.b": "st",
    "SELECT s.a, u.b FROM s LEFT JOIN t ON s.a = t.a JOIN u ON u.b = s.b": "stu",
    "SELECT s.a, u.b FROM s LEFT JOIN t ON s.a = t.a JOIN u ON u.b = s.b OR t.b IS NULL": "su",
    "SELECT s.a FROM s LEFT JOIN t ON s.a = t.a WHERE t.b IS NULL": "s",
    "SELECT * FROM s LEFT JOIN t ON s.a = t.a": "s",
    "SELECT s.a FROM s SEMI JOIN t ON s.a = t.a": "st",
    "SELECT s.a FROM s ANTI JOIN t ON s.a = t.a": "s",
    "SELECT a FROM s UNION ALL SELECT a FROM t": "st",
    "SELECT a FROM s UNION SELECT a FROM t": "st",
    "SELECT a FROM s INTERSECT SELECT a FROM t": "st",
    "SELECT a FROM s INTERSECT ALL SELECT a FROM t": "st",
    "SELECT a FROM s EXCEPT SELECT a FROM t": "s",
    "SELECT a FROM s EXCEPT ALL SELECT a FROM t": "s",
    "SELECT a FROM s EXCEPT (SELECT a FROM t EXCEPT SELECT a FROM u)": "su",
    "SELECT a FROM s EXCEPT ALL (SELECT a FROM t EXCEPT ALL SELECT a FROM u)": "su",
    "SELECT a FROM s WHERE a NOT IN (SELECT a FROM t WHERE a NOT IN (SELECT a FROM u))": "su",
    "SELECT a FROM s WHERE NOT (b = 1 AND NOT a IN (SELECT a FROM t))": "st",
    "WITH x AS (SELECT a FROM u) SELECT a FROM s EXCEPT (SELECT a FROM t EXCEPT SELECT a FROM x)": "su",
    "WITH x AS (SELECT a FROM u) SELECT a FROM x EXCEPT (SELECT t.a FROM t, x WHERE t.b = x.a)": "",
    "SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.a = s.a)": "st",
    "SELECT a FROM s WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.a = s.a)": "s",
    "SELECT a FROM s WHERE a IN (SELECT a FROM t)": "st",
    "SELECT a FROM s WHERE b = 1 OR a IN (SELECT b FROM t WHERE t.a > 0)": "st",
    "SELECT a FROM s WHERE a NOT IN (SELECT a FROM t)": "s",
    "SELECT a FROM s WHERE NOT (b = 1 AND a IN (SELECT a FROM t))": "s",
    "SELECT a FROM s WHERE (a IN (SELECT a FROM t)) = (b = 1)": "s",
    "SELECT a FROM s WHERE a IN (SELECT t.a FROM t LEFT JOIN u USING (a) WHERE u.b IS NULL)": "st",
    "SELECT a, a IN (SELECT a FROM t) AS there FROM s": "s",
    "SELECT a FROM s WHERE a > (SELECT min(a) FROM t)": "st",
    "SELECT a FROM s WHERE b = 1 OR a < (SELECT max(t.a) FROM t WHERE t.b >= s.b)": "st",
    "SELECT a FROM s WHERE a > (SELECT max(a) FROM t)": "s",
    "SELECT a FROM s WHERE NOT a > (SELECT min(a) FROM t)": "s",
    "SELECT a FROM s WHERE a > (SELECT min(a) FROM t WHERE a NOT IN (SELECT a FROM u))": "st",
    "SELECT a FROM s WHERE a >= ALL (SELECT a FROM t)": "s",
    "SELECT x.a FROM (SELECT a, b FROM s WHERE b > 0) x JOIN t ON t.a = x.b": "st",
    "SELECT x.a FROM (SELECT count(*) AS a FROM s) x JOIN t ON t.a = x.a": "t",
    "WITH x AS (SELECT a FROM s) SELECT x.a FROM x JOIN t ON x.a = t.a": "st",
    "WITH x AS (SELECT a FROM s) SELECT a FROM t WHERE a NOT IN (SELECT a FROM x)": "t",
    "WITH x AS (SELECT a FROM s) SELECT a FROM x UNION ALL SELECT count(*) FROM x": "",
    "SELECT count(*) FROM s": "",
    "SELECT a, max(b) AS b FROM s GROUP BY a": "",
    "SELECT a FROM s GROUP BY a HAVING count(*) > 1": "s",
    "SELECT a FROM s GROUP BY a": "s",
    "SELECT a FROM s GROUP BY a HAVING count(b) >= 2 AND min(b) < 1": "s",
    "SELECT a FROM s GROUP BY a HAVING max(b) > 1": "s",
    "SELECT a FROM s GROUP BY a HAVING count(*) < 2": "",
    "SELECT a FROM s GROUP BY ROLLUP (a) HAVING count(*) > 1": "s",
    "SELECT a FROM s ORDER BY a LIMIT 2": "",
    "SELECT a FROM s ORDER BY a, b": "s",
    "SELECT DISTINCT ON (a) a, b FROM s ORDER BY a, b": "",
    "SELECT a, row_number() OVER (ORDER BY a, b) AS n FROM s": "",
    "SELECT a, sum(b) OVER () AS n FROM s": "",
    "SELECT a FROM (SELECT a FROM s ORDER BY a LIMIT 1) x": "",
    "SELECT a FROM s UNION ALL (SELECT a FROM t ORDER BY a LIMIT 1)": "s",
}  # fmt: skip
STREAM_VALUED = {
    "ISTREAM(SELECT a FROM s)": "s",
    "ISTREAM(SELECT s.a FROM s, t WHERE s.a = t.a)": "st",
    "ISTREAM(SELECT DISTINCT a FROM s)": "",
    "ISTREAM(SELECT a FROM s UNION SELECT a FROM t)": "",
    "ISTREAM(SELECT a FROM s [RANGE 1 HOUR])": "",
    "ISTREAM(SELECT a FROM s WHERE a IN (SELECT a FROM t))": "",
    "ISTREAM(SELECT a FROM s WHERE a > (SELECT min(a) FROM t))": "",
    "ISTREAM(SELECT a FROM s GROUP BY a HAVING count(*) > 1)": "",
    "RSTREAM(SELECT a FROM s [RANGE 1 HOUR])": "s",
    "RSTREAM(SELECT count(*) FROM s [RANGE 1 HOUR])": "",
    "DSTREAM(SELECT a FROM s [RANGE 1 HOUR])": "",
}


def bind_text(text: str) -> BoundQuery:
    return bind(parse_query(text), text, NAMES)


@pytest.mark.parametrize(("text", "safe"), {**QUERIES, **STREAM_VALUED}.items())
def test_what_may_be_reduced(text: str, safe: str) -> None:
    bound = bind_text(text)
    found = {leaf.stream: find_obstacle(bound, leaf.table) for leaf in bound.streams}
    assert {name for name, obstacle in found.items() if obstacle is None} == set(safe), found
    assert all(obstacle is None or len(obstacle) > 20 for obstacle in found.values())


Bags = dict[str, list[tuple[int | None, int | None]]]


def answer(text: str, bags: Bags) -> Counter[Any]:
    pond = OraclePond()
    pond.execute(CREATE)
    for name, bag in bags.items():
        rows = [{"ts": "2024-01-01 00:00:00", "a": a, "b": b} for a, b in bag]
        if rows:
            pond.ingest(name, rows)
    return Counter(pond.ask(text).rows())


def find_counterexample(text: str, reduced: str, cases: int) -> tuple[Bags, str] | None:
    """Bags of which less, of one stream, gives a row that is not in the answer."""
    generator = random.Random(text)
    names = [name for name in STREAMS if f" {name}" in text]
    for _ in range(cases):
        bags: Bags = {
            name: [
                (generator.choice([0, 1, 1, None]), generator.choice([0, 1, 2]))
                for _ in range(generator.randint(1, 3))
            ]
            for name in names
        }
        whole = answer(text, bags)
        for name in set(reduced) & set(names):
            # Every smaller bag is reached by leaving out one element after the other.
            for place in range(len(bags[name])):
                fewer = {**bags, name: bags[name][:place] + bags[name][place + 1 :]}
                if not answer(text, fewer) <= whole:
                    return bags, name
    return None


@pytest.mark.parametrize(("text", "safe"), [q for q in QUERIES.items() if q[1]])
def test_what_is_called_safe_gives_parts_of_answers(text: str, safe: str) -> None:
    assert find_counterexample(text, safe, 6) is None


#: Of these there is one of each kind in the short suite.
KINDS = (
    "LEFT JOIN t ON s.a = t.a",
    "EXCEPT SELECT a FROM t",
    "NOT EXISTS",
    "LIMIT 2",
    "max(b)",
    "OVER ()",
)


def list_refused() -> Iterator[object]:
    """Every occurrence of a stream that is refused, in every query."""
    for text, safe in QUERIES.items():
        for name in sorted({leaf.stream for leaf in bind_text(text).streams} - set(safe)):
            is_short = text.endswith(KINDS) or any(f" {kind} " in text for kind in KINDS)
            marks = () if is_short else pytest.mark.slow
            yield pytest.param(text, name, marks=marks, id=f"{name} in {text}")


@pytest.mark.parametrize(("text", "refused"), list(list_refused()))
def test_what_is_refused_could_give_rows_that_are_wrong(text: str, refused: str) -> None:
    """So nothing of these is refused without need."""
    assert find_counterexample(text, refused, 60) is not None
