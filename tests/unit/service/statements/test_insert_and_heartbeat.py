"""INSERT and HEARTBEAT: to what they can be said, and what the rows must have."""

from __future__ import annotations

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond


@pytest.fixture
def pond(pond: Pond) -> Pond:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE RELATION r (k INTEGER, v INTEGER, PRIMARY KEY (k));"
        "CREATE RELATION view AS SELECT v FROM r;"
        "CREATE RELATION fed (k INTEGER, PRIMARY KEY (k)) USING push OPTIONS (op_column 'op');"
        "CREATE QUERY q AS SELECT v FROM s"
    )
    return pond


AT = "TIMESTAMP '1970-01-01 00:00:{:02}'"


def test_rows_of_streams_are_pushed(pond: Pond) -> None:
    (result,) = pond.execute(
        f"INSERT INTO s (v, ts) VALUES (7, {AT.format(1)}), (8, NULL), (9, {AT.format(2)})"
    )
    assert result.message is not None
    assert result.message.startswith("s: 2 accepted, 1 rejected (")
    # A later statement sees what an earlier one pushed.
    assert sorted(pond.ask("SELECT v FROM s").rows()) == [(7,), (9,)]


def test_rows_of_relations_are_there_from_an_instant_on(pond: Pond) -> None:
    (result,) = pond.execute(f"INSERT INTO r VALUES (1, 2), (3, 4) AT {AT.format(5)}")
    assert result.message == "r: 2 rows inserted"
    pond.register("SELECT v FROM r", "over_r")
    assert pond.query("over_r").invoke(at=4_999_999).rows() == []
    assert sorted(pond.query("over_r").invoke(at=5_000_000).rows()) == [(2,), (4,)]


def test_a_heartbeat_is_what_final_goes_by(pond: Pond) -> None:
    pond.execute(f"INSERT INTO s VALUES ({AT.format(1)}, 7)")
    assert not pond.query("q").invoke(at=9_000_000).final
    (result,) = pond.execute(f"HEARTBEAT s AT {AT.format(10)}")
    assert result.message is not None
    assert result.message.startswith("s: no element before 1970-01-01 00:00:10")
    assert pond.query("q").invoke(at=9_999_999).final
    assert not pond.query("q").invoke(at=10_000_000).final
    (result,) = pond.execute(f"INSERT INTO s VALUES ({AT.format(9)}, 8)")
    assert "1 rejected" in (result.message or "")
    with pytest.raises(MillpondError):
        pond.execute(f"HEARTBEAT s AT {AT.format(3)}")


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        ("INSERT INTO t VALUES (1)", "CQL-201", "no stream or relation"),
        ("INSERT INTO q VALUES (1)", "CQL-201", "no stream or relation"),
        ("INSERT INTO s$rejects VALUES (1)", "CQL-216", "INSERT INTO s."),
        ("INSERT INTO view VALUES (1)", "CQL-216", "Change the relations its query reads."),
        (
            "INSERT INTO fed VALUES (1)",
            "CQL-216",
            "INTO fed$changes, with the columns k, op.",
        ),
        ("UPDATE fed SET k = 1", "CQL-216", "UPDATE of derived relation"),
        ("DELETE FROM view", "CQL-216", "DELETE of derived relation"),
        ("DELETE FROM s", "CQL-216", "append-only"),
        ("UPDATE s SET v = 1", "CQL-216", "UPDATE of stream"),
        ("INSERT INTO s (ts, w) VALUES (NULL, 1)", "CQL-202", "w"),
        ("INSERT INTO s (v, V) VALUES (1, 2)", "CQL-209", "named twice"),
        ("INSERT INTO s VALUES (NULL), (NULL)", "CQL-217", "1 values for 2 columns"),
        (f"INSERT INTO s VALUES (NULL, 1) AT {AT.format(1)}", "CQL-103", "Leave out AT TIMESTAMP."),
        (f"HEARTBEAT r AT {AT.format(1)}", "CQL-216", "is a relation, not a stream"),
        (f"HEARTBEAT s$rejects AT {AT.format(1)}", "CQL-216", "written by Millpond itself"),
    ],
)
def test_what_is_refused(pond: Pond, statement: str, code: str, words: str) -> None:
    with pytest.raises(MillpondError) as failure:
        pond.execute(statement)
    assert failure.value.code == code
    assert words in str(failure.value)
    assert failure.value.span is not None
    assert pond.ask("SELECT count(*) FROM s").rows() == [(0,)]
