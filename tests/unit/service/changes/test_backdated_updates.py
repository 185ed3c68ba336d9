"""Updates of non-retroactive relations that are dated back to what has been delivered."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.service.conftest import OpenPond

from millpond.errors import MillpondError
from millpond.service.pond import Pond

SCHEMA = """
    CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts;
    CREATE NON RETROACTIVE RELATION r (k STRING, n INTEGER);
    INSERT INTO r VALUES ('a', 1);
    CREATE QUERY q WITH (changes = 'from beginning') AS
        SELECT s.v, r.n FROM s [RANGE 100 SECONDS] JOIN r ON s.k = r.k;
"""


def push(pond: Pond, *elements: tuple[int, str, int]) -> None:
    pond.ingest("s", [{"ts": f"1970-01-01 00:00:{t:02}", "k": k, "v": v} for t, k, v in elements])
    pond.catch_up()


def at(second: int) -> str:
    return f"AT TIMESTAMP '1970-01-01 00:00:{second:02}'"


def delivered(pond: Pond) -> Counter[tuple[int, int]]:
    """The bag that all changes so far add up to."""
    bag: Counter[tuple[int, int]] = Counter()
    for _, _, sign, *row in pond.query("q").fetch().rows():
        bag[tuple(row)] += 1 if sign == "+" else -1
    return +bag


@pytest.mark.parametrize(
    "update",
    [
        "INSERT INTO r VALUES ('a', 7)",
        "DELETE FROM r WHERE k = 'a'",
        "UPDATE r SET n = 8 WHERE k = 'a'",
    ],
)
@pytest.mark.parametrize("reopened", [False, True])
def test_what_was_delivered_stays(open_pond: OpenPond, update: str, reopened: bool) -> None:
    pond = open_pond()
    pond.execute(SCHEMA)
    push(pond, (1, "a", 1), (3, "a", 3), (5, "b", 5))
    assert delivered(pond) == {(1, 1): 1, (3, 1): 1}
    if reopened:
        pond = open_pond()
    with pytest.raises(MillpondError, match=r'(?s)POND-413.*"q".*00:00:03.*00:00:05\'') as error:
        pond.execute(f"{update} {at(3)}")
    assert "Nothing was changed" in str(error.value)
    pond.execute(f"{update} {at(5)}")  # the instant is not over
    push(pond, (6, "a", 6), (9, "c", 9))
    answer = pond.query("q").invoke(at=pond.query("q").fetch().as_of).rows()
    assert delivered(pond) == Counter(answer)


def test_what_nobody_follows_may_be_dated_back(open_pond: OpenPond) -> None:
    pond = open_pond()
    pond.execute(SCHEMA.replace("WITH (changes = 'from beginning')", ""))
    push(pond, (1, "a", 1), (3, "a", 3), (5, "b", 5))
    pond.execute(f"INSERT INTO r VALUES ('a', 7) {at(3)}")
    assert sorted(pond.query("q").invoke().rows()) == [(1, 1), (3, 1), (3, 7)]


def test_where_no_element_has_come_since_nothing_was_attached(open_pond: OpenPond) -> None:
    pond = open_pond()
    pond.execute(SCHEMA)
    push(pond, (1, "a", 1))
    pond.execute(f"HEARTBEAT s {at(20)}")
    pond.catch_up()
    assert delivered(pond) == {(1, 1): 1}
    pond.execute(f"INSERT INTO r VALUES ('a', 7) {at(2)}")
    push(pond, (20, "a", 2), (21, "b", 2))
    assert delivered(pond) == {(1, 1): 1, (2, 1): 1, (2, 7): 1}
