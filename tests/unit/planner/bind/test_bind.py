"""The answer's columns, and when the residual is but a projection."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millpond.planner.bind.bound_query import BoundQuery

Binding = Callable[[str], BoundQuery]


def _columns(bound: BoundQuery) -> list[tuple[str, str]]:
    return [(f.name, f.type) for f in bound.output.fields]


def test_names_and_types_are_duckdbs(binding: Binding) -> None:
    bound = binding(
        "SELECT carrier, avg(delay), count(*) AS n, sum(seats) FROM flights, planes GROUP BY 1"
    )
    assert _columns(bound) == [
        ("carrier", "VARCHAR"),
        ("avg(delay)", "DOUBLE"),
        ("n", "BIGINT"),
        ("sum(seats)", "HUGEINT"),
    ]


def test_names_come_as_declared(binding: Binding) -> None:
    assert binding("SELECT DELAY, Origin AS Place FROM flights").output.names == ("delay", "Place")


def test_names_are_made_distinct(binding: Binding) -> None:
    bound = binding('SELECT delay, Delay, delay AS "DELAY", origin AS delay_1 FROM flights')
    assert bound.output.names == ("delay", "delay_2", "DELAY_3", "delay_1")
    assert bound.projection == (
        ("delay", "delay"),
        ("delay", "delay_2"),
        ("delay", "DELAY_3"),
        ("origin", "delay_1"),
    )
    bound = binding("SELECT * FROM flights f JOIN planes p ON f.tailnum = p.tailnum")
    assert bound.output.names[-4:] == ("tailnum", "tailnum_1", "model", "seats")


PROJECTIONS = [
    ("SELECT carrier, delay AS d FROM flights", (("carrier", "carrier"), ("delay", "d"))),
    ("SELECT f.delay FROM flights [RANGE 1 HOUR] f WHERE f.delay > 3", (("delay", "delay"),)),
    ("SELECT delay FROM flights [NOW WHERE delay > 3] SAMPLE(10)", (("delay", "delay"),)),
    ("SELECT delay FROM flights [ROWS 3 WHERE delay > 3]", (("delay", "delay"),)),
    (
        "SELECT delay FROM flights [PARTITION BY dest ROWS 3] WHERE delay > 3",
        (("delay", "delay"),),
    ),
    ("SELECT delay FROM flights WHERE lower(dest) = 'sfo' OR delay IS NULL", (("delay", "delay"),)),
    ("SELECT delay FROM flights BEGIN NOW - 1 HOUR END NOW", (("delay", "delay"),)),
    ("ISTREAM(SELECT delay FROM flights [NOW])", (("delay", "delay"),)),
]


@pytest.mark.parametrize(("text", "projection"), PROJECTIONS)
def test_projection(binding: Binding, text: str, projection: tuple[tuple[str, str], ...]) -> None:
    assert binding(text).projection == projection


def test_star_is_a_projection_of_all(binding: Binding) -> None:
    names = ("ts", "origin", "wind", "temp")
    for text in ("SELECT * FROM weather", "SELECT w.* FROM weather w WHERE wind > 3"):
        assert binding(text).projection == tuple((n, n) for n in names)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT delay + 1 FROM flights",
        "SELECT DISTINCT delay FROM flights",
        "SELECT delay FROM flights ORDER BY delay",
        "SELECT delay FROM flights LIMIT 3",
        "SELECT delay FROM flights GROUP BY delay",
        "SELECT count(*) FROM flights",
        "SELECT delay FROM flights [ROWS 3 WHERE delay > 1] WHERE delay > 3",
        "SELECT delay FROM flights [PARTITION BY dest ROWS 3 WHERE delay > 1] WHERE delay > 3",
        "SELECT delay FROM (SELECT delay FROM flights) t",
        "WITH c AS (SELECT delay FROM flights) SELECT delay FROM c",
        "SELECT delay FROM flights UNION ALL SELECT delay FROM flights",
        "SELECT delay FROM flights, weather",
        "SELECT delay FROM flights WHERE delay > (SELECT 3)",
        "SELECT delay FROM flights WHERE EXISTS (SELECT 1 FROM planes)",
        "SELECT model FROM planes",
        "SELECT delay AS d FROM flights WHERE d > 3",
        "SELECT 1",
    ],
)
def test_no_projection(binding: Binding, text: str) -> None:
    assert binding(text).projection is None
