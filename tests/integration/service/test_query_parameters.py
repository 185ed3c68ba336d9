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


# -- in CQL ----------------------------------------------------------------------------------------

STATED = f"CREATE QUERY q WITH (weight = 3, $most = 1, $not = 'x') AS\n  {TEXT};"


@pytest.mark.parametrize("way", ["statement", "registered", "beside"])
def test_show_create_makes_a_query_whose_parameters_can_be_changed(
    pond: Pond, open_pond: OpenPond, way: str
) -> None:
    if way == "statement":
        pond.execute(STATED)
    elif way == "registered":
        pond.register(STATED)
    else:
        pond.register(f"{TEXT} -- as it is", "q", params={"most": 1, "not": "x"}, weight=3)
    assert values(pond.query("q").invoke()) == [0]
    described = pond.query("q").describe()
    assert described["template"].split(" --")[0] == TEXT
    assert described["parameters"] == {"most": "1", "not": "'x'"}
    (shown,) = pond.execute("SHOW CREATE QUERY q")
    assert shown.text == STATED.replace("\n ", "")
    (done,) = pond.execute(shown.text.replace("QUERY q", "QUERY IF NOT EXISTS q"))
    assert done.message == "query q: is there already"
    pond.execute("DROP QUERY q")
    pond.execute(shown.text)
    pond.execute("ALTER QUERY q SET ($most = 3, $not = 'it''s')")
    assert values(pond.query("q").invoke()) == []
    pond = open_pond()
    pond.execute("ALTER QUERY q SET ($not = NULL, weight = 4)")
    pond.query("q").alter(params={"not": "y"})
    assert values(pond.query("q").invoke()) == [0, 1, 2]
    shown = pond.execute("SHOW CREATE QUERY q")[0]
    assert shown.text is not None
    assert "(weight = 4, $most = 3, $not = 'y')" in shown.text


CONSTANTS = (
    "-1, 1.50, 'a''b', TRUE, false, null, DATE '2026-01-01', TIMESTAMP '2026-01-01 10:00:00', "
    "(-2e3)"
)


@pytest.mark.parametrize("constant", CONSTANTS.split(", "))
def test_every_constant_can_be_a_value_in_cql(pond: Pond, constant: str) -> None:
    pond.execute(f"CREATE QUERY q WITH ($x = {constant}) AS SELECT v, $x AS x FROM s [ROWS 1]")
    (given,) = pond.query("q").invoke().table["x"].to_pylist()
    (plain,) = pond.ask(f"SELECT {constant} AS x FROM s [ROWS 1]").table["x"].to_pylist()
    assert given == plain
    (shown,) = pond.execute("SHOW CREATE QUERY q")
    pond.execute("DROP QUERY q")
    pond.execute(str(shown.text))
    assert pond.execute("SHOW CREATE QUERY q")[0].text == shown.text


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("CREATE QUERY q AS SELECT v FROM s WHERE v < $most", "CQL-102", '"$most" has no value'),
        ("CREATE QUERY q WITH ($a = 1) AS SELECT $a, $b FROM s", "CQL-102", '"$b" has'),
        (
            "CREATE QUERY q WITH ($a = 1, $b = 2) AS SELECT $a FROM s",
            "CQL-103",
            'parameter "$b"',
        ),
        ("CREATE QUERY q WITH ($a = 1, $a = 2) AS SELECT $a FROM s", "CQL-103", "given twice"),
        ("CREATE QUERY q WITH ($a = v) AS SELECT $a FROM s", "CQL-103", "the value of $a"),
        (
            "CREATE QUERY q WITH ($a = 1 + 1) AS SELECT $a FROM s",
            "CQL-103",
            "behind",
        ),
        (
            "CREATE QUERY q WITH ($a = 1) AS SELECT v FROM s GROUP BY $a",
            "CQL-103",
            "column is named",
        ),
        ("CREATE QUERY q WITH ($a = 's') AS SELECT v FROM $a", "CQL-103", ""),
        ("CREATE STREAM x (a INT) WITH ($a = 1)", "CQL-103", ""),
        ("ALTER STREAM s SET ($a = 1)", "CQL-103", ""),
        ("SELECT $a FROM s", "CQL-102", '"$a" has no value'),
    ],
)
def test_what_is_wrong_with_parameters_in_cql_is_said(
    pond: Pond, statement: str, code: str, said: str
) -> None:
    with pytest.raises(MillpondError) as raised:
        pond.execute(statement)
    assert (raised.value.code, said in raised.value.primary) == (code, True), raised.value.render()
    with pytest.raises(MillpondError, match="CQL-201"):
        pond.query("q")


def test_a_value_in_cql_stays_a_value(pond: Pond) -> None:
    given = "($k = ''' OR 1 = 1 --', $w = 2)"
    pond.execute(f"CREATE QUERY q WITH {given} AS SELECT v FROM s [ROWS 9] WHERE k = $k OR v = $w")
    assert values(pond.query("q").invoke()) == [2]


def test_values_in_the_text_and_beside_it_are_refused(pond: Pond) -> None:
    with pytest.raises(MillpondError, match=r"CQL-103: the parameters have values twice"):
        pond.register(STATED, params={"most": 1, "not": "y"})
    with pytest.raises(MillpondError, match="CQL-201"):
        pond.query("q")


@pytest.mark.parametrize("followed", [False, True])
def test_the_same_text_with_parameters_and_without_is_another_definition(
    pond: Pond, followed: bool
) -> None:
    plain = "CREATE OR REPLACE QUERY q AS SELECT v FROM s WHERE v < 1"
    stated = "CREATE OR REPLACE QUERY q WITH ($most = 1) AS SELECT v FROM s WHERE v < $most"
    pond.execute(plain)
    if followed:
        pond.query("q").fetch()
    pond.execute(stated)
    assert pond.query("q").describe()["parameters"] == {"most": "1"}
    pond.query("q").alter(params={"most": 3})
    assert values(pond.query("q").invoke()) == [0, 1, 2]
    pond.query("q").alter(params={"most": 1})
    pond.execute(plain)
    assert pond.query("q").describe()["template"] is None
    assert values(pond.query("q").invoke()) == [0]
