"""Changes over random scenarios: what a reader is given, page by page, is what the definition says.

However the feed is cut, whenever the reader comes and whenever the pond is opened anew, and whether
a query is followed itself or through a stream derived from it.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.testing import golden_table as cells
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock
from millpond.testing.oracle_laws import as_golden
from millpond.testing.oracle_pond import OraclePond
from millpond.testing.strategies import Scenario, scenarios

LAW = settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

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


def delivered(
    scenario: Scenario, store: Path, reads: frozenset[int], reopens: frozenset[int]
) -> dict[str, list[tuple[Any, ...]]]:
    """What a reader has in the end who reads after some batches, each time behind the last."""
    clock = ManualClock()
    pond = open_local(store, clock)
    try:
        got: dict[str, list[tuple[Any, ...]]] = {n: [] for n in declare(pond, scenario)}
        for place, (stream, rows) in enumerate(scenario.batches()):
            pond.ingest(stream, rows)
            pond.catch_up()
            if place in reopens:
                pond.close()
                pond = open_local(store, clock)
            if place in reads:
                for name, rest in got.items():
                    rest += fetched(pond, name, rest[-1][0] if rest else 0)
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
    st.frozensets(st.integers(0, 12), max_size=5),
    st.frozensets(st.integers(0, 12), max_size=2),
)
def test_changes_are_what_the_definition_says(
    scenario: Scenario, reads: frozenset[int], reopens: frozenset[int]
) -> None:
    with TemporaryDirectory(prefix="millpond-changes-") as directory:
        found = delivered(scenario, Path(directory) / "store", reads, reopens)
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
