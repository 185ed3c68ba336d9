"""The groups in which current answers are kept, and what is known of each answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.model.time import format_instant
from millpond.model.windows import Rows, Unbounded
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.plan import Plan
from millpond.planner.dataflow.shared_log import QueryShape
from millpond.service.answers.answer_flow import AnswerFlow
from millpond.service.answers.kept_selections import KeptSelections
from millpond.service.queries.prepared import PreparedQuery
from millpond.state.version import Version

#: A reader advances a group in time only if it has at most so many queries.
_FEW = 16
#: After failures in a row, a query is tried again when so many epochs have passed at most.
LONGEST_WAIT = 64


@dataclass(eq=False)
class KeptAnswer:
    """A query's kept answer, and how often it was of use.

    Attributes:
        definition: The query as it was planned.
        query: The same, prepared.
        plan: How a dataflow keeps the answer; None if none does.
        shape: Of a selection: the shape by which it is kept together with others.
        order: How its rows are sorted: SQL over its columns.
        group: The group that keeps it.
        reason: Why it is not kept; empty if it is.
        served: How often it was handed to a reader.
        computed: How often it was brought up to date.
        seconds: How long that took the last time: of the group's time, its part.
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
    shape: QueryShape | None = None
    order: str = ""
    group: AnswerGroup | SelectionGroup | None = None
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
        group = self.group
        if group is None:
            return None
        with group.lock:
            return group.read_as_kept(self)

    def figures(self) -> dict[str, object]:
        """The figures EXPLAIN shows: what is kept, and how often it was of use."""
        table, group = self.table, self.group
        position = None if group is None or table is None else group.position
        shown: dict[str, object] = {
            "as of": None if position is None else format_instant(position),
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
        self.waits_until = epoch + min(LONGEST_WAIT, 1 << self.failures)


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

    @property
    def position(self) -> int | None:
        """The instant that the answers are as of; None if there are none."""
        return None if self.flow is None else self.flow.position

    def read_as_kept(self, kept: KeptAnswer) -> pa.Table | None:
        """The rows of an answer, as of `position`."""
        if self.flow is None or kept.plan is None:
            return None
        return self.flow.read_answer(kept.plan.key)

    def read(
        self,
        version: Version,
        kept: KeptAnswer,
        bound: BoundQuery,
        streams: Sequence[StreamDef],
        instant: int,
        is_current: bool,
    ) -> pa.Table | None:
        """As `KeptAnswers.read`, of one of its queries.

        Raises:
            MustBeginAgain: the answers are of something else.
        """
        flow = self.flow
        if flow is None or not flow.has_read(version):
            return None
        if instant != flow.position and not (
            is_timeless(bound) and _is_after_all(version, streams, instant)
        ):
            if instant < flow.position or not is_current or self.members > _FEW:
                return None
            flow.step(version, instant)
        return self.read_as_kept(kept)


@dataclass(eq=False)
class SelectionGroup:
    """The selections of one shape; who uses `answers` holds `lock`."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    answers: KeptSelections | None = None

    @property
    def position(self) -> int | None:
        """The instant from which on answers can be read; None if there are none."""
        return None if self.answers is None else self.answers.position

    def read_as_kept(self, kept: KeptAnswer) -> pa.Table | None:
        """The rows of an answer, as of `position`."""
        answers, definition = self.answers, kept.definition
        if answers is None or definition is None or definition.id not in answers.queries:
            return None
        return answers.read(definition.id, answers.position)

    def read(
        self,
        version: Version,
        kept: KeptAnswer,
        bound: BoundQuery,
        streams: Sequence[StreamDef],
        instant: int,
        is_current: bool,
    ) -> pa.Table | None:
        """As `KeptAnswers.read`, of one of its queries."""
        answers, definition = self.answers, kept.definition
        if answers is None or definition is None or definition.id not in answers.queries:
            return None
        if kept.query is None or answers.predicates[definition.id] is not kept.query.factors[0]:
            return None
        if instant < answers.position or not answers.has_read(version):
            return None
        return answers.read(definition.id, instant)


def is_timeless(bound: BoundQuery) -> bool:
    """Whether an answer stays the same while time goes on and nothing arrives."""
    return not bound.relations and all(
        isinstance(leaf.window, Rows | Unbounded) for leaf in bound.streams
    )


def _is_after_all(version: Version, streams: Sequence[StreamDef], instant: int) -> bool:
    """Whether no element is later than an instant."""
    highs = [version.clock(stream.id).high for stream in streams]
    return all(high is None or high <= instant for high in highs)
