"""How far the changes of followed queries are reduced while they run (STREAM, sections 5.1, 5.2).

A query that tolerates it is reduced when the ladders say so, and made whole again when they do not.
A reduction is another plan, which begins at an instant after the derivation's position, in the
epoch that moves it: there the changes hold the difference of the two answers. From which instant on
which reduction holds is kept with the change log, so the changes are a function of the elements and
of what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.catalog.tolerance import NO_REDUCTION, Reduction, parse_reduction
from millpond.model.loss import Loss
from millpond.model.time import BEGINNING, END, LAST, format_instant
from millpond.planner.approximate.reductions import reduce_query, survey
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.answers.reduced import reduction_losses
from millpond.service.queries.options import static_reduction, tolerance_of
from millpond.service.queries.weights import weight_of
from millpond.state.version import Version


@dataclass(frozen=True)
class Decision:
    """How far a query's changes are to be reduced.

    Attributes:
        reduction: How far.
        upto: The last instant for which this is decided.
    """

    reduction: Reduction
    upto: int = LAST


#: Decides, for a query and an instant, how its changes after the instant are reduced.
Decide = Callable[[QueryDef, int], Decision]


class Decisions:
    """Decides by the ladders.

    Args:
        find_weight: Gives the weight up to which queries give way now.
    """

    def __init__(self, find_weight: Callable[[], float] = lambda: 0.0) -> None:
        self._find_weight = find_weight

    def __call__(self, query: QueryDef, after: int) -> Decision:
        if weight_of(query) <= self._find_weight():
            return Decision(tolerance_of(query.options).least)
        return Decision(static_reduction(query.options))

    @property
    def weight(self) -> float:
        """The weight up to which queries give way now."""
        return self._find_weight()


def may_be_reduced(bound: BoundQuery, query: QueryDef) -> bool:
    """Whether a query's changes may be reduced while they run.

    Those of a stream-valued query may not: what it put out cannot be taken back.
    """
    return bool(tolerance_of(query.options)) and bound.to_stream is None


def reduction_of(stream: StreamDef, query: QueryDef | None) -> Reduction:
    """How far the changes of a change log are reduced behind its position."""
    assert stream.derived is not None
    if stream.derived.periods:
        return parse_reduction(stream.derived.periods[-1][1])
    return NO_REDUCTION if query is None else static_reduction(query.options)


def begin_period(
    version: Version, stream: StreamDef, after: int, reduction: Reduction
) -> StreamDef:
    """A change log whose changes after an instant are of another reduction.

    Periods are forgotten when changes behind them are not kept any more: no page reaches them.
    """
    assert stream.derived is not None
    query = version.query_of(stream)
    periods = list(stream.derived.periods)
    if not periods:
        periods = [(version.clock(stream.id).kept_from - 1, str(reduction_of(stream, query)))]
    kept = min(version.segments(stream.id), key=lambda s: s.seq_runs[0][1], default=None)
    first = version.clock(stream.id).next_seq if kept is None else kept.seq_runs[0][1]
    oldest = BEGINNING if not first else after if kept is None else kept.min_ts
    while len(periods) > 1 and periods[1][0] < oldest:
        del periods[0]
    periods.append((after, str(reduction)))
    return replace(stream, derived=replace(stream.derived, periods=tuple(periods)))


def describe_period(name: str, before: Reduction, after: Reduction, at: int) -> str:
    """Say what becomes of a query's changes, in the words that are recorded.

    >>> describe_period("q", Reduction(), Reduction(None, 5.0), 0)
    'after 1970-01-01 00:00:00 the changes of "q" are reduced to sample 5 %, before to nothing'
    """
    words = f'the changes of "{name}" are reduced to {after}, before to {before}'
    return f"after {format_instant(at)} {words}"


def find_losses(
    version: Version, stream: StreamDef, whole: BoundQuery, since: int, upto: int
) -> Iterator[Loss]:
    """What the reductions lack that held at some instant from `since` to `upto`."""
    assert stream.derived is not None
    periods = stream.derived.periods
    if not periods:
        periods = ((BEGINNING, str(reduction_of(stream, version.query_of(stream)))),)
    found = survey(whole)
    ends = [*(after for after, _ in periods[1:]), END]
    for number, ((after, text), end) in enumerate(zip(periods, ends, strict=True)):
        wanted = parse_reduction(text)
        is_before = number > 0 and after >= max(since, upto)
        if not wanted or end < since or is_before:
            continue
        reduced = reduce_query(whole, found, wanted)
        if reduced is not None and not reduced.estimates:
            yield from reduction_losses(reduced, min(end, upto))
