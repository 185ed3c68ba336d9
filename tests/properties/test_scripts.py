"""Scripts of every construct: the pond answers and delivers what the definition says.

Answers that are kept ready are compared after each event, others at instants before and after a
restart, then all changes that a reader has read page by page; and the changes folded up to an
instant have to be the answer at that instant, unless the update of a relation was dated back.
Schedulers, memory and constraints are drawn too: none of them may show.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from tests.oracle.oracle_pond import OraclePond
from tests.tools import golden_table as cells
from tests.tools.random_scripts import DECLARATIONS, OVER_JOINS, Script, scripts
from tests.tools.under_pressure import Pressure, pressures

from millpond.errors import MillpondError
from millpond.planner.optimize import cost
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: After every element and every expiration of a script.
LATE = "HEARTBEAT {} AT TIMESTAMP '1970-01-01 00:02:00'"
OPTION = "WITH (changes = 'from beginning')"
Changes = list[tuple[Any, ...]]


def declare(pond: Any, script: Script) -> None:
    for declaration in DECLARATIONS:
        pond.execute(declaration)
    for number, query in enumerate(script.queries):
        pond.execute(f"CREATE QUERY q{number} {OPTION} AS {query}")


def keep_ready(pond: Any, script: Script) -> list[int]:
    """Have the answers of queries kept ready as well; return the numbers of those that can be."""
    found = []
    for number, query in enumerate(script.queries):
        with suppress(MillpondError):  # one that gives a stream has none
            pond.execute(f"CREATE QUERY e{number} WITH (materialize = 'eager') AS {query}")
            found.append(number)
    return found


def play(pond: Any, event: Any) -> Any:
    """Play an event; gives what the client is told of it."""
    try:
        if isinstance(event, tuple):
            receipt = pond.ingest(event[0], list(event[1]))
            told = (receipt.accepted, receipt.rejected)
        else:
            pond.execute(event)
            told = (0, 0)
    except MillpondError as error:
        return error.code
    pond.catch_up()
    return told


def invoked(pond: Any, name: str, at: int | None) -> Counter[tuple[str, ...]]:
    return Counter(map(tuple, cells.show_rows(pond.query(name).invoke(at=at).rows())))


def fetched(pond: Any, name: str, after: int) -> Changes:
    (result,) = pond.execute(f"FETCH {name} AFTER {after}")
    return [(*row[:3], *cells.show_rows([row[3:]])[0]) for row in result.changes.rows()]


def folded(changes: Changes, at: int) -> Counter[tuple[str, ...]]:
    """The answer at an instant as the changes up to then make it."""
    rows: Counter[tuple[str, ...]] = Counter()
    for _, when, sign, *row in changes:
        if when <= at:
            rows[tuple(row)] += 1 if sign == "+" else -1
    assert min(rows.values(), default=0) >= 0, f"taken back without having been given: {changes}"
    return +rows


def run(script: Script, store: Path, pressure: Pressure) -> None:
    clock = ManualClock()
    oracle, pond = OraclePond(clock), open_local(store, clock)
    names = [f"q{number}" for number in range(len(script.queries))]
    got: dict[str, Changes] = {name: [] for name in names}
    meant: dict[str, Changes] = {name: [] for name in names}
    try:
        for each in (oracle, pond):
            declare(each, script)
        eager = keep_ready(pond, script)
        pressure.impose(pond, ["s", "t"])
        for event in script.events:
            if event == "reopen":
                pond.close()
                pond = open_local(store, clock)
                continue
            # Both are read as often: an update dated back comes at the first instant not delivered.
            read(oracle, meant)
            read(pond, got)
            right, told = play(oracle, event), play(pond, event)
            assert told == right, f"{event}: {told}, by the definition {right}\n{script}"
            for number in eager:
                kept, rows = invoked(pond, f"e{number}", None), invoked(oracle, f"q{number}", None)
                query = script.queries[number]
                assert kept == rows, f"{query} kept ready: {kept}, not {rows}\n{script}"
        for again in (False, True):
            if again:
                pond.close()
                pond = open_local(store, clock)
            for name, query in zip(names, script.queries, strict=True):
                for at in (None, *script.instants):
                    actual, rows = invoked(pond, name, at), invoked(oracle, name, at)
                    assert actual == rows, (
                        f"{query} at {at}: {actual}, by the definition {rows}\n{script}"
                    )
        for each in (oracle, pond):
            for stream in "st":
                each.execute(LATE.format(stream))
        read(oracle, meant)
        read(pond, got)
        for name, query in zip(names, script.queries, strict=True):
            wrong = [p for p in zip_longest(got[name], meant[name]) if p[0] != p[1]]
            assert not wrong, f"{query}\nfirst different: {wrong[0]}\n{script}"
            if not script.updates_back:
                for at in script.instants:
                    assert folded(got[name], at) == invoked(pond, name, at), f"{query}\n{script}"
    finally:
        pond.close()


def read(pond: Any, got: dict[str, Changes]) -> None:
    """Read on behind what was fetched."""
    for name, rows in got.items():
        rows += fetched(pond, name, rows[-1][0] if rows else 0)


#: Without shrinking, which takes minutes here: a script is short as it is.
FEW = settings(max_examples=10, phases=[Phase.explicit, Phase.generate])


@FEW
@given(pressures(), scripts())
def test_scripts_give_what_the_definition_says(pressure: Pressure, script: Script) -> None:
    with TemporaryDirectory(prefix="millpond-scripts-") as directory:
        run(script, Path(directory) / "store", pressure)


@FEW
@given(pressures(), scripts(kinds=(OVER_JOINS,)))
def test_plans_without_pairs_give_what_the_definition_says(
    pressure: Pressure, script: Script
) -> None:
    """Every rewriting is used, whatever it costs: no value of a script has very many partners."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as directory:
        patch.setattr(cost, "_subsets", lambda rules: iter((rules,)))
        run(script, Path(directory) / "store", pressure)


@pytest.mark.slow
@settings(FEW, max_examples=150)
@given(pressures(), scripts(most_queries=5))
def test_many_scripts_give_what_the_definition_says(pressure: Pressure, script: Script) -> None:
    with TemporaryDirectory(prefix="millpond-scripts-") as directory:
        run(script, Path(directory) / "store", pressure)
