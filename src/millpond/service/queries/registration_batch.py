"""The additions of one registration, collected before its commit.

Each query adds a definition, a leaf for each occurrence of a stream, and a slot in that stream's
Query SteM for each predicate no earlier query has. A query that joins streams also adds a use of a
core, and the core if no earlier query has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import is_
from typing import Any

from millpond.catalog.objects import QueryDef, StreamDef, given_options, is_reserved
from millpond.engine.joins.plan import JoinPlan
from millpond.engine.predicates.factors import Factors
from millpond.errors import MillpondError
from millpond.model.names import check_name
from millpond.planner.bind.bound_query import BoundQuery, StreamLeaf
from millpond.service.queries.join_use import join_of, use_of
from millpond.service.queries.options import check_options
from millpond.service.queries.prepared import PreparedQuery, leaf_factors, prepare, stream_of
from millpond.service.queries.query_stems import slot_key
from millpond.service.queries.registration_request import RegistrationRequest
from millpond.state.join_state import JoinChange, JoinCore, JoinUse
from millpond.state.version import LeafRef, SlotRef, Version

#: Of a query that is matched on one stream: the stream's id, its factors' key, its factors packed,
#: and its `changes_after`.
MatchedQuery = tuple[int, bytes, bytes, int]


class RegistrationBatch:
    """Queries that are registered, or altered, in one epoch.

    Attributes:
        next_id: Gives a new id.
        now: The time of the registration, in microseconds since 1970 UTC.
        definitions: The queries that are registered.
        prepared: Those queries that are made ready to be invoked, by their ids.
        slots: The new slots.
        leaves: The queries' leaves.
    """

    def __init__(self, next_id: Callable[[], int], now: int) -> None:
        self.next_id = next_id
        self.now = now
        self.definitions: list[QueryDef] = []
        self.prepared: dict[int, PreparedQuery] = {}
        self.slots: list[SlotRef] = []
        self.leaves: list[LeafRef] = []
        self._names: set[str] = set()
        self._instants: dict[int, int] = {}
        #: By stream, the new slots by their keys.
        self._fresh: defaultdict[int, dict[bytes, int]] = defaultdict(dict)
        self._next_slot: dict[int, int] = {}
        self._cores: list[JoinCore] = []
        self._uses: list[JoinUse] = []
        self._core_of: dict[str, int] = {}
        #: The slots and cores of the version that its queries share; None: a new core.
        self._shared_slots: set[tuple[int, int]] = set()
        self._shared_cores: dict[str, int | None] = {}
        self._streams: dict[str, StreamDef] = {}
        self._epoch = -1

    def give_name(self, version: Version, request: RegistrationRequest) -> tuple[int, str]:
        """A new id, and the name of a registration: the one it asks for, or one made of the id.

        Raises:
            MillpondError: CQL-208, the name is taken; CQL-102, it cannot be a name.
        """
        if not request.name:
            return self.assign_id(version)
        check_name(request.name, request.statement, request.name_span)
        if self.is_taken(version, request.name):
            raise MillpondError(
                "CQL-208",
                f'the name "{request.name}" is taken',
                detail="Streams, relations and queries share one set of names.",
                hint="Choose another name, or DROP the other object first.",
                text=request.statement,
                span=request.name_span,
            )
        return self.next_id(), request.name

    def assign_id(self, version: Version) -> tuple[int, str]:
        """A new id, and a name made of it that is not taken."""
        while True:
            id = self.next_id()
            name = f"q{id}"
            # No such name is reserved.
            if name not in version.ids and name not in self._names:
                return id, name

    def is_taken(self, version: Version, name: str) -> bool:
        """Whether a name is taken in the catalog, or by an earlier query of this batch."""
        return version.find(name) is not None or name.lower() in self._names or is_reserved(name)

    def add(
        self, version: Version, definition: QueryDef, bound: BoundQuery, ready: bool = True
    ) -> None:
        """Add a query that is registered; `ready` to be invoked, if that is probable."""
        placed = self.place(version, definition, bound)
        self._names.add(definition.name.lower())
        self.definitions.append(definition)
        if ready:
            self.prepared[definition.id] = prepare(definition, bound, *placed)

    def place(
        self,
        version: Version,
        definition: QueryDef,
        bound: BoundQuery,
        is_scheduled: bool = True,
    ) -> tuple[list[Factors | None], list[int | None], JoinPlan | None]:
        """Give every leaf its factors, and a slot if the query is matched continuously.

        Args:
            version: What there is.
            definition: The query.
            bound: The same, bound.
            is_scheduled: Whether it is matched as data comes, if its options want that.

        Returns:
            The leaves' factors and slots, and the plan of the join: what `prepare` takes.
        """
        wants = definition.active and definition.options.get("materialize") != "none"
        matched = wants and is_scheduled
        factors: list[Factors | None] = []
        slots: list[int | None] = []
        streams = [self._stream(version, leaf) for leaf in bound.streams]
        for number, leaf in enumerate(bound.streams):
            stream = streams[number]
            found = leaf_factors(leaf, stream)
            slot = None
            if found is not None and matched and not stream.is_pseudo:
                slot = self._slot(version, stream.id, slot_key(found), found)
            factors.append(found)
            slots.append(slot)
            self.leaves.append(LeafRef(definition.id, number, stream.id, slot))
        join = join_of(bound, streams)
        if join is not None and matched:
            self._join(version, definition.id, bound, join, streams)
        return factors, slots, join

    def _stream(self, version: Version, leaf: StreamLeaf) -> StreamDef:
        """The stream of a leaf, looked up once for all queries that read it."""
        if version.epoch != self._epoch:
            self._streams, self._epoch = {}, version.epoch
        found = self._streams.get(leaf.stream)
        if found is None:
            found = self._streams[leaf.stream] = stream_of(version, leaf)
        return found

    def keep_leaves(self, version: Version, definition: QueryDef) -> None:
        """Keep the leaves that a query has, without slots: its text does not bind any more."""
        self.leaves += [replace(leaf, slot=None) for leaf in version.leaves(definition.id)]

    def change_joins(self, drop_uses: Sequence[int] = ()) -> JoinChange:
        """The change of the shared joins; `drop_uses` are queries that stop using theirs."""
        return JoinChange(cores=self._cores, uses=self._uses, drop_uses=drop_uses)

    def move(self, before: Version, now: Version) -> bool:
        """Move additions that were made for one version to a later one, where slots have moved on.

        Returns:
            False if the queries have to be collected anew: what they read has changed, somebody has
            a name of theirs, or they would share other slots or cores than before.
        """
        if now is before:
            return True
        if not reads_the_same(before, now) or self.prepared:
            return False
        if not self._names.isdisjoint(now.ids.find_added(before.ids)):
            return False
        for key, core_id in self._shared_cores.items():
            core = now.joins.core_of_key(key)
            if core_id != (None if core is None else core.id):
                return False
        return all(self._move_slots(id, before, now) for id in self._moved_streams())

    def _moved_streams(self) -> set[int]:
        return self._next_slot.keys() | {stream_id for stream_id, _ in self._shared_slots}

    def _move_slots(self, stream_id: int, before: Version, now: Version) -> bool:
        """Number the new slots of a stream behind those of now; share those that came meanwhile.

        Returns:
            False if a slot that is shared has gone.
        """
        slots = now.slots_by_number(stream_id)
        fresh, gone = slots.compare(before.slots_by_number(stream_id))
        if any((stream_id, number) in self._shared_slots for number in gone):
            return False
        own = self._fresh[stream_id]
        moved = {own[key]: number for number in fresh if (key := slots[number].key) in own}
        shared = set(moved)
        next_slot = now.next_slot(stream_id)
        if not shared and next_slot == before.next_slot(stream_id):
            return True
        kept: list[SlotRef] = []
        for slot in self.slots:
            if slot.stream_id != stream_id:
                kept.append(slot)
            elif slot.slot not in shared:
                moved[slot.slot] = next_slot
                kept.append(SlotRef(stream_id, next_slot, slot.key, slot.factors))
                next_slot += 1
        self.slots = kept
        self.leaves = [
            x
            if x.stream_id != stream_id or x.slot is None or x.slot not in moved
            else LeafRef(x.query_id, x.leaf, stream_id, moved[x.slot])
            for x in self.leaves
        ]
        return True

    def instant(self, at: int) -> int:
        """The instant, as one object for all queries that share it, to save memory."""
        return self._instants.setdefault(at, at)

    def _join(
        self,
        version: Version,
        query_id: int,
        bound: BoundQuery,
        plan: JoinPlan,
        streams: Sequence[StreamDef],
    ) -> None:
        """Add a use of this join's core: the core of an equal join, or a new one."""
        shared = version.joins.core_of_key(plan.key)
        core_id = shared.id if shared is not None else self._core_of.get(plan.key)
        self._shared_cores[plan.key] = None if shared is None else shared.id
        fresh = core_id is None
        if core_id is None:
            core_id = -1 - len(self._cores)
        use = use_of(query_id, core_id, bound, streams)
        if use is None:
            return
        self._uses.append(use)
        if fresh:
            ids = tuple(streams[leaf].id for leaf in use.leaves)
            self._cores.append(JoinCore(0, plan.key, plan.pack(), ids))
            self._core_of[plan.key] = core_id

    def add_matched(
        self,
        version: Version,
        requests: Sequence[RegistrationRequest],
        found: Sequence[MatchedQuery],
    ) -> None:
        """Add queries that are matched on one stream each, whose factors are encoded already.

        Raises:
            MillpondError: as `give_name`; CQL-214 for an option.
        """
        for request, (stream_id, key, packed, after) in zip(requests, found, strict=True):
            options: dict[str, Any] = {}
            if request.options:
                options = given_options(check_options(request.options, request.statement))
            id, name = self.give_name(version, request)
            self._names.add(name.lower())
            self.definitions.append(
                QueryDef(
                    id, name, request.text, options, 0, self.now, None, after, request.template
                )
            )
            slot = self._slot(version, stream_id, key, packed)
            self.leaves.append(LeafRef(id, 0, stream_id, slot))

    def _slot(self, version: Version, stream_id: int, key: bytes, factors: bytes | Factors) -> int:
        """Find the slot of these factors: that of an equal predicate, or a new one."""
        shared = version.slot_of_key(stream_id, key)
        if shared is not None:
            self._shared_slots.add((stream_id, shared.slot))
            return shared.slot
        own = self._fresh[stream_id]
        fresh = own.get(key)
        if fresh is None:
            fresh = self._next_slot.get(stream_id, version.next_slot(stream_id))
            self._next_slot[stream_id] = fresh + 1
            own[key] = fresh
            packed = factors if isinstance(factors, bytes) else factors.pack()
            self.slots.append(SlotRef(stream_id, fresh, key, packed))
        return fresh


def reads_the_same(before: Version, now: Version) -> bool:
    """Whether a query means in a version what it meant in an earlier one: all names are the same.

    Change logs come and go as queries are followed, and have no names.
    """
    if before.functions is not now.functions or before.summaries is not now.summaries:
        return False
    if before.relations is not now.relations:
        return False
    if before.streams is now.streams:
        return True
    old, new = before.named_streams(), now.named_streams()
    return len(old) == len(new) and all(map(is_, old, new))
