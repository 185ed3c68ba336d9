"""Errors of statements say where: what is wrong in the text, or which statement it was."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import rows

from millpond.errors import MillpondError
from millpond.service.pond import Pond


def marked(pond: Pond, script: str) -> tuple[str, str]:
    """The code of a script's error, and the text it marks."""
    with pytest.raises(MillpondError) as failure:
        pond.execute(script)
    error = failure.value
    assert error.text == script
    assert error.span is not None
    return error.code, script[error.span.start : error.span.end]


@pytest.fixture
def filled(pond: Pond) -> Pond:
    pond.execute(
        "CREATE RELATION r (k INTEGER PRIMARY KEY, n INTEGER, name STRING);"
        "INSERT INTO r VALUES (1, 1, 'a'), (2, 2, '5');"
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE QUERY q AS SELECT v // 0 AS x FROM s; CREATE QUERY p AS SELECT v FROM s"
    )
    pond.ingest("s", rows(1, 2))
    return pond


@pytest.mark.parametrize(
    ("statement", "code", "place"),
    [
        ("UPDATE r SET name = 'b', n = 'x'", "CQL-205", "'x'"),
        ("UPDATE r SET n = 'x' WHERE k = 9", "CQL-205", "'x'"),
        ("UPDATE r SET n = random()::INTEGER", "CQL-213", "random()"),
        ("UPDATE r SET n = n + 1, name = nope", "CQL-202", "nope"),
        ("UPDATE r SET name = 'b', n = name::INTEGER", "POND-404", "name"),
        ("UPDATE r SET name = 'b', n = n / (k - 1)", "POND-404", "n / (k - 1"),
        ("DELETE FROM r WHERE k > 0 AND n % name::INTEGER = 0", "POND-404", None),
        ("DELETE FROM r WHERE k > 0 AND nope", "CQL-202", "nope"),
    ],
)
def test_of_a_changed_relation(filled: Pond, statement: str, code: str, place: str | None) -> None:
    held = filled.ask("SELECT * FROM r").rows()
    whole = statement.partition("WHERE ")[2]
    assert marked(filled, f"SELECT 1 AS one;\n{statement}") == (code, place or whole)
    assert filled.ask("SELECT * FROM r").rows() == held


@pytest.mark.parametrize(
    ("statement", "code", "place"),
    [
        ("INVOKE q", "POND-404", "q"),
        ("SELECT v // 0 AS x FROM s", "POND-404", "SELECT v // 0 AS x FROM s"),
        ("INSERT INTO r VALUES (1, 1, 'a')", "POND-408", "r"),
        ("FETCH s", "CQL-216", "s"),
        ("FETCH p AFTER 7", "POND-412", "p"),
        ("ALTER STREAM s SET (active = true)", "CQL-214", "active = true"),
        ("HEARTBEAT s AT TIMESTAMP '1960-01-01'", "POND-409", "s"),
    ],
)
def test_of_nothing_in_the_text(filled: Pond, statement: str, code: str, place: str) -> None:
    assert marked(filled, f"SELECT 1 AS one;\n{statement};\nSELECT 2 AS two") == (code, place)
