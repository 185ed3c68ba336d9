"""The ways a golden is run: cuts, orders, decoys, options, restarts.

By SEMANTICS section 7 none of these is part of what a query means, so no answer may change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.tools.golden_file import Expect, GoldenStep, RunStatement

from millpond.cql import parse_statement
from millpond.cql.tree.statements import CreateQuery, Fetch, Statement


@dataclass(frozen=True)
class Variation:
    """A way to run a golden.

    Attributes:
        cut: The greatest number of rows of an epoch; None is a whole feed for each epoch.
        order: 'written', 'queries first' or 'data first'.
        shuffled: Whether rows of a feed arrive in another order that is within DELAY.
        decoys: The number of other queries.
        options: The options that every query is created with.
        reopen_every: The number of steps after which the pond is closed and opened again.
        routing: The eddies' routing policy, and the number of shards of a join.
        is_matched: Whether all matches and pairs are computed and stored before each answer.
        expiring: The eager and the lazy expiration interval of all changes.
        spread: Whether workers read the windows of invocations, however small.
        pressure: The seed of a scheduler, of little memory and of constraints that may hold or not;
            and every followed group that can be divided has three shards.
    """

    cut: int | None = None
    order: str = "written"
    shuffled: bool = False
    decoys: int = 0
    options: tuple[tuple[str, str], ...] = ()
    reopen_every: int | None = None
    routing: tuple[str, int] = ("ticket", 2)
    is_matched: bool = False
    expiring: tuple[str, str] = ("0 seconds", "auto")
    spread: bool = False
    pressure: int | None = None

    def __str__(self) -> str:
        parts = [f"cut {self.cut}" if self.cut else "whole", self.order]
        parts += ["shuffled"] * self.shuffled
        parts += [f"{self.decoys} decoys"] * bool(self.decoys)
        parts += [value for _, value in self.options]
        parts += [f"reopened each {self.reopen_every}"] * bool(self.reopen_every)
        parts += [f"{self.routing[0]} in {self.routing[1]}"] * (self.routing != ("ticket", 2))
        parts += ["matched"] * self.is_matched
        parts += ["spread"] * self.spread
        if self.expiring != ("0 seconds", "auto"):
            parts.append("expiring {}, {}".format(*self.expiring))
        parts += [f"under pressure {self.pressure}"] * (self.pressure is not None)
        return ", ".join(parts)


AS_WRITTEN = Variation()

#: A few variations in which every two settings meet at least once.
VARIATIONS: tuple[Variation, ...] = (
    AS_WRITTEN,
    Variation(
        cut=1,
        order="queries first",
        decoys=12,
        options=(("materialize", "lazy"),),
        routing=("worst", 3),
        is_matched=True,
        expiring=("2 seconds", "0 seconds"),
        pressure=4,
    ),
    Variation(
        cut=7,
        order="data first",
        options=(("materialize", "none"),),
        spread=True,
        reopen_every=2,
        routing=("fixed", 2),
        expiring=("3 hours", "1 day"),
    ),
    Variation(
        cut=1,
        order="data first",
        shuffled=True,
        decoys=3,
        options=(("materialize", "eager"),),
        reopen_every=5,
        routing=("random", 1),
        is_matched=True,
        expiring=("1 millisecond", "5 seconds"),
    ),
    Variation(
        order="queries first",
        shuffled=True,
        options=(("materialize", "none"),),
        expiring=("5 minutes", "auto"),
        pressure=9,
    ),
)


def arrange(steps: Sequence[GoldenStep], order: str) -> list[GoldenStep]:
    """Arrange the steps in an order of registrations and data.

    'queries first' moves each CREATE QUERY up to the declarations it needs, 'data first' down to
    its first use. Nothing moves in a golden that drops or alters something, or that fetches changes
    from a registration on: there the order is the behaviour.
    """
    moved = list(steps)
    if _fetches_from_registration(steps):
        return moved
    if order == "written" or any(isinstance(s, RunStatement) and _fixes_order(s) for s in steps):
        return moved
    for step in steps:
        if (
            not isinstance(step, RunStatement)
            or step.failure
            or not isinstance(_parse(step), CreateQuery)
        ):
            continue
        here = moved.index(step)
        del moved[here]
        there = _after_needs(moved, here, step) if order == "queries first" else here
        if order == "data first":
            name = step.text.split()[2]
            while there < len(moved) and not _mentions(moved[there], name):
                there += 1
        moved.insert(there, step)
    return moved


def _fetches_from_registration(steps: Sequence[GoldenStep]) -> bool:
    parsed = [_parse(s) for s in steps if isinstance(s, RunStatement)]
    return any(isinstance(s, Fetch) for s in parsed) and any(
        isinstance(s, CreateQuery) and s.options.get("changes") != "from beginning" for s in parsed
    )


def _fixes_order(step: RunStatement) -> bool:
    return step.words[:1] in (["DROP"], ["ALTER"])


def _parse(step: RunStatement) -> Statement | None:
    return parse_statement(step.text) if step.failure is None else None


def _after_needs(steps: list[GoldenStep], here: int, query: RunStatement) -> int:
    """Find the place after the last declaration, before `here`, of a name that the query uses."""
    for place in range(here - 1, -1, -1):
        step = steps[place]
        if isinstance(step, RunStatement) and step.words[0] == "CREATE":
            statement = _parse(step)
            name = getattr(statement, "name", None)
            if name is None or isinstance(statement, CreateQuery) or _mentions(query, name):
                return place + 1
    return 0


def _mentions(step: GoldenStep, name: str) -> bool:
    """Whether a step uses a name."""
    text = step.query if isinstance(step, Expect) else getattr(step, "text", "")
    return re.search(rf"(?i)(?<!\w){re.escape(name)}(?!\w)", text) is not None


def variations(every: bool = False) -> tuple[Variation, ...]:
    """List the ways to run a golden; all combinations if `every`."""
    if not every:
        return VARIATIONS
    return tuple(
        replace(
            AS_WRITTEN,
            cut=cut,
            order=order,
            decoys=decoys,
            options=(("materialize", mode),),
            reopen_every=reopened,
            routing=(("random", 2), ("worst", 3))[reopened is None],
            is_matched=decoys == 0,
            expiring=(("0 seconds", "3 seconds"), ("10 seconds", "1 hour"))[decoys == 0],
            spread=mode == "none",
            pressure=cut,
        )
        for cut in (1, 7, None)
        for order in ("written", "queries first", "data first")
        for decoys in (0, 12)
        for mode in ("lazy", "none", "eager")
        for reopened in (None, 1)
    )
