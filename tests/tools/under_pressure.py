"""What must change no answer, drawn at random: schedulers, spilling, slices, shards, constraints.

`pressures` draws settings for one pond; goldens are run under what a seed draws (`choose_settings`,
`choose_constraints`) in two of their variations. `press` changes the defaults of all ponds of a
session, for whole suites: `pytest --under-pressure 7 tests/cql`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import strategies as st

from millpond.catalog.objects import StreamDef
from millpond.catalog.options import OPTIONS
from millpond.model.constraints import CLUSTERED, ORDERED, UNIQUE, Constraint
from millpond.runtime.advance_job import AdvanceJob
from millpond.service.changes.noticing.sharded_groups import ShardedGroups
from millpond.service.changes.noticing.stream_statistics import StreamObserver
from millpond.service.pond import Pond
from millpond.state.version import Version

SCHEDULERS = ("fifo", "round robin", "greedy", "chain")
#: Constraints of a stream with the columns `k` (text) and `v` (integer). They seldom hold.
_FORMS = (
    "UNIQUE (k)",
    "UNIQUE (v)",
    "CLUSTERED BY (k) WITHIN {k} ROWS",
    "CLUSTERED BY (v) WITHIN INTERVAL {k} SECONDS",
    "ORDERED BY (v) WITHIN {k} ROWS",
    "FOREIGN KEY (k) REFERENCES {other} WITHIN {k} ROWS",
    "FOREIGN KEY (v) REFERENCES {other} WITHIN INTERVAL {k} SECONDS",
)
#: Constraints of a stream by one column, of one stream alone.
_OWN_FORMS = (
    "UNIQUE ({c})",
    "CLUSTERED BY ({c}) WITHIN {k} ROWS",
    "CLUSTERED BY ({c}) WITHIN INTERVAL {k} SECONDS",
    "ORDERED BY ({c}) WITHIN {k} ROWS",
)


@dataclass(frozen=True)
class Pressure:
    """Settings of a pond, and constraints of its streams: the stream, the form, and k.

    Every followed group that can be divided has so many `shards`, until the pond is closed.
    """

    settings: tuple[tuple[str, str], ...] = ()
    constraints: tuple[tuple[int, str, int], ...] = ()
    shards: int | None = None

    def impose(self, pond: Any, streams: list[str]) -> None:
        """Set them of a pond with these streams, each with columns `k` and `v`."""
        if isinstance(pond, Pond):
            pond._components.advancer.sharded.always = self.shards
        if self.settings:
            set_to = ", ".join(f"{name} = '{value}'" for name, value in self.settings)
            pond.execute(f"ALTER SYSTEM SET ({set_to})")
        for number, (place, form, k) in enumerate(self.constraints):
            name, other = streams[place % len(streams)], streams[(place + 1) % len(streams)]
            written = form.format(k=k, other=other)
            if form.startswith("FOREIGN"):
                unique = form.partition(")")[0].removeprefix("FOREIGN KEY (")
                pond.execute(f"ALTER STREAM {other} ADD CONSTRAINT u{number} UNIQUE ({unique})")
            pond.execute(f"ALTER STREAM {name} ADD CONSTRAINT c{number} {written}")


@st.composite
def pressures(draw: st.DrawFn) -> Pressure:
    """Draw what changes no answer; the simplest is nothing at all."""
    settings = {
        "scheduler": draw(st.sampled_from(SCHEDULERS)),
        "latency": draw(st.sampled_from(("never", "1 SECOND", "3 MILLISECONDS"))),
        "memory": draw(st.sampled_from(("2 GB", "1 KB", "20 KB"))),
        # Not so little that followers are deferred: then less is delivered, and an update of a
        # non-retroactive relation that is dated back counts from an earlier instant on.
        "queue_memory": draw(st.sampled_from(("256 MB", "30 KB"))),
    }
    constraint = st.tuples(st.integers(0, 3), st.sampled_from(_FORMS), st.integers(0, 9))
    others = {name: v for name, v in settings.items() if v.lower() != OPTIONS[name].default.lower()}
    shards = draw(st.sampled_from((None, 1, 2, 3, 7)))
    return Pressure(tuple(others.items()), tuple(draw(st.lists(constraint, max_size=3))), shards)


def choose_settings(seed: int) -> dict[str, str]:
    """Choose little memory, small slices and a scheduler by chance."""
    chance = random.Random(seed)
    return {
        "scheduler": chance.choice(SCHEDULERS),
        "latency": chance.choice(("never", "1 SECOND")),
        "memory": "1 KB",
        "queue_memory": chance.choice(("30 KB", "100 KB")),
    }


def choose_constraints(seed: int, stream: str, numbers: list[str], texts: list[str]) -> list[str]:
    """Write statements that give a stream constraints by chance, which may hold or not.

    Args:
        seed: What is chosen depends on it, and on the stream.
        stream: The stream's name.
        numbers: The columns of whole numbers.
        texts: The columns of texts.

    >>> choose_constraints(1, "s", ["a"], [])
    ['ALTER STREAM "s" ADD CONSTRAINT chance_0 CLUSTERED BY ("a") WITHIN INTERVAL 1 SECONDS']
    """
    chance = random.Random(f"{seed} {stream}")
    columns = [*numbers, *texts]
    written = []
    for number, column in enumerate(chance.sample(columns, min(2, len(columns)))):
        form = chance.choice(_OWN_FORMS if column in numbers else _OWN_FORMS[:-1])
        constraint = form.format(c=_quote(column), k=chance.choice((0, 1, 5)))
        written.append(f"ALTER STREAM {_quote(stream)} ADD CONSTRAINT chance_{number} {constraint}")
    return written


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def press(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Give every pond, by chance, little memory, small slices, a scheduler and constraints.

    The constraints are not declared, so no statement shows them; operators release rows by them as
    by any, whether they hold or not.
    """
    known = StreamObserver.constraints_of

    def constraints_of(
        self: StreamObserver, version: Version, stream: StreamDef
    ) -> tuple[Constraint, ...]:
        found = known(self, version, stream)
        if stream.derived is not None or stream.is_pseudo:
            return found
        there = {(c.kind, c.columns) for c in found}
        drawn = _draw_constraints(seed, stream)
        return (*found, *(c for c in drawn if (c.kind, c.columns) not in there))

    def cut(self: ShardedGroups, jobs: Sequence[AdvanceJob]) -> list[list[AdvanceJob]]:
        self.always = chance.choice((2, 3, 7))
        return cut_as_known(self, jobs)

    chance, cut_as_known = random.Random(seed), ShardedGroups.cut
    patch.setattr(ShardedGroups, "cut", cut)
    patch.setattr(StreamObserver, "constraints_of", constraints_of)
    for name, value in choose_settings(seed).items():
        patch.setitem(OPTIONS, name, replace(OPTIONS[name], default=value))


def _draw_constraints(seed: int, stream: StreamDef) -> tuple[Constraint, ...]:
    """Draw constraints of at most two columns, each with a number or a length of time."""
    names = list(stream.schema.names)
    chance = random.Random(f"{seed} {stream.name} {names}")
    drawn = []
    for column in chance.sample(names, min(2, len(names))):
        kind, k = chance.choice((UNIQUE, CLUSTERED, ORDERED)), chance.choice((0, 1, 5))
        in_rows = chance.choice((True, False))
        rows = k if in_rows and kind != UNIQUE else None
        time = None if in_rows or kind == UNIQUE else k * 1_000_000
        drawn.append(Constraint(f"chance_{column}", kind, (column,), rows=rows, time=time))
    return tuple(drawn)
