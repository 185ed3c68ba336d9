"""Relations over time: rows hold in intervals, keys are unique at every instant."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import SECOND, OpenPond, rows

from millpond.errors import MillpondError
from millpond.service.pond import Pond

AT = "AT TIMESTAMP '1970-01-01 00:00:{:02}'"


def held(pond: Pond, at: int | None = None) -> list[tuple[object, ...]]:
    """What relation r holds at a second, or now."""
    return sorted(pond.query("q").invoke(None if at is None else at * SECOND).rows())


@pytest.fixture
def r(pond: Pond) -> Pond:
    """A pond whose relation r is keyed by k."""
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.execute("CREATE RELATION r (k STRING, v INTEGER, PRIMARY KEY (k))")
    pond.execute("CREATE QUERY q AS SELECT k, v FROM r")
    return pond


def test_rows_written_and_deleted_at_one_instant_leave_no_trace(r: Pond) -> None:
    """The number of a row that never held is not given again: its end would end the next."""
    for number in range(4):
        r.execute(f"INSERT INTO r VALUES ('a', {number})")
        r.execute("UPDATE r SET v = v + 10")
        assert held(r) == [("a", number + 10)]
        r.execute("DELETE FROM r")
        assert held(r) == []


def test_many_updates_are_folded_into_one_file(r: Pond, open_pond: OpenPond) -> None:
    r.execute("INSERT INTO r VALUES ('a', 0), ('b', 0)")
    for number in range(1, 66):
        r.execute(f"UPDATE r SET v = {number} WHERE k = 'a' {AT.format(number % 60)}")
    relation = r.relations()[0]
    assert len(r._components.log.version.relation_deltas(relation.id)) < 64
    before = [held(r, at) for at in range(0, 60, 9)]
    again = open_pond()
    assert [held(again, at) for at in range(0, 60, 9)] == before
    again.execute("DELETE FROM r WHERE k = 'b'")
    assert held(again, 59) == [("a", 59)]


def test_an_update_in_the_past_holds_until_the_row_was_changed(r: Pond) -> None:
    r.execute(f"INSERT INTO r VALUES ('a', 1) {AT.format(10)}")
    r.execute(f"UPDATE r SET v = 3 {AT.format(30)}")
    r.execute(f"UPDATE r SET v = 2 {AT.format(20)}")
    assert [held(r, at) for at in (9, 10, 19, 20, 29, 30, 99)] == [
        [],
        [("a", 1)],
        [("a", 1)],
        [("a", 2)],
        [("a", 2)],
        [("a", 3)],
        [("a", 3)],
    ]


def test_a_deletion_in_the_past_spares_what_was_written_later(r: Pond) -> None:
    r.execute(f"INSERT INTO r VALUES ('a', 1) {AT.format(10)}")
    r.execute(f"UPDATE r SET v = 2 {AT.format(30)}")
    r.execute(f"DELETE FROM r {AT.format(20)}")
    assert [held(r, at) for at in (19, 20, 29, 30)] == [[("a", 1)], [], [], [("a", 2)]]


def test_a_key_is_taken_at_the_instants_at_which_it_is_held(r: Pond) -> None:
    r.execute(f"INSERT INTO r VALUES ('a', 1) {AT.format(10)}")
    r.execute(f"DELETE FROM r {AT.format(20)}")
    with pytest.raises(MillpondError, match="POND-408"):
        r.execute(f"INSERT INTO r VALUES ('a', 2) {AT.format(19)}")
    with pytest.raises(MillpondError, match="POND-408"):  # it would hold from 5 on, for ever
        r.execute(f"INSERT INTO r VALUES ('a', 2) {AT.format(5)}")
    r.execute(f"INSERT INTO r VALUES ('a', 3) {AT.format(20)}")
    assert [held(r, at) for at in (5, 10, 20)] == [[], [("a", 1)], [("a", 3)]]


@pytest.mark.parametrize("rows", ["(NULL, 1)", "('a', 1), ('a', 2)", "('b', 1), (NULL, 2)"])
def test_an_insert_with_a_bad_key_changes_nothing(r: Pond, rows: str) -> None:
    with pytest.raises(MillpondError, match="POND-408"):
        r.execute(f"INSERT INTO r VALUES {rows}")
    assert held(r) == []


def test_an_update_may_not_make_two_rows_of_one_key(r: Pond) -> None:
    r.execute("INSERT INTO r VALUES ('a', 1), ('b', 2)")
    with pytest.raises(MillpondError, match="POND-408"):
        r.execute("UPDATE r SET k = 'c'")
    r.execute("UPDATE r SET k = CASE k WHEN 'a' THEN 'b' ELSE 'a' END")
    assert held(r) == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(
    "value", ["count(*)", "sum(v)", "unnest([1, 2])", "row_number() OVER (ORDER BY k)"]
)
def test_set_takes_one_value_a_row(r: Pond, value: str) -> None:
    r.execute("INSERT INTO r VALUES ('a', 1), ('b', 2)")
    with pytest.raises(MillpondError, match="CQL-206"):
        r.execute(f"UPDATE r SET v = {value}")
    assert held(r) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM r WHERE k IN (SELECT content FROM read_text('/etc/hostname'))",
        "DELETE FROM r WHERE random() < 2",
        "DELETE FROM r WHERE __rid = 0",
        "UPDATE r SET v = nextval('x')",
        "UPDATE r SET k = getenv('HOME')",
        "UPDATE r SET k = content FROM read_text('/etc/hostname')",
        "INSERT INTO r VALUES ((SELECT content FROM read_text('/etc/hostname')), 1)",
    ],
)
def test_what_statements_compute_reads_the_row_and_nothing_else(r: Pond, statement: str) -> None:
    r.execute("INSERT INTO r VALUES ('a', 1)")
    with pytest.raises(MillpondError, match="CQL-"):
        r.execute(statement)
    assert held(r) == [("a", 1)]


def test_a_value_that_cannot_be_computed_changes_nothing(r: Pond) -> None:
    r.execute("INSERT INTO r VALUES ('7', 1), ('x', 2)")
    with pytest.raises(MillpondError, match="POND-404"):
        r.execute("UPDATE r SET v = CAST(k AS INTEGER)")
    with pytest.raises(MillpondError, match="POND-404"):
        r.execute("DELETE FROM r WHERE CAST(k AS INTEGER) = 7")
    assert held(r) == [("7", 1), ("x", 2)]


def test_values_of_different_kinds_are_each_cast_to_their_column(r: Pond) -> None:
    r.execute("INSERT INTO r VALUES (1, '5'), ('a', 2.0), (TRUE, NULL)")
    assert r.query("q").invoke().table.sort_by("k").to_pydict() == {
        "k": ["1", "a", "true"],
        "v": [5, 2, None],
    }


def test_the_present_is_the_greatest_timestamp(r: Pond) -> None:
    r.execute("INSERT INTO r VALUES ('a', 1)")
    r.ingest("s", rows(20, 40, 30))
    r.execute("INSERT INTO r VALUES ('b', 2)")
    assert held(r, 39) == [("a", 1)]
    assert held(r, 40) == [("a", 1), ("b", 2)]


def test_what_a_value_was_computed_as_it_is_for_ever(r: Pond, open_pond: OpenPond) -> None:
    r.execute("CREATE STREAM drawn (v DOUBLE)")
    r.execute("INSERT INTO drawn VALUES (random()), (random())")
    r.execute("INSERT INTO r VALUES (random()::VARCHAR, 1), (now()::VARCHAR, 2)")
    drawn = r.ask("SELECT v FROM drawn").rows()
    before = held(r)
    assert len(set(drawn)) == 2
    again = open_pond()
    assert held(again) == before
    assert again.ask("SELECT v FROM drawn").rows() == drawn
