"""Prepared queries: everything that invoking a query needs, made once.

A query is prepared when it is registered, when it is used first after a restart, and when it is
asked once. Then it is bound, and each of its leaves has its factors and its slot.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa
from sqlglot import exp

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.catalog.option_values import parse_memory
from millpond.catalog.tolerance import NO_REDUCTION, NO_TOLERANCE, Reduction, Tolerance
from millpond.engine.joins.plan import JoinPlan
from millpond.engine.joins.projection import JoinProjection, projection_of
from millpond.engine.predicates.factor_templates import factor_template
from millpond.engine.predicates.factors import Factors, factorize
from millpond.engine.scalars.residual_query import Limits
from millpond.errors import MillpondError, Span
from millpond.model.kept_property import kept_property
from millpond.planner.approximate.reductions import ReducedQuery, Survey, reduce_query, survey
from millpond.planner.bind.bound_query import BoundQuery, StreamLeaf
from millpond.planner.lumped.lumped_query import LumpedQuery, write_lumped_query
from millpond.service.queries.join_use import join_of
from millpond.service.queries.options import option, static_reduction, tolerance_of
from millpond.service.queries.query_stems import slot_key
from millpond.state.version import Version

#: Queries kept ready to be invoked; another is bound again first, in about 0.2 ms.
MOST_PREPARED = 4_096


@dataclass(frozen=True)
class PreparedQuery:
    """A bound query with the factors and slots of its leaves.

    Attributes:
        bound: The query.
        factors: Per stream leaf its predicate's factors, or None when every element matches.
        slots: Per stream leaf its slot in the Query SteM, or None.
        seed: The seed of its samples.
        limits: What an evaluation may use.
        name: The handle's name, or None for a query asked once.
        join: What SteMs serve of the join the query is, if it is one.
        id: The handle's id, or None for a query asked once.
        kept: Whether its answers are kept (`eager`, `auto`).
        tolerance: What it tolerates.
        reduction: How far it was reduced when it was registered.
        weight: Its weight.
    """

    bound: BoundQuery
    factors: tuple[Factors | None, ...]
    slots: tuple[int | None, ...]
    seed: int
    limits: Limits
    name: str | None = None
    join: JoinPlan | None = None
    id: int | None = None
    kept: bool = False
    tolerance: Tolerance = NO_TOLERANCE
    reduction: Reduction = NO_REDUCTION
    weight: float = 1.0
    _reduced: dict[Reduction, ReducedQuery | None] = field(default_factory=dict, repr=False)

    @kept_property
    def survey(self) -> Survey:
        """What of the query may be reduced."""
        return survey(self.bound)

    def reduce(self, wanted: Reduction) -> tuple[PreparedQuery, ReducedQuery] | None:
        """The query reduced as far as is wanted and allowed; None if nothing of it is reduced.

        An invocation keeps no state, so filters would save nothing: it is exact in their place.
        """
        wanted = replace(wanted, false_positives=None)
        if wanted not in self._reduced:
            self._reduced[wanted] = reduce_query(self.bound, self.survey, wanted)
        reduced = self._reduced[wanted]
        if reduced is None:
            return None
        # The windows' rows are read: pairs and totals are stored of whole streams.
        return replace(self, bound=reduced.bound, join=None, id=None, kept=False), reduced

    @kept_property
    def projected(self) -> JoinProjection | None:
        """The projection of joined rows that is the answer, if nothing else is left to do."""
        return projection_of(self.bound, self.join) if self.join is not None else None

    def over_lumps(self, slices: Mapping[str, pa.Schema]) -> LumpedQuery | None:
        """The query over lumps of its slices' rows, which have these columns; None: it has none."""
        known = self._over_lumps
        key = tuple(slices.items())
        if key not in known:
            bound = self.bound
            found = write_lumped_query(bound.tree, bound.literals, slices)
            known[key] = None if any(leaf.hidden for leaf in bound.streams) else found
        return known[key]

    @kept_property
    def _over_lumps(self) -> dict[tuple[tuple[str, pa.Schema], ...], LumpedQuery | None]:
        return {}


def prepare(
    definition: QueryDef,
    bound: BoundQuery,
    factors: Sequence[Factors | None],
    slots: Sequence[int | None],
    join: JoinPlan | None,
) -> PreparedQuery:
    """Prepare a standing query whose factors and slots are known, with its options."""
    options = definition.options
    limits = Limits(
        seconds=float(options.get("max_seconds", Limits.seconds)),
        rows=int(options.get("max_rows", Limits.rows)),
        memory=parse_memory(str(option(definition, "max_memory"))),
    )
    seed = int(options["seed"]) if "seed" in options else seed_of(bound)
    name, id = definition.name, definition.id
    kept = options.get("materialize") in ("eager", "auto") and not bound.estimates
    return PreparedQuery(
        bound,
        tuple(factors),
        tuple(slots),
        seed,
        limits,
        name,
        join,
        id,
        kept,
        tolerance_of(options),
        static_reduction(options),
        float(option(definition, "weight")),
    )


def prepare_again(version: Version, definition: QueryDef, bound: BoundQuery) -> PreparedQuery:
    """Prepare a standing query that was registered before the store was opened."""
    slots = [leaf.slot for leaf in version.leaves(definition.id)]
    factors: list[Factors | None] = []
    for leaf, slot in zip(bound.streams, slots, strict=True):
        stream = stream_of(version, leaf)
        ref = version.slot(stream.id, slot) if slot is not None else None
        factors.append(Factors.unpack(ref.factors) if ref else leaf_factors(leaf, stream))
    join = join_of(bound, [stream_of(version, leaf) for leaf in bound.streams])
    return prepare(definition, bound, factors, slots, join)


def prepare_once(version: Version, bound: BoundQuery) -> PreparedQuery:
    """Prepare a query asked once; it uses the slot of a standing query with an equal predicate.

    Raises:
        MillpondError: CQL-216, it is stream-valued.
    """
    if bound.to_stream is not None:
        raise stream_valued_error(bound, "CREATE QUERY name AS it, and FETCH name")
    factors: list[Factors | None] = []
    slots: list[int | None] = []
    for leaf in bound.streams:
        stream = stream_of(version, leaf)
        found = leaf_factors(leaf, stream)
        same = version.slot_of_key(stream.id, slot_key(found)) if found is not None else None
        factors.append(found)
        slots.append(same.slot if same else None)
    join = join_of(bound, [stream_of(version, leaf) for leaf in bound.streams])
    return PreparedQuery(bound, tuple(factors), tuple(slots), seed_of(bound), Limits(), join=join)


def leaf_factors(leaf: StreamLeaf, stream: StreamDef) -> Factors | None:
    """The factors a leaf is matched on; None when every element matches."""
    if not leaf.shapes:
        return None
    if not leaf.literals:
        return factorize(cast(exp.Expression, leaf.predicate), stream.schema)
    return factor_template(leaf.shapes, stream.schema).fill(leaf.literals)


def stream_of(version: Version, leaf: StreamLeaf) -> StreamDef:
    """The stream a leaf is an occurrence of. Raises CQL-201 when it was dropped meanwhile."""
    stream = version.find(leaf.stream)
    if not isinstance(stream, StreamDef):
        raise MillpondError("CQL-201", f'no stream "{leaf.stream}" any more')
    return stream


def knows_all_columns(version: Version, bound: BoundQuery, definition: QueryDef) -> bool:
    """Whether no column was added to what a query reads since its text was given."""
    epoch = definition.text_epoch
    return epoch is None or all(
        column.added <= epoch
        for leaf in bound.streams
        for column in stream_of(version, leaf).schema.added
    )


def default_seed(bound: BoundQuery) -> int:
    """The seed of a query without a seed option: the hash of its canonical text.

    So queries with the same text have the same sample whenever they are registered.
    """
    return zlib.crc32(bound.canonical.encode())


def seed_of(bound: BoundQuery) -> int:
    """The seed of a bound query without a seed option; computed only for a query with samples."""
    sampled = any(leaf.sample is not None for leaf in bound.streams)
    return default_seed(bound) if sampled else 0


class PreparedQueries:
    """The queries invoked lately, ready to be invoked again; who changes them holds a lock."""

    def __init__(self) -> None:
        self._prepared: OrderedDict[int, PreparedQuery] = OrderedDict()

    def find(self, id: int) -> PreparedQuery | None:
        """Find a query; None: it has to be prepared again."""
        return self._prepared.get(id)

    def keep(self, id: int, prepared: PreparedQuery) -> None:
        """Keep a query; of too many, drop the one that was kept first."""
        self._prepared.pop(id, None)
        self._prepared[id] = prepared
        while len(self._prepared) > MOST_PREPARED:
            self._prepared.popitem(last=False)

    def forget(self, id: int) -> None:
        """Drop a query if it is kept."""
        self._prepared.pop(id, None)


def check_answerable(definition: QueryDef) -> None:
    """Raise POND-402 when a query is inactive or suspended."""
    if definition.suspended is not None:
        raise MillpondError(
            "POND-402",
            f'query "{definition.name}" is suspended',
            detail=definition.suspended,
            hint=f"ALTER QUERY {definition.name} SET (active = true) starts it again.",
        )
    if not definition.active:
        raise MillpondError(
            "POND-402",
            f'query "{definition.name}" is inactive',
            detail="It keeps its definition but is not answered.",
            hint=f"ALTER QUERY {definition.name} SET (active = true) activates it.",
        )


def stream_valued_error(bound: BoundQuery, instead: str) -> MillpondError:
    """The error for invoking a stream-valued query."""
    assert bound.to_stream is not None
    return MillpondError(
        "CQL-216",
        "a stream-valued query has no answer at an instant",
        detail=f"{bound.to_stream.upper()} makes a stream of a relation: its elements are read"
        " in the order in which they come.",
        hint=f"{instead}.",
        text=bound.text,
        span=Span(0, len(bound.to_stream)),
    )
