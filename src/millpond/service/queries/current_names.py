"""The names that queries are bound against: those of the current version."""

from __future__ import annotations

from operator import attrgetter

from millpond.catalog.objects import Definition, FunctionDef, SummaryDef, fold_name
from millpond.planner.resolve.names import MOST_COMPARED
from millpond.state.epoch_log import EpochLog


class CurrentNames:
    """The names of whatever version is current."""

    def __init__(self, log: EpochLog) -> None:
        self._log = log

    def find(self, name: str) -> Definition | None:
        return self._log.version.find(name)

    def names(self) -> list[str]:
        return self._log.version.names(MOST_COMPARED)

    def function(self, name: str) -> FunctionDef | None:
        return self._log.version.functions.get(name)

    def functions(self) -> list[str]:
        return sorted(self._log.version.functions)

    def summary(self, name: str) -> SummaryDef | None:
        return self._log.version.summaries.get(fold_name(name))

    def summaries(self) -> list[str]:
        return sorted(map(attrgetter("name"), self._log.version.summaries.values()))
