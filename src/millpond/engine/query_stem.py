"""The Query SteM: the standing queries of a stream, as the other side of every element's join.

PSoup (VLDB 2002, section 3.1) stores queries as data: a new element probes the Query SteM as a
new query probes the Data SteM. Here the driver holds the mutable `QuerySteM`, and what tasks see
is a `StemSnapshot`: immutable, made of blocks of 512 queries of which only the changed ones are
rebuilt, and saved one file a block under its content's name, so that a worker maps again only
what changed.

INV-STEM-1: a slot is in one block, or in `loose`, or matches nothing.
INV-STEM-2: a block's bit of a slot that was removed is clear in every later snapshot.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millpond.engine.factors import Factors
from millpond.engine.grouped_filter import BLOCK, MOST_REGIONS, Block, Served, build_block
from millpond.engine.value_sets import ValueSet
from millpond.model.schema import Schema

#: A block with fewer queries than this share of its room is merged with others.
_SPARSE = 4


@dataclass(frozen=True, eq=False)
class StemSnapshot:
    """The standing queries of a stream at one moment.

    Attributes:
        schema: The stream's columns.
        blocks: The grouped filters.
        others: Slot to the DuckDB expressions that must hold too, in order. A slot that is in no
            block is decided by these alone; with none, it matches every element.
        loose: The slots that are in no block and can match.
        never: The slots that match nothing.
        upto: One more than the greatest slot ever added.
    """

    schema: Schema
    blocks: tuple[Block, ...] = ()
    others: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    loose: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    upto: int = 0

    @cached_property
    def slots(self) -> npt.NDArray[np.int64]:
        """Every slot, ascending, those that match nothing included."""
        parts = [block.slots[block.slots >= 0] for block in self.blocks]
        parts.append(np.array([*self.loose, *self.never], np.int64))
        return np.sort(np.concatenate(parts))

    @staticmethod
    def of(queries: Iterable[tuple[int, Factors]], schema: Schema) -> StemSnapshot:
        """A snapshot of just these queries, for matching them against kept elements."""
        stem = QuerySteM(schema)
        for slot, factors in queries:
            stem.add(slot, factors)
        return stem.snapshot()

    def save(self, path: Path | str) -> list[Path]:
        """Writes the snapshot to `path`, and its blocks beside it unless they are there.

        Returns:
            Every file the snapshot consists of. A block's file is shared by the snapshots that
            contain it; the caller deletes files no snapshot it still wants names.
        """
        path = Path(path)
        names = [block.save(path.parent) for block in self.blocks]
        content = {
            "schema": self.schema,
            "blocks": names,
            "others": dict(self.others),
            "loose": self.loose,
            "never": self.never,
            "upto": self.upto,
        }
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_bytes(pickle.dumps(content, protocol=5))
        os.replace(partial, path)
        return [path, *(path.parent / name for name in names)]

    @staticmethod
    def load(path: Path | str) -> StemSnapshot:
        """Maps a saved snapshot; blocks this process has mapped before are used again.

        Raises:
            OSError: a file is missing.
            ValueError: a file is not what it should be.
        """
        path = Path(path)
        content = pickle.loads(path.read_bytes())
        names = content.pop("blocks")
        blocks = tuple(_mapped.get(path.parent / name) for name in names)
        return StemSnapshot(blocks=blocks, **content)


class _MappedBlocks:
    """The blocks this process has mapped, the least recently used dropped first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._blocks: OrderedDict[Path, Block] = OrderedDict()

    def get(self, path: Path) -> Block:
        with self._lock:
            block = self._blocks.get(path)
            if block is not None:
                self._blocks.move_to_end(path)
                return block
        block = Block.load(path)
        with self._lock:
            self._blocks[path] = block
            while len(self._blocks) > self._most:
                self._blocks.popitem(last=False)
        return block


_mapped = _MappedBlocks(4096)


@dataclass(slots=True, eq=False)
class _Draft:
    """The mutable side of a block: who is in it, and the block as last built."""

    members: dict[int, int] = field(default_factory=dict)  # position -> slot
    free: list[int] = field(default_factory=list)
    cuts: dict[str, int] = field(default_factory=dict)  # attribute -> cuts, at most
    built: Block | None = None

    def take(self, slot: int) -> int:
        position = self.free.pop() if self.free else len(self.members)
        self.members[position] = slot
        self.built = None
        return position

    @property
    def is_thin(self) -> bool:
        """Whether it is mostly empty, of queries and of cuts."""
        return len(self.members) * _SPARSE < BLOCK and all(
            n * _SPARSE < MOST_REGIONS for n in self.cuts.values()
        )

    def has_room(self, cuts: Mapping[str, int]) -> bool:
        return len(self.members) < BLOCK and all(
            self.cuts.get(a, 0) + n <= MOST_REGIONS for a, n in cuts.items()
        )


class QuerySteM:
    """The standing queries of a stream, on the driver. Not for use by two threads at once."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.upto = 0
        self._drafts: list[_Draft] = []
        self._roomy: list[_Draft] = []
        self._place: dict[int, tuple[_Draft, int]] = {}
        # What a block is rebuilt from: pickled, a fifth of the size of the objects.
        self._served: dict[int, bytes] = {}
        self._others: dict[int, tuple[str, ...]] = {}
        self._loose: dict[int, None] = {}
        self._never: dict[int, None] = {}
        self._snapshot: StemSnapshot | None = None

    def __len__(self) -> int:
        return len(self._place) + len(self._loose) + len(self._never)

    def __contains__(self, slot: int) -> bool:
        return slot in self._place or slot in self._loose or slot in self._never

    def add(self, slot: int, factors: Factors) -> None:
        """Adds a query under a slot that is not taken."""
        if slot in self:
            raise ValueError(f"slot {slot} is taken")
        self._snapshot = None
        self.upto = max(self.upto, slot + 1)
        if factors.never:
            self._never[slot] = None
            return
        if factors.others:
            self._others[slot] = factors.others
        if not factors.sets and not factors.clauses:
            self._loose[slot] = None
            return
        self._served[slot] = _pack(factors.sets, factors.clauses)
        self._settle(slot, _cut_counts(factors.sets, factors.clauses))

    def _settle(self, slot: int, cuts: Mapping[str, int]) -> None:
        """Gives the slot a place in a block with room."""
        while self._roomy and len(self._roomy[-1].members) >= BLOCK:
            self._roomy.pop()
        draft = next((d for d in reversed(self._roomy) if d.has_room(cuts)), None)
        if draft is None:
            draft = _Draft()
            self._drafts.append(draft)
            self._roomy.append(draft)
        self._place[slot] = draft, draft.take(slot)
        for attribute, count in cuts.items():
            draft.cuts[attribute] = draft.cuts.get(attribute, 0) + count

    def remove(self, slot: int) -> None:
        """Removes a query; its slot may be added again.

        Raises:
            KeyError: there is no such slot.
        """
        if slot not in self:
            raise KeyError(slot)
        self._snapshot = None
        self._others.pop(slot, None)
        if slot in self._place:
            draft, position = self._place.pop(slot)
            for attribute, count in _cut_counts(*_unpack(self._served.pop(slot))).items():
                draft.cuts[attribute] -= count
            if len(draft.members) == BLOCK and draft not in self._roomy:
                self._roomy.append(draft)
            del draft.members[position]
            draft.free.append(position)
            draft.built = None
        else:
            self._loose.pop(slot, None)
            self._never.pop(slot, None)

    def snapshot(self) -> StemSnapshot:
        """The queries as they are now. Only blocks that changed are built."""
        if self._snapshot is None:
            self._compact()
            for draft in self._drafts:
                if draft.built is None:
                    draft.built = build_block(
                        [
                            (position, slot, _unpack(self._served[slot]))
                            for position, slot in sorted(draft.members.items())
                        ]
                    )
            self._snapshot = StemSnapshot(
                self.schema,
                tuple(draft.built for draft in self._drafts if draft.built is not None),
                dict(self._others),
                tuple(self._loose),
                tuple(self._never),
                self.upto,
            )
        return self._snapshot

    def _compact(self) -> None:
        """Dissolves blocks that are mostly empty into others, if that saves a block."""
        thin = [d for d in self._drafts if d.is_thin]
        if len(thin) < 2 and not any(not d.members for d in thin):
            return
        gone = {id(d) for d in thin}
        self._drafts = [d for d in self._drafts if id(d) not in gone]
        self._roomy = [d for d in self._roomy if id(d) not in gone]
        for draft in thin:
            for _, slot in sorted(draft.members.items()):
                self._settle(slot, _cut_counts(*_unpack(self._served[slot])))

    def release(self, directory: Path) -> None:
        """Replaces blocks by mappings of the files a snapshot was saved to in `directory`.

        The driver then holds only what blocks are rebuilt from, not their tables.
        """
        for draft in self._drafts:
            if (
                draft.built is not None
                and (path := directory / f"{draft.built.digest}.block").exists()
            ):
                draft.built = _mapped.get(path)
        self._snapshot = None

    def memory(self) -> int:
        """Bytes held, tables included unless they were released to files; an estimate."""
        tables = sum(draft.built.nbytes for draft in self._drafts if draft.built is not None)
        served = sum(len(pickled) + 33 for pickled in self._served.values())
        texts = sum(len(text) + 49 for others in self._others.values() for text in others)
        # A slot costs about 100 bytes in each of the dictionaries that know it.
        places = 100 * (2 * len(self._place) + len(self._served) + len(self._others))
        return tables + served + texts + places + 100 * (len(self._loose) + len(self._never))


def _cut_counts(*parts: Iterable) -> dict[str, int]:
    """Cuts on each attribute of value sets and clauses."""
    sets, clauses = parts
    counts: dict[str, int] = {}
    for clause in (sets, *clauses):
        for attribute, values in clause:
            counts[attribute] = counts.get(attribute, 0) + len(values.cuts)
    return counts


def _pack(sets: tuple, clauses: tuple) -> bytes:
    plain = [
        [(attribute, v.cuts, v.below, v.nulls) for attribute, v in clause]
        for clause in (sets, *clauses)
    ]
    return pickle.dumps(plain, protocol=5)


def _unpack(pickled: bytes) -> Served:
    sets, *clauses = (
        tuple((attribute, ValueSet(cuts, below, nulls)) for attribute, cuts, below, nulls in clause)
        for clause in pickle.loads(pickled)
    )
    return sets, tuple(clauses)
