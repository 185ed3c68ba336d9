"""A parameter is a value: as a key of ORDER BY, GROUP BY or DISTINCT ON it is refused."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import date

import pytest

from millpond.cql.print.parameters import fill_constants, write_constant
from millpond.errors import MillpondError
from millpond.service.queries.parameter_places import check_places

KEYS = [
    "SELECT v FROM s ORDER BY $x",
    "SELECT v, k FROM s ORDER BY v DESC, /* then */ ($x) DESC LIMIT 2",
    "SELECT count(*) AS n FROM s GROUP BY $x",
    "SELECT count(*) AS n FROM s GROUP BY GROUPING SETS ((k, $x), (v))",
    "SELECT count(*) AS n FROM s GROUP BY ROLLUP (k, $x)",
    "SELECT DISTINCT ON ($x) v FROM s",
    "SELECT v FROM (SELECT v FROM s ORDER BY $x LIMIT 1) AS t",
    "SELECT v FROM s UNION SELECT 3 AS v ORDER BY $x",
    "SELECT v FROM s ORDER BY -- by\n $x",
    "\n CREATE QUERY made AS SELECT v FROM s ORDER BY $x;",
]
#: Beside keys, and in keys of other things than an answer's rows.
OTHERS = [
    "SELECT v FROM s WHERE v IN ($x, 2) ORDER BY abs(v - $x), v LIMIT 3",
    "SELECT row_number() OVER (ORDER BY $x, v) AS n FROM s GROUP BY v, k",
    "SELECT count(*) AS n FROM s GROUP BY v + $x HAVING count(*) > $x",
    "SELECT v FROM s ORDER BY v LIMIT $x",
    "this is $x no query ORDER BY $x",
]
VALUES = [1, -1, "k", date(2026, 1, 1)]


def check(text: str, value: object) -> None:
    constants: Mapping[str, str] = {"x": write_constant(value)}
    check_places(text, constants, fill_constants(text, constants))


def test_a_value_is_never_the_place_of_a_column() -> None:
    for text, value in itertools.product(KEYS, VALUES):
        with pytest.raises(MillpondError, match='"\\$x" stands where a column') as caught:
            check(text, value)
        span = caught.value.span
        assert span is not None
        assert text[span.start : span.end] == "$x"


def test_elsewhere_it_is_a_value() -> None:
    for text, value in itertools.product(OTHERS, VALUES):
        check(text, value)
