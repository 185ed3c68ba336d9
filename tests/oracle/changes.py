"""The changes of a query by definition: SEMANTICS section 4, computed as it is written.

    ISTREAM(R)(τ) = R(τ) − R(τ⁻),    DSTREAM(R)(τ) = R(τ⁻) − R(τ)

with the bags of the denotation at every instant and at the instant before it. R can only change at
an instant at which an element comes or leaves, a window slides or a relation is updated. These
instants are collected from the query's windows and the whole history, too many rather than too few,
and R is computed at each of them and just before. Nothing of the engine, the operators or the
planner is used.

Before the beginning of time R is empty, whatever the query. So it is up to the first instant of
those asked for at which it can be computed, if it cannot be computed at the instant before them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
from sqlglot import exp
from tests.oracle.contents import contents
from tests.oracle.denotation import Occurrence, denote, heartbeat, occurrences
from tests.oracle.rows import normalize, sort_key
from tests.oracle.world import World

from millpond.cql.tree.nodes import RelationToStream
from millpond.model.time import BEGINNING, END
from millpond.model.windows import Now, Period, Range, Window

Row = tuple[Any, ...]


@dataclass(frozen=True)
class OracleChange:
    """A row that came (+1) or left (-1) at an instant; for a stream-valued query always +1."""

    at: int
    sign: int
    row: Row


def changes(world: World, query: exp.Expression, after: int, upto: int) -> list[OracleChange]:
    """Compute the changes of a query at the instants in (after, upto], in canonical order.

    The order is by instant; within an instant all -1 before all +1; then by the rows' values,
    NULLs last.

    Raises:
        OutsideTheOracle: the query uses something the denotation does not define.
        duckdb.Error: R cannot be computed at an instant after one at which it can.
    """
    operator = None
    if isinstance(query, RelationToStream):
        operator, query = str(query.args["kind"]).lower(), query.this
    found: list[OracleChange] = []
    leaves = list(occurrences(world, query))
    candidates = {BEGINNING} | {i for leaf in leaves for i in _find_change_instants(leaf)}
    arrivals: set[int] = set()
    if operator == "rstream":
        arrivals = {i for leaf in leaves for i in _find_arrivals(leaf)}
    has_begun = is_defined(world, query, after)
    if not has_begun:
        candidates.add(after + 1)
    for at in sorted(i for i in candidates | arrivals if after < i <= upto):
        begins = not has_begun and is_defined(world, query, at)
        if not has_begun and not begins:
            continue
        has_begun = True
        now = _bag(world, query, at)
        if operator == "rstream":
            found += _changes(at, 1, now) if at in arrivals else []
            continue
        before = Counter() if begins else _bag(world, query, at - 1)
        if operator != "istream":
            found += _changes(at, -1 if operator is None else 1, before - now)
        if operator != "dstream":
            found += _changes(at, 1, now - before)
    return found


def is_defined(world: World, query: exp.Expression, at: int) -> bool:
    """Whether R can be computed at an instant; before the beginning of time there is none."""
    if at < BEGINNING:
        return False
    try:
        denote(world, query, at)
    except duckdb.Error:
        return False
    return True


def final_upto(world: World, query: exp.Expression) -> int:
    """Find the last instant that is final for a query: up to it, no change is ever revised."""
    beats = [heartbeat(world, o.name) for o in occurrences(world, query) if o.window is not None]
    return min(beats, default=END) - 1


def _changes(at: int, sign: int, rows: Counter[Row]) -> list[OracleChange]:
    return [OracleChange(at, sign, row) for row in sorted(rows.elements(), key=sort_key)]


def _bag(world: World, query: exp.Expression, at: int) -> Counter[Row]:
    table = denote(world, query, at).table
    columns = [column.to_pylist() for column in table.columns]
    return Counter(tuple(map(normalize, row)) for row in zip(*columns, strict=True))


# -- instants --------------------------------------------------------------------------------------


def _find_change_instants(leaf: Occurrence) -> Iterator[int]:
    """Find the instants at which an occurrence's bag can change."""
    if leaf.window is None:
        yield from _find_updates(leaf)
        return
    for element in leaf.elements:
        yield from _find_life(leaf.window, element.at)


def _find_life(window: Window, t: int) -> Iterator[int]:
    """Find the instants at which an element of timestamp t can enter a window, and leave it."""
    yield t
    match window:
        case Range(size, None):
            yield t + size
        case Range(size, slide):
            assert slide is not None
            yield -(-t // slide) * slide
            yield -(-(t + size) // slide) * slide
        case Now():
            yield t + 1
        case Period(begin, end):
            if end.offset is not None:
                yield t - end.offset
            if begin.offset is not None:
                yield t - begin.offset + 1


def _find_arrivals(leaf: Occurrence) -> Iterator[int]:
    """Find the instants at which RSTREAM gives its relation because of one occurrence."""
    if leaf.window is None:
        yield from _find_updates(leaf)
        return
    yield from (element.at for element in leaf.everything)
    if isinstance(leaf.window, Range) and (slide := leaf.window.slide) is not None:
        stamps = [element.at for element in leaf.elements]
        if not stamps:
            return
        last = max(stamps) + leaf.window.size + slide
        for boundary in range(-(-min(stamps) // slide) * slide, last + 1, slide):
            around = (boundary - 1, boundary)
            if any(contents(leaf.window, leaf.elements, at) for at in around):
                yield boundary


def _find_updates(leaf: Occurrence) -> Iterator[int]:
    """Find the instants at which a relation's bag of rows changes: other updates are none."""
    moves: defaultdict[int, Counter[Row]] = defaultdict(Counter)
    for version in leaf.versions:
        row = tuple(repr(normalize(value)) for value in version.row.values())
        moves[version.begin][row] += 1
        moves[version.end][row] -= 1
    yield from (at for at, rows in moves.items() if any(rows.values()))
