"""The world a query is denoted in: everything committed so far, and the clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.oracle.history import StreamHistory
from tests.oracle.relations import RelationHistory
from tests.oracle.session import Function

from millpond.model.time import BEGINNING, Instant


class OutsideTheOracle(ValueError):
    """The query uses what the oracle does not define."""


@dataclass
class World:
    """Everything committed so far, and the clock. Names are lower case."""

    streams: dict[str, StreamHistory] = field(default_factory=dict)
    relations: dict[str, RelationHistory] = field(default_factory=dict)
    clock: int = 0
    functions: dict[str, Function] = field(default_factory=dict)

    def present(self) -> Instant:
        """The timestamp of a relation update that gives none (SEMANTICS, section 1)."""
        streams = [s for s in self.streams.values() if s.definition.derived is None]
        if not any(s.elements for s in streams):
            return BEGINNING
        if any(s.definition.on_system_time for s in streams):
            return Instant(self.clock)
        return max(s.greatest for s in streams if s.greatest is not None)
