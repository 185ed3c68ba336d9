"""Which current answers are kept, and what is known of each (PSoup-C: `eager`, `auto`).

Selections of one shape are kept together (`kept_selections.py`). Of other queries, those over the
same streams and relations are a group: one dataflow keeps their
answers (`answer_flow.py`), so that equal parts of them are one operator. The refresher's thread
takes in each epoch. A reader is handed the kept rows if they are those of the version and the
instant it reads; if they are not, the answer is computed as that of any other query.

INV-KEPT-1: an answer is served only if it has all elements and updates that the reader's version
has, and no others, and is as of the reader's instant, or as of another between which and that one
nothing can change it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.engine.dataflow.failures import to_millpond_error
from millpond.engine.predicates.factors import Factors
from millpond.errors import MillpondError
from millpond.model.duckdb_words import quote_name
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.plan import Plan
from millpond.planner.dataflow.shared_log import QueryShape
from millpond.service.answers.answer_flow import (
    AnswerFlow,
    MustBeginAgain,
    needs_order,
)
from millpond.service.answers.kept_groups import (
    LONGEST_WAIT,
    AnswerGroup,
    KeptAnswer,
    SelectionGroup,
)
from millpond.service.answers.kept_selections import KeptSelections, find_kept_shape
from millpond.service.answers.leaf_scan import Files
from millpond.service.ingest.relations import Relations
from millpond.service.queries.prepared import PreparedQuery
from millpond.state.version import Version

#: Larger answers are not kept, nor groups whose answers and state are larger.
_MOST_BYTES, _MOST_STATE = 64 << 20, 512 << 20
#: Seconds a reader waits for the thread that advances its group; then it computes the answer.
_PATIENCE = 0.1
#: After so many beginnings a group rests; each step that needs none makes up for a part of one.
_OFTEN, _FORGIVEN = 2, 0.25

#: A group's streams and relations, by id, and whether its elements must come in order.
GroupKey = tuple[frozenset[int], frozenset[int], bool]
#: Plans the changes of a query, whose elements come in order or not.
MakePlan = Callable[[Version, PreparedQuery, bool], Plan]


class KeptAnswers:
    """The kept answers of a pond; safe to use from any thread, `refresh` from one."""

    def __init__(self, files: Files, relations: Relations) -> None:
        self._files = files
        self._relations = relations
        self._answers: dict[int, KeptAnswer] = {}
        self._groups: dict[GroupKey, AnswerGroup] = {}
        self._selections: dict[tuple[int, QueryShape], SelectionGroup] = {}
        self._lock = threading.Lock()
        #: Plans a query; set by who knows the statistics of streams.
        self.make_plan: MakePlan | None = None

    def of(self, query_id: int) -> KeptAnswer:
        with self._lock:
            return self._answers.setdefault(query_id, KeptAnswer())

    def ids(self) -> set[int]:
        return set(self._answers)

    def forget(self, query_ids: set[int]) -> None:
        """Drop the answers of queries that were dropped."""
        with self._lock:
            for id in self._answers.keys() & query_ids:
                del self._answers[id]

    # -- reading -----------------------------------------------------------------------------------

    def read(
        self,
        version: Version,
        query: PreparedQuery,
        streams: Sequence[StreamDef],
        instant: int,
        is_current: bool,
    ) -> pa.Table | None:
        """Read a query's answer, if it is kept for a version and an instant (INV-KEPT-1).

        Args:
            version: A version that is pinned.
            query: The query.
            streams: The streams it reads.
            instant: The instant.
            is_current: Whether the instant is NOW: then the group may be advanced to it.
        """
        kept = None if query.id is None else self._answers.get(query.id)
        if kept is None or kept.group is None or kept.definition is None:
            return None
        if version.queries.get(kept.definition.id) is not kept.definition:
            return None
        group = kept.group
        if not group.lock.acquire(timeout=_PATIENCE):
            return None
        try:
            found = group.read(version, kept, query.bound, streams, instant, is_current)
        except MustBeginAgain:
            return None
        finally:
            group.lock.release()
        if found is not None:
            kept.served += 1
        return found

    # -- keeping -----------------------------------------------------------------------------------

    def refresh(
        self,
        version: Version,
        wanted: Iterable[tuple[QueryDef, PreparedQuery, Sequence[StreamDef], int]],
        stops: Callable[[], bool] = lambda: False,
    ) -> list[tuple[QueryDef, MillpondError]]:
        """Bring answers up to date with a version; make those that are not kept yet.

        Args:
            version: A version that is pinned.
            wanted: The queries to keep, each with its streams and its NOW, in the order in which
                their groups are advanced.
            stops: Whether to return before all are done.

        Returns:
            The queries that could not be computed, and why.
        """
        failures: list[tuple[QueryDef, MillpondError]] = []
        groups: dict[GroupKey, list[KeptAnswer]] = {}
        upto: dict[GroupKey, int] = {}
        alike: defaultdict[tuple[int, QueryShape], list[KeptAnswer]] = defaultdict(list)
        of_shape: dict[tuple[int, QueryShape], tuple[StreamDef, int]] = {}
        named: set[int] = set()
        for definition, query, streams, now in wanted:
            named.add(definition.id)
            kept = self.of(definition.id)
            if not _is_same(kept, definition, query):
                self._plan(version, kept, definition, query, failures)
            if kept.shape is not None:
                same = streams[0].id, kept.shape
                alike[same].append(kept)
                of_shape[same] = streams[0], now
                continue
            if kept.plan is None or version.epoch < kept.waits_until:
                continue
            key = _group_of(version, query, streams, kept)
            kept.group = self._groups.setdefault(key, AnswerGroup(key[2]))
            groups.setdefault(key, []).append(kept)
            upto[key] = max(now, upto.get(key, now))
        for key in self._groups.keys() - groups.keys():
            group = self._groups[key]
            with group.lock:
                group.flow = None
        for gone in self._selections.keys() - alike.keys():
            del self._selections[gone]
        for id in self.ids() - named:
            self.of(id).group = None
        for same, members in alike.items():
            if stops():
                break
            self._refresh_selections(version, same, members, *of_shape[same])
        for key, members in groups.items():
            if stops():
                break
            failures += self._refresh_group(version, self._groups[key], members, upto[key])
        return failures

    def _plan(
        self,
        version: Version,
        kept: KeptAnswer,
        definition: QueryDef,
        query: PreparedQuery,
        failures: list[tuple[QueryDef, MillpondError]],
    ) -> None:
        """Plan how a query's answer is kept, if it can be."""
        kept.definition, kept.query, kept.plan, kept.group = definition, query, None, None
        kept.shape = find_kept_shape(query.bound, query.factors[0]) if query.factors else None
        kept.failures = kept.waits_until = 0
        if kept.shape is not None:
            kept.reason = kept.order = ""
            return
        order = find_order(query.bound)
        kept.reason = _why_not(query.bound)
        if not kept.reason and order is None:
            kept.reason = "it is sorted by something that is no column of the answer"
        if kept.reason or self.make_plan is None:
            return
        try:
            kept.plan = self.make_plan(version, query, False)
            if needs_order(kept.plan):
                kept.plan = self.make_plan(version, query, True)
        except Exception as error:
            kept.plan = None
            failure = to_millpond_error(error)
            kept.reason = failure.primary
            failures.append((definition, failure))
        kept.order = order or ""

    def _refresh_selections(
        self,
        version: Version,
        key: tuple[int, QueryShape],
        members: list[KeptAnswer],
        stream: StreamDef,
        upto: int,
    ) -> None:
        """Bring the selections of a shape up to date."""
        group = self._selections.setdefault(key, SelectionGroup())
        wanted: dict[int, Factors | None] = {}
        for kept in members:
            assert kept.definition is not None
            assert kept.query is not None
            wanted[kept.definition.id] = kept.query.factors[0]
            kept.group = group
        began = time.perf_counter()
        with group.lock:
            answers = group.answers
            if answers is not None and not _are_same(answers.predicates, wanted):
                answers = None
            try:
                moved = answers is not None and answers.step(version, upto)
            except MustBeginAgain:
                answers = None
            if answers is None:
                answers, moved = KeptSelections(self._files, key[1], stream, wanted), True
                answers.step(version, upto)
            group.answers = answers if answers.nbytes <= _MOST_STATE else None
        if group.answers is None:
            for kept in members:
                kept.shape, kept.reason = None, "the selections of its shape are too large"
        if moved:
            part = (time.perf_counter() - began) / len(members)
            for kept in members:
                kept.seconds, kept.computed = part, kept.computed + 1

    def _refresh_group(
        self, version: Version, group: AnswerGroup, members: list[KeptAnswer], upto: int
    ) -> list[tuple[QueryDef, MillpondError]]:
        if version.epoch < group.waits_until:
            return []
        plans = {kept.plan.key: kept.plan for kept in members if kept.plan is not None}
        began = time.perf_counter()
        with group.lock:
            group.members = len(members)
            try:
                moved = self._advance(version, group, plans, upto)
                group.began = max(0.0, group.began - _FORGIVEN)
            except MustBeginAgain:
                group.flow, group.began = None, group.began + 1
                if group.began > _OFTEN:  # then answers are computed when they are asked for
                    wait = min(LONGEST_WAIT, 1 << min(int(group.began), 16))
                    group.waits_until = version.epoch + wait
                    return []
                failures: list[tuple[QueryDef, MillpondError]] = []
                for kept in members:
                    # What it reads may be another thing now.
                    assert kept.definition is not None
                    assert kept.query is not None
                    self._plan(version, kept, kept.definition, kept.query, failures)
                    kept.group = group if kept.plan is not None else None
                members = [kept for kept in members if kept.plan is not None]
                plans = {kept.plan.key: kept.plan for kept in members if kept.plan is not None}
                if not plans:
                    return failures
                moved = self._advance(version, group, plans, upto)
            flow = group.flow
            assert flow is not None
            if flow.nbytes > _MOST_STATE:
                group.flow = None
                for kept in members:
                    kept.plan, kept.reason = None, "its operators would keep too much"
                return []
            failed = dict(flow.failed)
            large = [key for key, rows in flow.answers.items() if rows.nbytes > _MOST_BYTES]
            flow.drop([*failed, *large])
        if not moved:
            return []
        found: list[tuple[QueryDef, MillpondError]] = []
        part = (time.perf_counter() - began) / len(members)
        for kept in members:
            assert kept.plan is not None
            assert kept.definition is not None
            if kept.plan.key in failed:
                error = failed[kept.plan.key]
                kept.fail(version.epoch, error.primary)
                found.append((kept.definition, error))
            elif kept.plan.key in large:
                kept.plan, kept.reason = None, "it is too large"
            else:
                kept.reason, kept.failures = "", 0
                kept.seconds = flow.seconds.get(kept.plan.key, part)
                kept.computed += 1
        return found

    def _advance(
        self, version: Version, group: AnswerGroup, plans: dict[str, Plan], upto: int
    ) -> bool:
        """Bring a group up to date; return whether there was anything to do."""
        flow, moved = group.flow, False
        if flow is not None:
            flow.drop(flow.plans - plans.keys())
            upto = max(upto, flow.position)
            if flow.plans:
                moved = flow.step(version, upto)
        missing = {k: p for k, p in plans.items() if flow is None or k not in flow.plans}
        if missing:
            fresh = AnswerFlow(self._files, self._relations, missing, group.in_order)
            fresh.step(version, upto)
            if flow is None or not flow.plans:
                group.flow = fresh
            else:
                flow.take_over(fresh)
        return moved or bool(missing)


def _is_same(kept: KeptAnswer, definition: QueryDef, query: PreparedQuery) -> bool:
    """Whether an answer is still that of a query as it is defined now."""
    if kept.definition is not definition:
        return False
    # A query that was prepared anew may call another function, or read another view, of the name.
    return kept.query is query or not (query.bound.functions or query.bound.views)


def _are_same(known: Mapping[int, Factors | None], wanted: Mapping[int, Factors | None]) -> bool:
    """Whether predicates are those of the same queries, as they were."""
    return known.keys() == wanted.keys() and all(known[id] is wanted[id] for id in wanted)


def _group_of(
    version: Version, query: PreparedQuery, streams: Sequence[StreamDef], kept: KeptAnswer
) -> GroupKey:
    relations = [version.find(leaf.relation) for leaf in query.bound.relations]
    ids = frozenset(relation.id for relation in relations if relation is not None)
    assert kept.plan is not None
    return frozenset(s.id for s in streams), ids, needs_order(kept.plan)


def _why_not(bound: BoundQuery) -> str:
    """Why a query's answer cannot be kept; empty if it can."""
    if bound.preference is not None:
        return "it says what is to be seen first"
    if bound.approximations or bound.estimates:
        return "it is approximate"
    return ""


def find_order(bound: BoundQuery) -> str | None:
    """Find by what the rows of an answer are sorted, as SQL over its columns; empty: by nothing.

    None: by something that is no column of the answer.
    """
    order = bound.tree.args.get("order")
    if not bound.ordered or order is None:
        return None if bound.ordered else ""
    names = {name.lower(): name for name in bound.output.names}
    listed: defaultdict[str, str] = defaultdict(str)
    if isinstance(bound.tree, exp.Select) and len(bound.tree.expressions) == len(names):
        for item, name in zip(bound.tree.expressions, bound.output.names, strict=True):
            listed[item.unalias().sql()] = name
    keys = []
    for key in order.expressions:
        if not isinstance(key, exp.Ordered) or not isinstance(key.this, exp.Column):
            return None
        column = key.this
        found = listed.get(column.sql()) if column.table else names.get(column.name.lower())
        if not found:
            return None
        copied = key.copy()
        copied.set("this", exp.Column(this=exp.to_identifier("_", quoted=True)))
        keys.append(copied.sql("duckdb").replace('"_"', quote_name(found), 1))
    return ", ".join(keys)
