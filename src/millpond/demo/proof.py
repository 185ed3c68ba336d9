"""The demo's proof that it does not matter when a query was registered.

Travellers who registered before the first flight left are the elders. After the last flight has
landed, each gets a twin: the same question in other words, so that the two share no predicate.
Elder and twin must give the same rows at every instant, both right after registration, when an
invocation computes the twin's matches, and after the matches have been backfilled.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from millpond.demo.travellers import Traveller
from millpond.model.time import format_instant
from millpond.service.handles import Handle
from millpond.service.pond import Pond

#: The form in which answers are compared: the columns, and the rows as a bag.
_Bag = tuple[tuple[str, ...], tuple[str, ...]]
#: A leaf's stream, and the slot of its predicate, as EXPLAIN shows them.
_SLOT = re.compile(r"^ +stream: (.+)\n +slot: (\d+)$", re.MULTILINE)


@dataclass
class Verdict:
    """The result of the comparison.

    Attributes:
        pairs: How many elders have a twin.
        apart: How many twins have a predicate slot of their own on every stream.
        answers: How many answers were compared.
        rows: How many rows these answers had.
        seconds_to_backfill: From the twins' registration until all kept data was matched.
        differences: A line for every answer that differs.
    """

    pairs: int = 0
    apart: int = 0
    answers: int = 0
    rows: int = 0
    seconds_to_backfill: float = 0.0
    differences: list[str] = field(default_factory=list)

    @property
    def agree(self) -> bool:
        """Whether there was something to compare and all of it was equal."""
        return self.answers > 0 and self.rows > 0 and not self.differences


def prove(pond: Pond, elders: Sequence[Traveller], instants: Sequence[int | None]) -> Verdict:
    """Registers twins and compares all answers, at once and again when matches are backfilled.

    Args:
        pond: With all data in it.
        elders: Travellers whose queries are registered.
        instants: At which to compare; None is now.
    """
    verdict = Verdict(pairs=len(elders))
    first = [find_answers(pond.query(elder.name), instants) for elder in elders]
    began = time.monotonic()
    twins = pond.register_many([(elder.twin, f"{elder.name}_twin", {}) for elder in elders])
    for elder, twin in zip(elders, twins, strict=True):
        verdict.apart += _slots(pond.query(elder.name)).isdisjoint(_slots(twin))
    for _ in ("at invocation", "from backfilled matches"):
        for elder, twin, expected in zip(elders, twins, first, strict=True):
            found = find_answers(twin, instants)
            for at, was, now in zip(instants, expected, found, strict=True):
                verdict.answers += 1
                verdict.rows += len(was[1])
                if was != now:
                    moment = "now" if at is None else format_instant(at)
                    verdict.differences.append(
                        f"{elder.name} at {moment}: {len(was[1])} rows registered early, "
                        f"{len(now[1])} registered late: {elder.cql}"
                    )
        if not verdict.seconds_to_backfill:
            pond.wait_until_matched(timeout=120)
            verdict.seconds_to_backfill = time.monotonic() - began
    return verdict


def find_answers(handle: Handle, instants: Sequence[int | None]) -> list[_Bag]:
    """A query's answers at some instants, in the form in which answers are compared."""
    answers = [handle.invoke(at) for at in instants]
    return [(tuple(a.columns), tuple(sorted(map(repr, a.rows())))) for a in answers]


def _slots(handle: Handle) -> set[tuple[str, str]]:
    """Read the streams and slots of a query's predicates from EXPLAIN SHARED."""
    return set(_SLOT.findall(handle.plan("shared")))
