"""Jobs of the advancer: which derivations are advanced together, and what their job may read."""

from __future__ import annotations

import hashlib
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.catalog.option_values import parse_memory
from millpond.catalog.options import OPTIONS
from millpond.engine.dataflow.step import Scheduling
from millpond.engine.joins.arrangement import ELEMENT_BYTES as RUN_BYTES
from millpond.model.constraints import Constraint
from millpond.model.durations import parse_duration
from millpond.model.time import LAST
from millpond.operators.source import LOGS
from millpond.runtime.advance_job import (
    AdvanceJob,
    RelationFile,
    RelationInput,
    SegmentFile,
    Sink,
    StateShare,
)
from millpond.runtime.region_segments import ARRIVAL_BYTES
from millpond.service.changes.dataflow_accounts import DataflowAccounts
from millpond.service.changes.derivation import Derivation
from millpond.service.changes.giving_way.memory_ladder import find_state_limit
from millpond.service.changes.shared_logs import SharedLogs
from millpond.service.queries.query_stems import QueryStems
from millpond.service.queries.weights import weight_of
from millpond.state.version import WAITING, SegmentRef, StreamClock, Version

#: Elements a round feeds a group at most, about, and their bytes: it bounds a task's memory.
STEP_ROWS, STEP_BYTES = 500_000, 256 << 20
#: Derivations of one group: more of them share more, fewer of them use more workers.
_GROUP = 256


@dataclass(frozen=True, eq=False)
class Runnable:
    """A derivation that is to be advanced up to an instant.

    Attributes:
        derivation: The derivation.
        clock: The clock of its change log, with its position.
        upto: The instant.
        complete_upto: The last instant up to which all its changes are known to be in its log.
    """

    derivation: Derivation
    clock: StreamClock
    upto: int
    complete_upto: int


def sources(
    version: Version, derivation: Derivation
) -> Iterable[tuple[str, tuple[SegmentRef, ...]]]:
    """The streams a derivation reads, by name, with their segments."""
    for name in derivation.plan.needs:
        found = version.find(name)
        if isinstance(found, StreamDef):
            yield name, version.segments(found.id, found.kind)


def list_reached(
    segments: Iterable[SegmentRef], low: int | None, position: int, upto: int
) -> list[SegmentRef]:
    """The segments of a stream that a job from a position reads.

    Args:
        segments: The stream's segments.
        low: The first instant that matters; None: every one does.
        position: The last instant up to which changes are written.
        upto: The last instant that the job advances to.
    """
    return [
        s
        for s in segments
        if s.min_ts <= upto and (low is None or s.max_ts >= min(low, position + 1))
    ]


def measure_sides(version: Version, derivation: Derivation) -> tuple[int, int]:
    """How many elements a followed part's next step may look at, and the bytes of their index.

    A worker keeps a run for each column that is looked up, and the arrival numbers, of whole
    segments; all parts over the same columns share them. The elements are mapped from files.
    """
    assert derivation.look is not None
    position = version.clock(derivation.id).position
    reach = derivation.reach(position)
    elements = size = 0
    for name, segments in sources(version, derivation):
        low = reach.get(name, position + 1)
        rows = sum(s.rows for s in list_reached(segments, low, position, LAST))
        columns = {leaf.key for leaf in derivation.look.streams if leaf.stream == name}
        elements += rows
        size += rows * (RUN_BYTES * len(columns) + ARRIVAL_BYTES)
    return elements, size


def step_end(version: Version, derivation: Derivation, clock: StreamClock, upto: int) -> int:
    """Where one step ends: at the target, or earlier if there is much to read."""
    ahead = sorted(
        (s.max_ts, s.rows, s.bytes)
        for _, segments in sources(version, derivation)
        for s in segments
        if s.max_ts > clock.position and s.min_ts <= upto
    )
    rows = size = 0
    for max_ts, count, length in ahead:
        rows, size = rows + count, size + length
        if rows >= STEP_ROWS or size >= STEP_BYTES:
            return min(upto, max_ts)
    return upto


def make_scheduling(settings: Mapping[str, Any]) -> Scheduling:
    """How the operators of dataflows take turns, by the settings that ALTER SYSTEM has set."""
    names = ("scheduler", "latency", "queue_memory")
    policy, latency, memory = (settings.get(name, OPTIONS[name].default) for name in names)
    seconds = None if latency == "never" else parse_duration(latency) / 1e6
    return Scheduling(policy, seconds, parse_memory(memory))


def find_memory(version: Version) -> int:
    """The bytes that state may take in memory, in all processes together."""
    return parse_memory(version.settings.get("memory", OPTIONS["memory"].default))


#: Gives the constraints of a stream.
FindConstraints = Callable[[Version, StreamDef], tuple[Constraint, ...]]


class AdvanceJobs:
    """Makes jobs of the derivations that are due."""

    def __init__(
        self,
        store: Path,
        stems: QueryStems,
        accounts: DataflowAccounts,
        own: Mapping[str, tuple[str, int]] = MappingProxyType({}),
        workers: Callable[[], int] = lambda: 1,
        find_constraints: FindConstraints = lambda _, stream: stream.constraints,
    ) -> None:
        """Make jobs.

        Args:
            store: The store's directory.
            stems: The streams' Query SteMs.
            accounts: What the dataflows keep.
            own: By node key, the memory of operators that have some of their own.
            workers: Gives how many processes run tasks.
            find_constraints: Gives the constraints of a stream, declared and observed.
        """
        self._store = store
        self._stems = stems
        self._accounts = accounts
        self._own = own
        self._workers = workers
        self._find_constraints = find_constraints
        #: The members of the shared logs.
        self.shared = SharedLogs()
        self._life = uuid.uuid4().hex

    def forget_dataflows(self) -> None:
        """Make workers build their dataflows anew.

        Needed after a dataflow was advanced and the changes it gave were discarded: it has gone
        past changes that nobody was given.
        """
        self._life = uuid.uuid4().hex

    def of(
        self, version: Version, due: list[Runnable], kept: ExitStack
    ) -> list[tuple[list[Runnable], AdvanceJob]]:
        """Groups and their jobs; until `kept` is closed, the files they name stay."""
        return [(group, self._job(version, group, kept)) for group in _group(version, due)]

    def _job(self, version: Version, members: list[Runnable], kept: ExitStack) -> AdvanceJob:
        sinks = tuple(
            replace(self._sink(version, item, kept), weight=_weigh(version, item.derivation.stream))
            for item in members
        )
        first = members[0]
        position = max(item.clock.position for item in members)
        since: dict[str, int | None] = {}
        for item in members:
            for name, at in item.derivation.reach(position).items():
                before = since.get(name, at)
                since[name] = None if at is None or before is None else min(at, before)
        streams: dict[str, tuple[SegmentFile, ...]] = {}
        relations: dict[str, RelationInput] = {}
        constraints: dict[str, tuple[Constraint, ...]] = {}
        for item in members:
            for name, segments in sources(version, item.derivation):
                low = since.get(name, position + 1)
                declared = version.find(name)
                added = declared.schema.added if isinstance(declared, StreamDef) else ()
                streams[name] = tuple(
                    SegmentFile(s.path, s.checksum, s.seq_runs, s.min_ts, s.max_ts, added)
                    for s in list_reached(segments, low, position, first.upto)
                )
                if isinstance(declared, StreamDef) and (
                    known := self._find_constraints(version, declared)
                ):
                    constraints[name] = known
            for name in item.derivation.plan.relations:
                found = version.find(name)
                assert isinstance(found, RelationDef)
                deltas = version.relation_deltas(found.id)
                files = tuple(RelationFile(d.path, d.checksum, d.epoch) for d in deltas)
                relations[name] = RelationInput(found.schema.to_arrow(), files)
        return AdvanceJob(
            str(self._store),
            self._life,
            _label(members, sinks[0]),
            position,
            max(item.clock.relations_epoch for item in members),
            first.upto,
            version.epoch,
            since,
            streams,
            relations,
            sinks,
            constraints,
            make_scheduling(version.settings),
            self._share(version, members, _label(members, sinks[0])),
        )

    def _share(self, version: Version, members: list[Runnable], label: str) -> StateShare:
        """The memory for the job's state, in the process that runs it.

        What dataflows that are as heavy, or heavier, keep already is theirs.
        """
        limit = find_memory(version) // self._workers()
        weight = max(_weigh(version, item.derivation.stream) for item in members)
        own = {key: size for key, (_, size) in self._own.items()}
        most = find_state_limit(version)
        if most is None:
            return StateShare(limit, weight, own=own)
        for group, (other, memory, files) in self._accounts.list_weighed_state(version).items():
            if group != label and other >= weight:
                most -= memory + files
        return StateShare(limit, weight, max(0, most), own)

    def _sink(self, version: Version, item: Runnable, kept: ExitStack) -> Sink:
        derivation, has_begun = item.derivation, item.clock.next_seq > 0
        stream = derivation.stream
        if stream.is_shared_log:
            table = self.shared.members(version, stream.id)
            stem = None
            if len(table.logs):
                stem, _ = self._stems.snapshot(version, table.stream_id)
                kept.enter_context(self._stems.keep_files(stem))
            (source,) = derivation.plan.needs
            counts_all = any(node.feed and LOGS in node.feed[2] for node in derivation.plan.nodes())
            own = table.to_job(source, stem, counts_all)
            return Sink(stream.id, derivation.plan, None, has_begun=has_begun, members=own)
        if derivation.look is not None:
            query = version.query_of(stream)
            weight = weight_of(query) if query is not None else 1.0
            held = version.segments(stream.id, WAITING)
            waiting = [(s.path, s.checksum, s.seq_runs, s.rows) for s in held]
            return Sink(
                stream.id,
                derivation.plan,
                None,
                look=replace(derivation.look, weight=weight),
                waiting=waiting[0] if waiting else None,
            )
        if stream.is_change_log:
            leaves = derivation.leaves
            return Sink(stream.id, derivation.plan, None, has_begun=has_begun, leaves=leaves)
        stem, upto = self._stems.snapshot(version, stream.id)
        kept.enter_context(self._stems.keep_files(stem))
        accounts = self._stems.accounts(stream.id)
        columns = stream.schema.to_arrow()
        routing = self._stems.routing
        return Sink(stream.id, derivation.plan, columns, stem, upto, routing, accounts, has_begun)


def _weigh(version: Version, stream: StreamDef) -> float:
    """The weight of a derivation's query; 1 for a derived stream."""
    query = version.query_of(stream)
    return 1.0 if query is None else weight_of(query)


def _group(version: Version, due: list[Runnable]) -> list[list[Runnable]]:
    """Derivations that share one dataflow: same streams, same eager interval, same position.

    Where a derivation is known to have no changes after its position, up to a later instant, it
    may be in the group of any position up to that instant.
    """
    sharing: defaultdict[tuple[object, ...], list[Runnable]] = defaultdict(list)
    for item in due:
        known = _find_last_deltas(version, item)
        alone = item.derivation.id if item.derivation.stream.is_shared_log else 0
        sharing[(item.derivation.sharing_key, item.upto, known, alone)].append(item)
    groups = []
    for members in sharing.values():
        rest = sorted(members, key=lambda item: (item.clock.position, item.derivation.id))
        while rest:
            least = min(item.complete_upto for item in rest)
            groups.append([item for item in rest if item.clock.position <= least])
            rest = [item for item in rest if item.clock.position > least]
    return [
        members[start : start + _GROUP]
        for members in groups
        for start in range(0, len(members), _GROUP)
    ]


def _find_last_deltas(version: Version, item: Runnable) -> tuple[int, ...]:
    """Of each relation, the last delta that a derivation has read."""
    epoch = item.clock.relations_epoch
    return tuple(
        max((d.epoch for d in version.relation_deltas(relation) if d.epoch <= epoch), default=-1)
        for relation in sorted(item.derivation.relations)
    )


def _label(members: list[Runnable], sink: Sink) -> str:
    """The name under which a worker keeps the group's dataflow.

    It is made of the sharing key and not of the members, so that a derivation that joins finds the
    dataflow there. A large group is cut in parts, named by their first members. The state of a
    shared log's dataflow is that of its members: with others it is another dataflow.
    """
    first = members[0].derivation
    if sink.members is not None:
        own = (sink.members.logs.tobytes(), sink.members.slots.tobytes())
        named = (first.id, own if first.moves_by_itself else "")
        return hashlib.blake2b(repr(named).encode(), digest_size=8).hexdigest()
    part = first.id if len(members) == _GROUP else 0
    reads = (*map(sorted, first.sharing_key[:2]), *first.sharing_key[2:], part)
    return hashlib.blake2b(repr(reads).encode(), digest_size=8).hexdigest()
