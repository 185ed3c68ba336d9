"""`system$actions`: what gave way is read as a stream, and survives."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import SECOND, OpenPond, components_of

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock


def record(pond: Pond, name: str, after: float) -> None:
    components_of(pond).actions.record("shed", name, 0.0, after, 0.75, "3 of 4 bytes wait")


def test_there_is_nothing_at_first(pond: Pond) -> None:
    assert pond.ask("SELECT * FROM system$actions").rows() == []
    assert pond.streams() == []


def test_a_step_is_an_element(pond: Pond, clock: ManualClock) -> None:
    record(pond, "s", 0.5)
    clock.set(1_010 * SECOND)
    record(pond, "t", 0.9)
    answer = pond.ask("SELECT action, name, after, measured FROM system$actions")
    assert answer.rows() == [("shed", "s", 0.5, 0.75), ("shed", "t", 0.9, 0.75)]
    assert answer.exact
    assert pond.ask("SELECT name FROM system$actions [RANGE 5 SECONDS]").rows() == [("t",)]
    assert pond.ask("SELECT why FROM system$actions WHERE name = 's'").rows() == [
        ("3 of 4 bytes wait",)
    ]


def test_steps_survive_and_are_merged(pond: Pond, open_pond: OpenPond) -> None:
    for number in range(20):
        record(pond, f"s{number}", 0.5)
    pond.wait_until_matched()
    again = open_pond()
    again.wait_until_matched()
    names = [name for (name,) in again.ask("SELECT name FROM system$actions").rows()]
    assert names == [f"s{number}" for number in range(20)]
    assert len(components_of(again).log.version.segments(-1)) < 20
    record(again, "last", 0.5)
    assert len(again.ask("SELECT name FROM system$actions")) == 21


def test_they_are_followed(pond: Pond, clock: ManualClock) -> None:
    query = pond.register("SELECT name FROM system$actions WHERE action = 'shed'", name="q")
    record(pond, "s", 0.5)
    clock.set(1_001 * SECOND)
    assert [(sign, name) for _, _, sign, name in query.fetch().rows()] == [("+", "s")]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO system$actions VALUES (1)",
        "DROP STREAM system$actions",
        "ALTER STREAM system$actions SET (overload = 'shed random')",
        "CREATE STREAM system (v INTEGER)",
        "CREATE RELATION system$mine (v INTEGER)",
        "CREATE QUERY system AS SELECT 1",
    ],
)
def test_they_are_only_read_and_the_name_is_the_systems(pond: Pond, statement: str) -> None:
    with pytest.raises(MillpondError, match=r"CQL-2(08|16)"):
        pond.execute(statement)
