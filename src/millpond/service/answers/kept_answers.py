"""Which current answers are kept, and what is known of each (PSoup-C: `eager`, `auto`).

Queries over the same streams and relations are a group: one dataflow keeps their answers
(`answer_flow.py`), so that equal parts of them are one operator. The refresher's thread takes in
each epoch. A reader is handed the kept rows if they are those of the version and the instant it
reads; if they are not, the answer is computed as that of any other query.

INV-KEPT-1: an answer is served only if it has all elements and updates that the reader's version
has, and no others, and is as of the reader's instant, or as of another between which and that one
nothing can change it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.engine.dataflow.failures import to_millpond_error
from millpond.errors import MillpondError
from millpond.model.duckdb_words import quote_name
from millpond.model.time import format_instant
from millpond.model.windows import Rows, Unbounded
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.plan import Plan
from millpond.service.answers.answer_flow import (
    AnswerFlow,
    MustBeginAgain,
    needs_order,
)
from millpond.service.answers.leaf_scan import Files
from millpond.service.ingest.relations import Relations
from millpond.service.queries.prepared import PreparedQuery
from millpond.state.version import Version

#: Larger answers are not kept, nor groups whose answers and state are larger.
_MOST_BYTES, _MOST_STATE = 64 << 20, 512 << 20
#: A reader advances a group in time only if it has at most so many queries.
_FEW = 16
#: Seconds a reader waits for the thread that advances its group; then it computes the answer.
_PATIENCE = 0.1
#: After failures in a row, a group or query is tried again when so many epochs have passed at most.
_LONGEST_WAIT = 64
#: After so many beginnings a group rests; each step that needs none makes up for a part of one.
_OFTEN, _FORGIVEN = 2, 0.25

#: A group's streams and relations, by id, and whether its elements must come in order.
GroupKey = tuple[frozenset[int], frozenset[int], bool]
#: Plans the changes of a query, whose elements come in order or not.
MakePlan = Callable[[Version, PreparedQuery, bool], Plan]


@dataclass(eq=False)
class KeptAnswer:
    """A query's kept answer, and how often it was of use.

    Attributes:
        definition: The query as it was planned.
        query: The same, prepared.
        plan: How the answer is kept; None if it is not.
        order: How its rows are sorted: SQL over its columns.
        group: The group that keeps it.
        reason: Why it is not kept; empty if it is.
        served: How often it was handed to a reader.
        computed: How often it was brought up to date.
        seconds: How long that took the last time, of the group's time its part.
        seconds_to_answer: How long it took to compute the answer anew; 0 if nobody had to wait.
        asked: How often it was asked for since the last epoch.
        asks: How often it is asked for between two epochs, about.
        is_wanted: Of an `auto` query: whether it is kept.
        asked_at: The clock when it was last asked for, or when it was first looked at.
        is_descheduled: Whether it is no longer matched, because nobody asks for it.
        was_asked: Whether it was asked for since idle queries were last looked for.
        is_new: Whether it was not asked for yet: it may be descheduled since before a start.
        failures: How often in a row it could not be kept.
        waits_until: The epoch before which it is not tried again.
    """

    definition: QueryDef | None = None
    query: PreparedQuery | None = None
    plan: Plan | None = None
    order: str = ""
    group: AnswerGroup | None = None
    reason: str = ""
    served: int = 0
    computed: int = 0
    seconds: float = 0.0
    seconds_to_answer: float = 0.0
    asked: int = 0
    asks: float = 0.0
    is_wanted: bool = False
    asked_at: int | None = None
    is_descheduled: bool = False
    was_asked: bool = False
    is_new: bool = True
    failures: int = 0
    waits_until: int = 0

    @property
    def table(self) -> pa.Table | None:
        """The rows as they are kept now; None if there are none to hand out."""
        group, plan = self.group, self.plan
        if group is None or plan is None:
            return None
        with group.lock:
            return None if group.flow is None else group.flow.read_answer(plan.key)

    def figures(self) -> dict[str, object]:
        """The figures EXPLAIN shows: what is kept, and how often it was of use."""
        table, group = self.table, self.group
        flow = None if group is None else group.flow
        shown: dict[str, object] = {
            "as of": None if table is None or flow is None else format_instant(flow.position),
            "rows": None if table is None else table.num_rows,
            "bytes": 0 if table is None else table.nbytes,
            "computed": self.computed,
            "served": self.served,
            "seconds to keep": self.seconds,
            "seconds to compute": self.seconds_to_answer,
        }
        if self.is_descheduled and self.asked_at is not None:
            shown["not matched, as nobody asks since"] = format_instant(self.asked_at)
        return shown | ({"not kept": self.reason} if self.reason else {})

    def fail(self, epoch: int, reason: str) -> None:
        """Note why it cannot be kept; it is tried again later, after each failure twice as late."""
        self.reason, self.failures = reason, self.failures + 1
        self.waits_until = epoch + min(_LONGEST_WAIT, 1 << self.failures)


@dataclass(eq=False)
class AnswerGroup:
    """The queries whose answers one dataflow keeps; who uses the flow holds `lock`.

    Attributes:
        flow: The dataflow; None until it is made.
        began: How often it had to begin again lately.
        waits_until: The epoch before which it is not made again.
    """

    in_order: bool
    lock: threading.RLock = field(default_factory=threading.RLock)
    flow: AnswerFlow | None = None
    members: int = 0
    began: float = 0.0
    waits_until: int = 0


class KeptAnswers:
    """The kept answers of a pond; safe to use from any thread, `refresh` from one."""

    def __init__(self, files: Files, relations: Relations) -> None:
        self._files = files
        self._relations = relations
        self._answers: dict[int, KeptAnswer] = {}
        self._groups: dict[GroupKey, AnswerGroup] = {}
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
        if kept is None or kept.plan is None or kept.group is None:
            return None
        if version.queries.get(kept.definition.id if kept.definition else 0) is not kept.definition:
            return None
        group, plan = kept.group, kept.plan
        if not group.lock.acquire(timeout=_PATIENCE):
            return None
        try:
            flow = group.flow
            if flow is None or plan.key not in flow.answers:
                return None
            if not flow.has_read(version):
                return None
            if instant != flow.position and not (
                is_timeless(query.bound) and _is_after_all(version, streams, instant)
            ):
                is_ahead = instant > flow.position and is_current and group.members <= _FEW
                if not is_ahead:
                    return None
                flow.step(version, instant)
            found = flow.read_answer(plan.key)
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
        for definition, query, streams, now in wanted:
            kept = self.of(definition.id)
            if not _is_same(kept, definition, query):
                self._plan(version, kept, definition, query, failures)
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
        kept.failures = kept.waits_until = 0
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
                    wait = min(_LONGEST_WAIT, 1 << min(int(group.began), 16))
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
                kept.seconds, kept.computed = part, kept.computed + 1
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


def is_timeless(bound: BoundQuery) -> bool:
    """Whether an answer stays the same while time goes on and nothing arrives."""
    return not bound.relations and all(
        isinstance(leaf.window, Rows | Unbounded) for leaf in bound.streams
    )


def _is_after_all(version: Version, streams: Sequence[StreamDef], instant: int) -> bool:
    """Whether no element is later than an instant."""
    highs = [version.clock(stream.id).high for stream in streams]
    return all(high is None or high <= instant for high in highs)
