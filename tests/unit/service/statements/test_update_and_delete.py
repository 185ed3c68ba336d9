"""UPDATE and DELETE: what they change, and what of an expression is refused where."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond


@pytest.fixture
def pond(pond: Pond) -> Pond:
    pond.execute(
        "CREATE RELATION r (k INTEGER PRIMARY KEY, n INTEGER, name STRING);"
        "INSERT INTO r VALUES (1, 10, 'a'), (2, 20, '5'), (3, NULL, NULL)"
    )
    return pond


def rows(pond: Pond) -> list[tuple[Any, ...]]:
    return sorted(pond.ask("SELECT k, n, name FROM r").rows())


def message(pond: Pond, statement: str) -> str | None:
    (result,) = pond.execute(statement)
    return result.message


def test_every_row_of_the_condition_is_changed(pond: Pond) -> None:
    assert message(pond, "UPDATE r SET n = n + k, name = 'x' || name WHERE k < 3") == (
        "r: 2 rows updated"
    )
    assert rows(pond) == [(1, 11, "xa"), (2, 22, "x5"), (3, None, None)]
    assert message(pond, "DELETE FROM r WHERE n > 11 OR name IS NULL") == "r: 2 rows deleted"
    assert rows(pond) == [(1, 11, "xa")]
    assert message(pond, "UPDATE r SET n = NULL") == "r: 1 row updated"
    assert message(pond, "DELETE FROM r WHERE n > 0") == "r: 0 rows deleted"
    assert message(pond, "DELETE FROM r") == "r: 1 row deleted"


def test_assignments_see_the_row_as_it_was(pond: Pond) -> None:
    pond.execute("UPDATE r SET n = k, k = n WHERE k < 3")
    assert rows(pond) == [(3, None, None), (10, 1, "a"), (20, 2, "5")]


def test_users_functions_may_be_called(pond: Pond) -> None:
    pond.function("double", lambda x: pc.multiply(x, 2), arguments=["INTEGER"], returns="INTEGER")
    pond.execute("UPDATE r SET n = double(n) WHERE double(k) = 4")
    assert rows(pond)[1] == (2, 40, "5")


@pytest.mark.parametrize(
    ("statement", "code", "place"),
    [
        ("UPDATE r SET m = 1", "CQL-202", None),
        ("UPDATE r SET n = «sum(k)»", "CQL-206", None),
        ("UPDATE r SET name = 'b', n = «unnest([1, 2])»", "CQL-206", None),
        ("UPDATE r SET n = «'x'»", "CQL-205", None),
        ("UPDATE r SET n = k + «nn» WHERE k = 1", "CQL-202", 'Did you mean "n"?'),
        ("UPDATE r SET n = «name»", "POND-404", None),
        ("DELETE FROM r WHERE «name::INTEGER > 1»", "POND-404", None),
        ("DELETE FROM r WHERE k = 1 AND «missing» > 1", "CQL-202", None),
        ("UPDATE r SET k = 1", "POND-408", None),
    ],
)
def test_what_is_refused_changes_nothing(
    pond: Pond, statement: str, code: str, place: str | None
) -> None:
    plain = statement.replace("«", "").replace("»", "")
    before = rows(pond)
    with pytest.raises(MillpondError) as failure:
        pond.execute(plain)
    error = failure.value
    assert error.code == code
    assert error.span is not None
    if "«" in statement:
        marked = statement[statement.index("«") + 1 : statement.index("»")]
        assert plain[error.span.start : error.span.end] == marked
    if place is not None:
        assert error.hint == place
    assert rows(pond) == before
