"""Plays scenarios in a pond and compares its answers with the oracle's: used by the law tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.oracle.oracle_pond import OraclePond
from tests.tools import golden_table as cells
from tests.tools.golden import PondUnderTest
from tests.tools.strategies import Scenario

from millpond.model import time
from millpond.testing.manual_clock import ManualClock

#: Opens the pond whose store is in a directory, on a clock.
OpenPond = Callable[[Path, ManualClock], PondUnderTest]

#: The answer of a query at an instant: a bag of rows, as text, and whether it was final.
Bag = tuple[Counter[tuple[str, ...]], bool]
#: Answers by (query, instant); instant None is NOW.
Answers = dict[tuple[int, int | None], Bag]


@dataclass(frozen=True)
class Conditions:
    """The conditions under which a scenario is played; answers must not depend on them.

    Attributes:
        registered: When to register queries: 'drawn' as the scenario says, all 'first' or 'last'.
        only: The one query to register, or None for all of them.
        options: Options of each query, as CQL's WITH; if there are fewer than queries, they repeat.
        reopen_before: The epochs before which the pond is closed and opened again.
    """

    registered: str = "drawn"
    only: int | None = None
    options: Sequence[str] = ("",)
    reopen_before: frozenset[int] = frozenset()


def play(scenario: Scenario, open_pond: OpenPond, conditions: Conditions | None = None) -> Answers:
    """Play a scenario in a new store; return all answers, asked after the last epoch."""
    with TemporaryDirectory(prefix="millpond-law-") as directory:
        return _Play(scenario, open_pond, conditions or Conditions(), Path(directory)).run()


def meaning(scenario: Scenario) -> Answers:
    """Compute the oracle's answers."""
    oracle = OraclePond()
    return _Play(scenario, lambda _, __: oracle, Conditions(), Path()).run()


class _Play:
    def __init__(
        self, scenario: Scenario, open_pond: OpenPond, conditions: Conditions, store: Path
    ) -> None:
        self.scenario = scenario
        self.conditions = conditions
        self.clock = ManualClock()
        self.open_pond = open_pond
        self.store = store

    def run(self) -> Answers:
        pond = self._open()
        try:
            for stream in self.scenario.streams:
                pond.execute(stream.declaration)
            batches = self.scenario.batches()
            for place, (stream_name, rows) in enumerate(batches):
                if place in self.conditions.reopen_before:
                    pond.close()
                    pond = self._open()
                self._register(pond, place)
                receipt = pond.ingest(stream_name, rows)
                assert receipt.rejected == 0, f"within DELAY, but rejected: {receipt.rejects}"
                pond.catch_up()
            self._register(pond, len(batches))
            pond.catch_up()
            if len(batches) in self.conditions.reopen_before:
                pond.close()
                pond = self._open()
            return self._ask(pond)
        finally:
            pond.close()

    def _open(self) -> PondUnderTest:
        return self.open_pond(self.store / "store", self.clock)

    def _numbers(self) -> list[int]:
        only = self.conditions.only
        return [only] if only is not None else list(range(len(self.scenario.queries)))

    def _register(self, pond: PondUnderTest, place: int) -> None:
        last = len(self.scenario.epochs)
        for number in self._numbers():
            when = {"first": 0, "last": last}.get(
                self.conditions.registered, self.scenario.registered[number]
            )
            if when == place:
                options = self.conditions.options[number % len(self.conditions.options)]
                query = self.scenario.queries[number]
                pond.execute(f"CREATE QUERY q{number} {options} AS {query}")

    def _ask(self, pond: PondUnderTest) -> Answers:
        answers: Answers = {}
        for number in self._numbers():
            handle = pond.query(f"q{number}")
            for at in (None, *self.scenario.instants):
                answer = handle.invoke(at=at)
                answers[number, at] = (Counter(cells.show_rows(answer.rows())), answer.final)
        return answers


def check(scenario: Scenario, actual: Answers, expected: Answers, what: str) -> None:
    """Raise AssertionError with the first difference between two plays of a scenario."""
    for key, (rows, final) in actual.items():
        wanted, wanted_final = expected[key]
        number, at = key
        if rows == wanted and final == wanted_final:
            continue
        when = "NOW" if at is None else time.format_instant(at)
        raise AssertionError(
            f"{what}: {scenario.queries[number]} at {when}\n"
            f"missing: {sorted((wanted - rows).elements())}\n"
            f"too much: {sorted((rows - wanted).elements())}\n"
            f"final: {final}, expected {wanted_final}\n{as_golden(scenario, number)}"
        )


def as_golden(scenario: Scenario, number: int) -> str:
    """Write the scenario with one of its queries as a golden, to keep a failure as a test."""
    lines = [f"{stream.declaration};" for stream in scenario.streams]
    lines.append(f"CREATE QUERY q AS {scenario.queries[number]};")
    columns = {s.name: ("ts", *(name for name, _ in s.columns)) for s in scenario.streams}
    for stream, rows in scenario.batches():
        lines.append(f"epoch {stream}:")
        table = cells.show_rows([[row[name] for name in columns[stream]] for row in rows])
        lines += ["  " + " | ".join(row) for row in table]
    return "\n".join(lines)
