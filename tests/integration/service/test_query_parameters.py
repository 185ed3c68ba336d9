"""Values of parameters are changed: the query keeps its id, and no value is spliced."""

from __future__ import annotations

import datetime

import pytest
from tests.unit.service.conftest import OpenPond, rows, values

from millpond.errors import MillpondError
from millpond.service.pond import Pond

TEXT = "SELECT v FROM s WHERE v < $most AND k <> $not"
TEXTS = {"query": TEXT, "statement": f"CREATE QUERY q WITH (weight = 3) AS {TEXT};"}


@pytest.fixture
def pond(pond: Pond) -> Pond:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER, k STRING) TIMESTAMP BY ts")
    pond.ingest("s", [{**row, "k": "it's"} for row in rows(1, 2, 3, 4)])
    pond.catch_up()
    return pond


@pytest.mark.parametrize("form", TEXTS)
def test_parameters_are_changed_one_by_one(pond: Pond, open_pond: OpenPond, form: str) -> None:
    query = pond.register(TEXTS[form], "q", params={"most": 1, "not": "x"})
    id, options = query.id, query.definition.options
    assert values(query.invoke()) == [0]
    query.alter(params={"most": 2})
    assert values(query.invoke()) == [0, 1]
    query = open_pond().query("q")
    query.alter(params={"not": "it's"})
    assert values(query.invoke()) == []
    query.alter(params={"not": "' OR 1 = 1 --", "most": 3}, tags="a")
    assert values(query.invoke()) == [0, 1, 2]
    assert (query.id, query.definition.options) == (id, {**options, "tags": "a"})
    assert query.definition.text.endswith("WHERE v < 3 AND k <> ''' OR 1 = 1 --'")


def test_of_a_table_of_parameters_each_query_has_its_own(pond: Pond) -> None:
    table = [{"a": 0, "name": "one"}, {"a": 1, "name": "two"}]
    one, two = pond.register_table("SELECT v FROM s WHERE v = $a", table)
    two.alter(params={"a": 3})
    assert (values(one.invoke()), values(two.invoke())) == ([0], [3])


@pytest.mark.parametrize(
    ("given", "code"),
    [({"no": 1}, "CQL-103"), ({"most": object()}, "CQL-103"), (5, "CQL-103")],
    ids=["no such parameter", "no constant", "no names"],
)
def test_what_is_refused_changes_nothing(pond: Pond, given: object, code: str) -> None:
    query = pond.register(TEXTS["query"], "q", params={"most": 1, "not": "x"})
    epoch = pond.status()["epoch"]
    with pytest.raises(MillpondError, match=code):
        query.alter(params=given)
    query.alter(params={"most": 1})  # as it is
    assert pond.status()["epoch"] == epoch
    assert values(query.invoke()) == [0]


def test_a_query_without_parameters_is_refused(pond: Pond) -> None:
    plain = pond.register("SELECT v FROM s", "plain")
    with pytest.raises(MillpondError, match=r"CQL-103.*has no parameters"):
        plain.alter(params={"a": 1})
    pond.execute("CREATE OR REPLACE QUERY plain AS SELECT k FROM s")
    with pytest.raises(MillpondError, match="CQL-103"):
        plain.alter(params={"a": 1})


def test_dates_are_constants_of_their_types(pond: Pond) -> None:
    query = pond.register("SELECT v FROM s WHERE ts < $at", params={"at": "1970-01-01 00:00:02"})
    assert values(query.invoke()) == [0]
    query.alter(params={"at": datetime.datetime(1970, 1, 1, 0, 0, 4)})
    assert values(query.invoke()) == [0, 1, 2]


def test_a_parameter_is_no_key(pond: Pond) -> None:
    query = pond.register("SELECT v FROM s ORDER BY v LIMIT $x", "q", params={"x": 1})
    for text in ("SELECT v, k FROM s ORDER BY $x", "CREATE QUERY r AS SELECT v FROM s ORDER BY $x"):
        with pytest.raises(MillpondError, match="stands where a column"):
            pond.register(text, params={"x": 1})
    query.alter(params={"x": 2})
    assert values(query.invoke()) == [0, 1]


def test_beside_keys_a_value_is_a_value(pond: Pond) -> None:
    text = (
        "SELECT v, row_number() OVER (ORDER BY $a, v) AS n FROM s WHERE v IN ($a, $b)"
        " ORDER BY abs(v - $b), v LIMIT $c"
    )
    query = pond.register(text, "q", params={"a": 1, "b": 2, "c": 1})
    assert query.invoke().rows() == [(2, 2)]
    query.alter(params={"a": 3, "c": 2})
    assert query.invoke().rows() == [(2, 1), (3, 2)]
