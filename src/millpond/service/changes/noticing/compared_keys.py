"""What joins compare and groupings group by: keys of several columns, and what refers to what.

Of a stream, one look sees which of its columns are unique, clustered or ordered
(`stream_statistics.py`). Keys of several columns are looked for only where a join of a planned
query compares them, or a grouping groups by them, and foreign keys where a join compares them. A
look is taken when the query is first planned, and again when the stream has grown fourfold.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model.constraints import FOREIGN_KEY, UNIQUE, Constraint
from millpond.operators.expire import Expire
from millpond.operators.group_by import Grouping
from millpond.operators.join import Join
from millpond.operators.protocol.node import Node
from millpond.operators.structures.group_releases import find_grouped
from millpond.operators.structures.observed_constraints import observe_key, observe_reference
from millpond.operators.structures.release_rules import ComparedKeys, find_compared
from millpond.service.answers.leaf_scan import Files
from millpond.service.changes.noticing.newest_elements import read_newest
from millpond.state.version import Version

#: Fewer elements say too little; so many of the newest are looked at, and referred to.
_LEAST, _RUN, _REFERENCED = 1_000, 10_000, 1_000_000
#: How many times as many there have to be before a key is looked at again.
_GROWN = 4
#: How many keys of a stream are looked at.
_MOST_KEYS = 32


@dataclass(frozen=True)
class _Pair:
    """What a join compares of a stream with another one, by folded names, in one order."""

    own: tuple[str, ...]
    other: str
    unique: tuple[str, ...]


@dataclass(frozen=True)
class _Look:
    """How many elements had arrived of a stream when a key was looked at, and what was seen."""

    arrived: int
    found: Constraint | None


class KeyObserver:
    """Looks at the keys that joins compare; safe to use from any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        #: By a stream's folded name, what joins compare of it.
        self._pairs: dict[str, tuple[_Pair, ...]] = {}
        #: By a stream's folded name, the folded columns that groupings group by.
        self._grouped: dict[str, tuple[tuple[str, ...], ...]] = {}
        #: By the stream's id and the key, and of references the other stream's id and key.
        self._looks: dict[tuple[object, ...], _Look] = {}
        self._lock = threading.Lock()

    def learn(self, nodes: Iterable[Node]) -> bool:
        """Learn what a plan's joins compare and groupings group by; return whether that is new."""
        nodes = list(nodes)
        found = [c for n in nodes if isinstance(n, Join) and (c := _find_compared(n)) is not None]
        grouped = [
            g for n in nodes if isinstance(n, Grouping) and (g := find_grouped(n.input, n.by))
        ]
        is_new = False
        with self._lock:
            for stream, names in grouped:
                own, keys = tuple(sorted(names)), self._grouped.get(stream.lower(), ())
                if len(own) > 1 and own not in keys and len(keys) < _MOST_KEYS:
                    self._grouped[stream.lower()] = (*keys, own)
                    is_new = True
            for compared in found:
                named = zip(*compared.names, strict=True)
                places = sorted({(a, b) for a, b in named if a is not None and b is not None})
                if not places:
                    continue
                left, right = zip(*places, strict=True)
                sides = zip(compared.streams, (left, right), strict=True)
                (one, a), (two, b) = sides
                for stream, own, other, unique in ((one, a, two, b), (two, b, one, a)):
                    pair, known = _Pair(own, other, unique), self._pairs.get(stream.lower(), ())
                    if pair not in known and len(known) < _MOST_KEYS:
                        self._pairs[stream.lower()] = (*known, pair)
                        is_new = True
        return is_new

    def list_keys(
        self, version: Version, stream: StreamDef, known: Sequence[Constraint]
    ) -> tuple[Constraint, ...]:
        """List what is seen of a stream's keys of several columns.

        Args:
            version: What there is.
            stream: The stream.
            known: Its other constraints. A key with fewer columns that are unique is no news.
        """
        found, name = [], stream.name.lower()
        compared = [pair.own for pair in self._pairs.get(name, ())]
        for own in dict.fromkeys((*compared, *self._grouped.get(name, ()))):
            if len(own) < 2 or any(c.kind == UNIQUE and _fold(c) <= set(own) for c in known):
                continue
            if (columns := _spell(stream, own)) is None:
                continue

            def look(columns: tuple[str, ...] = columns) -> Constraint | None:
                return observe_key(self._read(version, stream, columns, _RUN), columns)

            seen = self._look(version, stream, (stream.id, own), look)
            if seen is not None and all((seen.kind, set(own)) != (c.kind, _fold(c)) for c in known):
                found.append(seen)
        return tuple(found)

    def list_references(
        self,
        version: Version,
        stream: StreamDef,
        known_of: Callable[[Version, StreamDef], Sequence[Constraint]],
    ) -> tuple[Constraint, ...]:
        """List the foreign keys that are seen in a stream.

        Args:
            version: What there is.
            stream: The stream.
            known_of: Gives what else is known of a stream: which of its columns are unique.
        """
        found: dict[str, Constraint] = {}
        for pair in self._pairs.get(stream.name.lower(), ()):
            other = version.find(pair.other)
            if not isinstance(other, StreamDef) or other.is_pseudo:
                continue
            partners = dict(zip(pair.unique, pair.own, strict=True))
            for key in known_of(version, other):
                if key.kind != UNIQUE or not _fold(key) <= partners.keys():
                    continue
                own = _spell(stream, tuple(partners[n.lower()] for n in key.columns))
                if own is None or _is_declared(stream, own, other):
                    continue

                def look(
                    own: tuple[str, ...] = own,
                    other: StreamDef = other,
                    unique: tuple[str, ...] = key.columns,
                ) -> Constraint | None:
                    run = self._read(version, stream, own, _RUN)
                    referenced = self._read(version, other, unique, _REFERENCED)
                    return observe_reference(run, own, referenced, unique, other.name)

                at = (stream.id, own, other.id, key.columns)
                seen = self._look(version, stream, at, look)
                if seen is not None:
                    found.setdefault(seen.name, seen)
        return tuple(found.values())

    def _look(
        self,
        version: Version,
        stream: StreamDef,
        at: tuple[object, ...],
        look: Callable[[], Constraint | None],
    ) -> Constraint | None:
        """What was seen of a key; looks at it if the stream has grown fourfold since."""
        known, arrived = self._looks.get(at), version.clock(stream.id).next_seq
        if arrived >= (_LEAST if known is None else _GROWN * known.arrived):
            try:
                known = _Look(arrived, look())
            except (MillpondError, pa.ArrowException):
                known = _Look(arrived, None)  # who needs a segment reports that it is torn
            with self._lock:
                self._looks[at] = known
        return None if known is None else known.found

    def _read(
        self, version: Version, stream: StreamDef, columns: tuple[str, ...], wanted: int
    ) -> pa.Table:
        return read_newest(self._files, version.segments(stream.id), wanted, columns)


def _find_compared(join: Join) -> ComparedKeys | None:
    """Find what a join compares, also where something below it would keep what it releases."""
    if join.nulls_match:
        return None
    sides = _strip(join.left), _strip(join.right)
    return find_compared(sides, (join.left_keys, join.right_keys))


def _strip(node: Node) -> Node:
    """Leave out the `Expire` below a join: another plan has it above."""
    if isinstance(node, Expire):
        return _strip(node.input)
    if node.remembers or len(node.inputs) != 1:
        return node
    return node.over_inputs([_strip(node.inputs[0])])


def _fold(constraint: Constraint) -> set[str]:
    return {name.lower() for name in constraint.columns}


def _spell(stream: StreamDef, folded: tuple[str, ...]) -> tuple[str, ...] | None:
    """The columns as declared; None if the stream has not all of them."""
    declared = {name.lower(): name for name in stream.schema.names}
    found = tuple(declared[name] for name in folded if name in declared)
    return found if len(found) == len(folded) else None


def _is_declared(stream: StreamDef, own: tuple[str, ...], other: StreamDef) -> bool:
    folded, name = {n.lower() for n in own}, other.name.lower()
    return any(
        c.kind == FOREIGN_KEY and _fold(c) == folded and (c.references or "").lower() == name
        for c in stream.constraints
    )
