"""CREATE OR REPLACE QUERY: the id stays, and every answer is the new definition's."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import OpenPond, rows, values

from millpond.errors import MillpondError
from millpond.service.pond import Pond

SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE RELATION r (k INTEGER)
"""


@pytest.fixture
def pond(pond: Pond) -> Pond:
    pond.execute(SCHEMA)
    pond.ingest("s", rows(1, 2, 3, 4))
    pond.ingest("t", rows(1, 2))
    pond.execute("INSERT INTO r VALUES (2), (3)")
    pond.catch_up()
    return pond


#: Definitions that a query goes through, one after the other, with what each answers.
TEXTS = [
    ("SELECT v FROM s WHERE v > 1", [2, 3]),
    ("SELECT v FROM s WHERE v < 1", [0]),
    ("SELECT v FROM t", [0, 1]),
    ("SELECT s.v FROM s, t WHERE s.v = t.v", [0, 1]),
    ("SELECT s.v FROM s [ROWS 2], t WHERE s.v = t.v + 2", [2, 3]),
    ("SELECT k FROM r", [2, 3]),
    ("SELECT sum(v) AS n FROM s", [6]),
    ("SELECT count(*) AS n FROM s WHERE v > 1", [2]),
    ("SELECT max(n) AS m FROM ISTREAM(SELECT count(*) AS n FROM s [ROWS 9]) [ROWS 9] AS c", [4]),
    ("SELECT v FROM s WHERE v > 1", [2, 3]),
]


@pytest.mark.parametrize("materialize", ["lazy", "none", "eager"])
def test_a_query_is_every_definition_it_gets(
    pond: Pond, open_pond: OpenPond, materialize: str
) -> None:
    ids = set()
    for text, expected in TEXTS:
        pond.execute(f"CREATE OR REPLACE QUERY q WITH (materialize = '{materialize}') AS {text}")
        pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:09'")
        pond.catch_up()
        if expected == [0, 1]:
            pond = open_pond()
        for _ in range(2):
            assert values(pond.query("q").invoke()) == expected, text
        ids.add(pond.query("q").id)
        pond.wait_until_matched()
        assert values(pond.query("q").invoke()) == expected, text
    assert len(ids) == 1
    assert {s.name for s in pond.streams()} == {"s", "t"}


def test_earlier_instants_are_answered_by_the_new_definition(pond: Pond) -> None:
    pond.execute("CREATE QUERY q AS SELECT v FROM s WHERE v > 1")
    pond.execute("CREATE OR REPLACE QUERY Q AS SELECT v FROM s WHERE v < 1")
    assert values(pond.query("q").invoke(at="1970-01-01 00:00:01")) == [0]
    assert pond.query("q").name == "q"


def test_options_are_those_of_the_new_statement(pond: Pond) -> None:
    pond.execute("CREATE QUERY q WITH (weight = 2, tags = 'a') AS SELECT v FROM s")
    (done,) = pond.execute("CREATE OR REPLACE QUERY q WITH (weight = 3) AS SELECT v FROM s")
    assert done.message == "query q: replaced"
    assert pond.query("q").definition.options == {"weight": 3}
    epoch = pond.status()["epoch"]
    (again,) = pond.execute("CREATE OR REPLACE QUERY q WITH (weight = 3) AS SELECT  v  FROM s")
    assert again.message == "query q: is there already"
    assert pond.status()["epoch"] == epoch
    (new,) = pond.execute("CREATE OR REPLACE QUERY other AS SELECT v FROM s")
    assert new.message == "query other: registered"


def test_changes_begin_with_the_replacement(pond: Pond) -> None:
    pond.execute("CREATE QUERY q AS SELECT v FROM s WHERE v > 100")
    pond.ingest("s", rows(5, 6))
    pond.catch_up()
    pond.execute("CREATE OR REPLACE QUERY q AS SELECT v FROM s")
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:07'")
    pond.ingest("s", [{"ts": rows(8)[0]["ts"], "v": 42}])
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:09'")
    pond.catch_up()
    assert [c.row for c in pond.query("q").fetch()] == [(1,), (42,)]


def test_a_followed_query_gets_other_options(pond: Pond) -> None:
    pond.execute("CREATE QUERY q AS SELECT v FROM s")
    cursor = pond.query("q").fetch().cursor
    pond.execute("CREATE OR REPLACE QUERY q AS SELECT v FROM s")
    pond.execute("CREATE OR REPLACE QUERY q WITH (weight = 2) AS SELECT v FROM s")
    assert pond.query("q").definition.options == {"weight": 2}
    assert pond.query("q").fetch(cursor).redefined is None


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("CREATE OR REPLACE QUERY s AS SELECT v FROM t", "CQL-208"),
        ("CREATE OR REPLACE QUERY q AS SELECT nothing FROM t", "CQL-202"),
        ("CREATE OR REPLACE QUERY q WITH (weight = 0) AS SELECT v FROM t", "CQL-214"),
        ("CREATE OR REPLACE STREAM s (a INT)", "CQL-103"),
    ],
)
def test_what_is_refused_changes_nothing(pond: Pond, statement: str, code: str) -> None:
    pond.execute("CREATE QUERY q AS SELECT v FROM s WHERE v > 2")
    with pytest.raises(MillpondError, match=code):
        pond.execute(statement)
    assert values(pond.query("q").invoke()) == [3]


@pytest.mark.parametrize("word", ["OR REPLACE QUERY", "QUERY IF NOT EXISTS"])
def test_registering_by_text_does_not_replace(pond: Pond, word: str) -> None:
    with pytest.raises(MillpondError, match="CQL-216"):
        pond.register(f"CREATE {word} q AS SELECT v FROM s")
