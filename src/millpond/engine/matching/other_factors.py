"""Other factors: the parts of predicates that DuckDB decides, in the order the eddy chooses.

Arithmetic, casts, patterns and user-defined functions cost a thousand times as much as a grouped
filter, so the order matters; and some of them fail on some rows. CACQ (section 3.1.1) routes a
tuple through the predicates of its queries in any order. So that users cannot notice the order,
the meaning of a failure must not depend on it:

    a row matches when every factor is TRUE of it; it makes the query fail when a factor fails on
    it and no other factor takes it away

That is a function of the row and the predicate alone (parallel AND), so a factor may be tried
before the others: *optimistically*. A failure then decides nothing, since the factor may have seen
rows that other factors would have taken away. Its done bit stays clear, and the failure is charged
to its account. When the other factors are done it is evaluated on the rows they left. Only a
failure on these rows counts.

Every expression is evaluated once for all queries that have it, over the rows left to any of them.
Where a query has a function and another factor, rows come in morsels, of which the first is small:
the costs measured on one morsel route the next.

INV-OTHER-1: what a slot matches, and whether it fails, is the same for every order.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.engine.eddy.eddy import Router
from millpond.engine.predicates.safe_expressions import cannot_fail
from millpond.engine.scalars.evaluator import ScalarEvaluator, truth
from millpond.engine.scalars.residual_query import is_final
from millpond.engine.scalars.user_functions import fault_of, functions
from millpond.model.duckdb_words import quote_name
from millpond.model.function_names import calls_inside, names_inside

Rows = npt.NDArray[Any]

#: Expressions evaluated over one union of survivors.
_TOGETHER = 64
#: Rows of the first morsel, one of DuckDB's vectors: a call of a function that proves expensive.
_FIRST_MORSEL = 2_048
#: How much larger the next morsel is: later morsels teach less, and each costs a query.
_GROWTH = 8
#: Rows that are evaluated one by one before looking whether one of them failed.
_ONE_BY_ONE = 2_048


@dataclass(slots=True, eq=False)
class _Course:
    """A query's way through its other factors: CACQ's ready and done bits, for a morsel.

    Attributes:
        slot: The query's slot.
        rows: The rows left of the morsel; None for all of the table.
        ready: The factors still to visit, the next first.
        late: Factors that failed on rows which other factors may take away.
        stuck: Factors that failed after all others were done.
        is_last: Whether the late factors are being visited again.
    """

    slot: int
    rows: Rows | None
    ready: list[str]
    late: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    is_last: bool = False

    @property
    def is_early(self) -> bool:
        """Whether other factors may still take rows away from the next factor."""
        return not self.is_last and len(self.ready) + len(self.late) > 1


class OtherFactors:
    """The other factors of the queries of a stream, against one batch.

    Args:
        table: The elements; expressions name its columns, quoted.
        of_slot: Every query's factors, as written.
        scalar: Evaluates the factors.
        router: The eddy: chooses the order, and learns from each visit.
    """

    def __init__(
        self,
        table: pa.Table,
        of_slot: Mapping[int, tuple[str, ...]],
        scalar: ScalarEvaluator,
        router: Router,
    ) -> None:
        self._table = table
        self._of_slot = of_slot
        self._scalar = scalar
        self._router = router
        #: Slots that failed, and why.
        self.failed: dict[int, str] = {}

    def decide(self, candidates: Mapping[int, Rows | None]) -> Iterator[tuple[int, Rows]]:
        """Find the rows a slot's factors are TRUE of, ascending, for each slot that has some.

        Args:
            candidates: By slot, the rows to look at; None: all rows.
        """
        morsels = list(self._morsels(candidates))
        if len(morsels) == 1:
            yield from self._decide_morsel(candidates)
            return
        found: dict[int, list[Rows]] = {slot: [] for slot in candidates}
        for low, high in morsels:
            courses = {
                slot: rows
                for slot, own in candidates.items()
                if slot not in self.failed
                and ((rows := self._between(own, low, high)) is None or len(rows))
            }
            for slot, rows in self._decide_morsel(courses):
                found[slot].append(rows)
        for slot, parts in found.items():
            if parts and slot not in self.failed:
                yield slot, np.concatenate(parts)

    def _morsels(self, slots: Mapping[int, Rows | None]) -> Iterator[tuple[int, int]]:
        low, size = 0, _FIRST_MORSEL
        if not any(len(self._of_slot[s]) > 1 and _calls(self._of_slot[s]) for s in slots):
            size = self._table.num_rows
        while low < self._table.num_rows:
            yield low, min(low + size, self._table.num_rows)
            low, size = low + size, size * _GROWTH

    def _between(self, rows: Rows | None, low: int, high: int) -> Rows | None:
        if rows is None:
            return np.arange(low, high, dtype=np.uint32)
        first, last = np.searchsorted(rows, (low, high))
        return rows[first:last]

    def _decide_morsel(self, morsel: Mapping[int, Rows | None]) -> Iterator[tuple[int, Rows]]:
        """Decide a morsel; give the rows left after all factors, of slots that have some.

        An expression waits until all slots that have it have come to it, and is then evaluated
        over the union of the rows left to them. If all slots wait for one another, none waits.
        """
        serves = Counter(e for slot in morsel for e in self._of_slot[slot])
        courses = {
            slot: _Course(slot, rows, self._route(self._of_slot[slot], serves))
            for slot, rows in morsel.items()
            if rows is None or len(rows)
        }
        while courses:
            wanting: dict[str, list[_Course]] = {}
            behind: set[str] = set()
            for course in courses.values():
                wanting.setdefault(course.ready[0], []).append(course)
                behind.update(course.ready[1:])
            ready = [e for e in wanting if e not in behind] or list(wanting)
            for together in _groups_of(ready):
                visited = {e: wanting[e] for e in together}
                self._visit(visited)
                for course in chain.from_iterable(visited.values()):
                    del course.ready[0]
                    if (rows := self._conclude(course)) is not None:
                        del courses[course.slot]
                        if len(rows):
                            yield course.slot, rows

    def _route(self, others: tuple[str, ...], serves: Mapping[str, int]) -> list[str]:
        """Return the order in which a slot's factors are visited.

        The policy gets them with factors that cannot fail first and functions last, and with the
        measured or stated costs of functions. A policy that has measured more goes by that.
        """
        if len(others) < 2:
            return list(others)
        ranked = sorted(others, key=_rank)
        for expression in ranked:
            if called := names_inside(expression):
                self._router.ledger.set_expected_cost(
                    expression, 1e9 * sum(map(functions.price, called))
                )
        return list(self._router.route({e: serves[e] for e in ranked}))

    def _visit(self, wanting: Mapping[str, list[_Course]]) -> None:
        """Evaluate expressions once, over the rows left to any of the queries that have them."""
        candidates = self._union([c for courses in wanting.values() for c in courses])
        begun = time.perf_counter_ns()
        results = self._scalar.evaluate(self._select(wanting, candidates), list(wanting))
        spent = (time.perf_counter_ns() - begun) / len(wanting)
        place: npt.NDArray[np.int64] | None = None
        if candidates is not None:
            place = np.empty(self._table.num_rows, np.int64)
            place[candidates] = np.arange(len(candidates))
        seen = self._table.num_rows if candidates is None else len(candidates)
        for (expression, courses), result in zip(wanting.items(), results, strict=True):
            if isinstance(result, duckdb.Error):
                if any(course.is_early for course in courses):
                    self._router.count_failure(expression, seen, spent)
                for course in courses:
                    (course.late if course.is_early else course.stuck).append(expression)
                continue
            true = truth(result)
            chosen: Rows | None = None
            self._router.count_visit(expression, seen, int(true.sum()), spent)
            for course in courses:
                rows = course.rows
                if rows is None:
                    if chosen is None:
                        chosen = np.flatnonzero(true).astype(np.uint32)
                    course.rows = chosen
                else:
                    course.rows = rows[true[rows if place is None else place[rows]]]

    def _conclude(self, course: _Course) -> Rows | None:
        """Return a query's rows after its last factor; None while there are factors to visit."""
        if course.rows is not None and not len(course.rows):
            return course.rows
        if course.ready:
            return None
        if course.late:
            course.ready, course.late, course.is_last = course.late, [], True
            return None
        rows = course.rows
        if course.stuck:
            found = find_satisfying(self._scalar, self._select(course.stuck, rows), course.stuck)
            if isinstance(found, duckdb.Error):
                said = str(found).split("\n\nLINE ")[0].strip()
                self.failed[course.slot] = fault_of(found) or said
                return np.zeros(0, np.uint32)
            rows = (found if rows is None else rows[found]).astype(np.uint32)
        assert rows is not None
        return rows

    def _union(self, courses: Sequence[_Course]) -> Rows | None:
        """Unite the rows left to any of the queries, ascending; None for all rows."""
        if any(course.rows is None for course in courses):
            return None
        wanted = np.zeros(self._table.num_rows, np.bool_)
        for course in courses:
            wanted[course.rows] = True
        return None if wanted.all() else np.flatnonzero(wanted)

    def _select(self, expressions: Any, rows: Rows | None) -> pa.Table:
        """Take rows, with the columns the expressions may name (they are spelt quoted)."""
        names = [
            n for n in self._table.column_names if any(quote_name(n) in e for e in expressions)
        ]
        table = self._table.select(names or self._table.column_names[:1])
        return table if rows is None else table.take(pa.array(rows))


def find_satisfying(
    scalar: ScalarEvaluator, table: pa.Table, predicates: Sequence[str]
) -> Rows | duckdb.Error:
    """Find the rows for which all predicates are TRUE, ascending, or why that cannot be decided.

    Some predicates may fail on some of the rows. A failure on a row does not count if another
    predicate takes the row away. So predicates that do not fail go first. If several fail on the
    rows that are left, rows are evaluated one by one, at some microseconds each.
    """
    rows: Rows = np.arange(table.num_rows)
    pending = list(predicates)
    while True:
        failing: dict[str, duckdb.Error] = {}
        for predicate in pending:
            kept = scalar.select(table.take(pa.array(rows)), predicate)
            if isinstance(kept, duckdb.Error):
                failing[predicate] = kept
            else:
                rows = rows[kept]
        if not failing:
            return rows
        if len(failing) == len(pending):
            break
        pending = list(failing)
    # Time and memory are no matter of single rows: no evaluation row by row would help.
    slow = next((e for e in failing.values() if is_final(e)), None)
    if slow is not None or len(failing) == 1:
        return slow or next(iter(failing.values()))
    return _find_one_by_one(scalar, table, rows, failing)


def _find_one_by_one(
    scalar: ScalarEvaluator, table: pa.Table, rows: Rows, failing: Mapping[str, duckdb.Error]
) -> Rows | duckdb.Error:
    chosen: list[Rows] = []
    for start in range(0, len(rows), _ONE_BY_ONE):
        some = rows[start : start + _ONE_BY_ONE]
        part = table.take(pa.array(some))
        verdicts: list[npt.NDArray[np.int8]] = []
        for predicate in failing:
            found = scalar.verdicts(part, predicate)
            if isinstance(found, duckdb.Error):
                return found
            verdicts.append(found)
        left = np.flatnonzero(np.all([v != 0 for v in verdicts], axis=0))
        for row in left:
            for (predicate, error), verdict in zip(failing.items(), verdicts, strict=True):
                if verdict[row] < 0:
                    alone = scalar.select(part.slice(row, 1), predicate)
                    return alone if isinstance(alone, duckdb.Error) else error
        chosen.append(some[left])
    return np.concatenate(chosen)


def _rank(expression: str) -> int:
    return 2 if names_inside(expression) else 0 if cannot_fail(expression) else 1


def _calls(others: Sequence[str]) -> bool:
    return any(names_inside(expression) for expression in others)


def _groups_of(expressions: Sequence[str]) -> Iterator[list[str]]:
    """Group expressions that are evaluated over one union of rows.

    A user-defined function must see only rows of the expressions that call it the same way.
    """
    groups: dict[frozenset[str], list[str]] = {}
    for expression in expressions:
        groups.setdefault(calls_inside(expression), []).append(expression)
    for group in groups.values():
        for start in range(0, len(group), _TOGETHER):
            yield group[start : start + _TOGETHER]
