"""The shapes of plans, traces, and of differences between plans."""

from __future__ import annotations

from typing import Any, Literal

from millpond.api.shapes.shape import Instant, Shape


class Plan(Shape):
    """A plan as EXPLAIN writes it."""

    level: str
    plan: str


class PlanNode(Shape):
    """A stream, an entity (`id` is that of its control table), a join, or queries that read alike.

    Nodes of one `group` may be shown as one. `queries`: names of queries it stands for, some of
    many. `lit`: it serves the query that was asked for.
    """

    id: str
    kind: Literal[
        "queue",
        "stream",
        "module",
        "synopsis",
        "eddy",
        "join",
        "operator",
        "derivation",
        "relation",
        "queries",
    ]
    label: str
    group: str
    figures: dict[str, Any]
    queries: list[str]
    lit: bool


class PlanEdge(Shape):
    """What goes from node to node; `elements` counts it since the stream began."""

    source: str
    target: str
    elements: int | None


class PlanGraph(Shape):
    """The one shared plan; `form` is the version of this form."""

    form: Literal[1]
    nodes: list[PlanNode]
    edges: list[PlanEdge]


class TracedTuple(Shape):
    """A tuple of a batch: its values, how many queries it `matched`, and the names of some.

    `path`: the ids of the nodes of the plan's graph that it went through.
    """

    at: Instant
    values: dict[str, Any]
    queries: list[str]
    matched: int
    path: list[str]


class Trace(Shape):
    """The last tuples of a stream's newest batch of `rows`, and the queries they went to.

    So many `predicates` of queries were looked at.
    """

    stream: str
    epoch: int | None
    rows: int
    predicates: int
    tuples: list[TracedTuple]


class PlannedQuery(Shape):
    """A query of a plan: its strategy, and the id of its last operator."""

    strategy: str
    operator: str


class PlannedOperator(Shape):
    """An operator of a plan, which the `queries` have that are named.

    What can be edited is not null where there is a choice: its `synopsis`, one of `synopses`; the
    `order` in which it joins; whether queries share it.
    """

    name: str
    detail: str
    pattern: str
    state: str
    synopsis: str | None
    synopses: list[str]
    order: list[str] | None
    shared: bool | None
    inputs: list[str]
    queries: list[str]


class PlanDocument(Shape):
    """The plans of queries; `form` is the version of this form.

    `adopted` is the number of the plan that was adopted last. `queries` are by name, `operators` by
    the id of their control tables.
    """

    form: Literal[1]
    adopted: int
    settings: dict[str, Any]
    queries: dict[str, PlannedQuery]
    operators: dict[str, PlannedOperator]


class ChangedSetting(Shape):
    """A setting of the pond that is other."""

    name: str
    before: Any
    after: Any


class ChangedStrategy(Shape):
    """A query whose strategy is other."""

    query: str
    before: str
    after: str


class ChangedOperator(Shape):
    """A field of an operator that is other."""

    id: str
    field: str
    before: Any
    after: Any


class Costs(Shape):
    """The shares of one core that a plan is expected to take."""

    before: float
    after: float


class ChangedPlan(Shape):
    """A query whose operators are other: the ids that go and come, and how many stay."""

    query: str
    goes: list[str]
    comes: list[str]
    stays: int
    cost: Costs
    plan: str


class PlanDifference(Shape):
    """What a document makes other; `pinned` operators are chosen from then on."""

    settings: list[ChangedSetting]
    strategies: list[ChangedStrategy]
    operators: list[ChangedOperator]
    plans: list[ChangedPlan]
    pinned: int


class ComparedPlan(PlanDifference):
    """What a document would make other; `base` stands for what it was compared with."""

    base: str


class AdoptedDifference(PlanDifference):
    """What the adopted plan of this number made other."""

    number: int


class AdoptedPlan(Shape):
    """A plan that was adopted: when, by whom, and what it changed."""

    number: int
    at: str
    by: str | None
    changed: list[str]


class AdoptedPlans(Shape):
    """The adopted plans that can be taken back, the last one first."""

    plans: list[AdoptedPlan]


class QueryPlan(Plan):
    """The plan of a registered query."""

    id: int
