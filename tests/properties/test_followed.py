"""Changes over random scenarios: what a reader is given, page by page, is what the definition says.

However the feed is cut, whenever the reader comes and whenever the pond is opened anew, whether
a query is followed itself or through a stream derived from it, whenever other plans go on with its
changes, and whatever the strategy, the expiration intervals, the scheduler, the memory, and
constraints that hold or do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.oracle.oracle_pond import OraclePond
from tests.tools import golden_table as cells
from tests.tools.oracle_laws import as_golden
from tests.tools.plan_moves import move_plans
from tests.tools.strategies import SECOND, Scenario, scenarios
from tests.tools.under_pressure import Pressure, pressures

from millpond.service.changes.settings import ChangeSettings
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: Without shrinking, which takes minutes here.
LAW = settings(max_examples=8, phases=[Phase.explicit, Phase.generate])

#: After which batches plans are moved, and the seeds of the others.
MOVES = st.dictionaries(st.integers(0, 12), st.integers(0, 999), max_size=4)

#: After every element and every expiration of a scenario.
LATE = "HEARTBEAT {} AT TIMESTAMP '2100-01-01 00:00:00'"


def declare(pond: Any, scenario: Scenario) -> list[str]:
    """Declare everything; gives what can be fetched."""
    for stream in scenario.streams:
        pond.execute(stream.declaration)
    names = []
    for number, query in enumerate(scenario.queries):
        pond.execute(f"CREATE QUERY q{number} WITH (changes = 'from beginning') AS {query}")
        pond.execute(f"CREATE STREAM d{number} AS DSTREAM({query})")
        of_stream = f"SELECT count(*) AS n FROM d{number} [RANGE 3 SECONDS]"
        pond.execute(f"CREATE QUERY n{number} WITH (changes = 'from beginning') AS {of_stream}")
        names += [f"q{number}", f"d{number}", f"n{number}"]
    return names


def fetched(pond: Any, name: str, after: int) -> list[tuple[Any, ...]]:
    (result,) = pond.execute(f"FETCH {name} AFTER {after}")
    rows: list[tuple[Any, ...]] = result.changes.rows()
    return [(*row[:3], *map(cells.show_cell, row[3:])) for row in rows]


def there(pond: Any, name: str, after: int) -> list[tuple[Any, ...]]:
    """As `fetched`, of what has been delivered by itself."""
    handle = pond.derived(name) if name.startswith("d") else pond.query(name)
    rows: list[tuple[Any, ...]] = handle.page(after).rows()
    return [(*row[:3], *map(cells.show_cell, row[3:])) for row in rows]


def delivered(
    scenario: Scenario,
    store: Path,
    reads: Mapping[int, bool],
    reopens: frozenset[int],
    changes: ChangeSettings,
    pressure: Pressure,
    moves: Mapping[int, int],
) -> dict[str, list[tuple[Any, ...]]]:
    """What a reader has in the end who reads after some batches, each time behind the last.

    Args:
        scenario: What happens.
        store: A directory for the pond.
        reads: After which batches is read, and whether by asking for all that is final.
        reopens: After which batches the pond is closed and opened again.
        changes: How changes are computed.
        pressure: What may not show.
        moves: After which batches plans are moved, each with the seed of the other plans.
    """
    clock = ManualClock()
    pond = open_local(store, clock, changes=changes)
    try:
        got: dict[str, list[tuple[Any, ...]]] = {n: [] for n in declare(pond, scenario)}
        pressure.impose(pond, [stream.name for stream in scenario.streams])
        for place, (stream, rows) in enumerate(scenario.batches()):
            pond.ingest(stream, rows)
            pond.catch_up()
            if place in reopens:
                pond.close()
                pond = open_local(store, clock, changes=changes)
            if place in moves:
                move_plans(pond, moves[place])
            if place in reads:
                read = fetched if reads[place] else there
                for name, rest in got.items():
                    rest += read(pond, name, rest[-1][0] if rest else 0)
        for declared in scenario.streams:
            pond.execute(LATE.format(declared.name))
        for name, rest in got.items():
            rest += fetched(pond, name, rest[-1][0] if rest else 0)
        return got
    finally:
        pond.close()


def meant(scenario: Scenario) -> dict[str, list[tuple[Any, ...]]]:
    oracle = OraclePond(ManualClock())
    names = declare(oracle, scenario)
    for stream, rows in scenario.batches():
        oracle.ingest(stream, rows)
    for declared in scenario.streams:
        oracle.execute(LATE.format(declared.name))
    return {name: fetched(oracle, name, 0) for name in names}


@LAW
@given(
    scenarios(most_queries=3),
    st.dictionaries(st.integers(0, 12), st.booleans(), max_size=5),
    st.frozensets(st.integers(0, 12), max_size=2),
    st.builds(
        ChangeSettings,
        strategy=st.sampled_from(("aware", "aware", "negative", "direct")),
        eager_expiration=st.sampled_from((0, 0, 1, 2 * SECOND, 3600 * SECOND)),
        lazy_expiration=st.sampled_from((None, 0, 2 * SECOND, 3600 * SECOND)),
    ),
    pressures(),
    MOVES,
)
def test_changes_are_what_the_definition_says(
    scenario: Scenario,
    reads: dict[int, bool],
    reopens: frozenset[int],
    changes: ChangeSettings,
    pressure: Pressure,
    moves: dict[int, int],
) -> None:
    check(scenario, reads, reopens, changes, pressure, moves)


@settings(LAW, max_examples=4)
@given(
    scenarios(most_queries=1, nested=True),
    st.dictionaries(st.integers(0, 12), st.booleans(), max_size=4),
    st.frozensets(st.integers(0, 12), max_size=2),
    pressures(),
    MOVES,
)
def test_changes_of_queries_over_queries_are_what_the_definition_says(
    scenario: Scenario,
    reads: dict[int, bool],
    reopens: frozenset[int],
    pressure: Pressure,
    moves: dict[int, int],
) -> None:
    check(scenario, reads, reopens, ChangeSettings(), pressure, moves)


@pytest.mark.slow
@settings(LAW, max_examples=40)
@given(
    scenarios(most_queries=2, nested=True),
    st.dictionaries(st.integers(0, 12), st.booleans(), max_size=4),
    st.frozensets(st.integers(0, 12), max_size=2),
    pressures(),
    MOVES,
)
def test_changes_of_many_queries_over_queries_are_what_the_definition_says(
    scenario: Scenario,
    reads: dict[int, bool],
    reopens: frozenset[int],
    pressure: Pressure,
    moves: dict[int, int],
) -> None:
    check(scenario, reads, reopens, ChangeSettings(), pressure, moves)


def check(
    scenario: Scenario,
    reads: dict[int, bool],
    reopens: frozenset[int],
    changes: ChangeSettings,
    pressure: Pressure,
    moves: Mapping[int, int],
) -> None:
    with TemporaryDirectory(prefix="millpond-changes-") as directory:
        store = Path(directory) / "store"
        found = delivered(scenario, store, reads, reopens, changes, pressure, moves)
    for name, rows in meant(scenario).items():
        number = int(name[1:])
        assert [row[0] for row in found[name]] == list(range(1, len(found[name]) + 1))
        wrong = [p for p in zip_longest(found[name], rows) if not same(*p)]
        assert not wrong, (
            f"{name}: {scenario.queries[number]}\nfirst different: {wrong[0]}\n"
            f"delivered: {found[name]}\nmeant: {rows}\n{as_golden(scenario, number)}"
        )


def same(one: tuple[Any, ...] | None, other: tuple[Any, ...] | None) -> bool:
    """Whether two changes are the same; floats may differ in their last digits."""
    if one is None or other is None:
        return False
    return one[:3] == other[:3] and all(map(cells.same_cell, one[3:], other[3:]))
