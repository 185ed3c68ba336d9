"""The Query SteM: the standing queries of a stream, as the other side of every element's join.

PSoup (VLDB 2002, section 3.1) stores queries as data: a new element probes the Query SteM as a
new query probes the Data SteM. The driver holds the mutable `QuerySteM`; tasks see a
`StemSnapshot`. A snapshot is immutable, made of blocks of 512 queries of which only the changed
ones are rebuilt. It is saved one file a block under the name of its content, so that a worker maps
only changed blocks again.

INV-STEM-1: a slot is in one block, or in `loose`, or matches nothing.
INV-STEM-2: a block's bit of a slot that was removed is clear in every later snapshot.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millpond.engine.matching.grouped_filter import BLOCK, MOST_REGIONS, Block, build_block
from millpond.engine.predicates.factors import Factors
from millpond.model.owner_only import write_owner_only
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
        """Every slot, ascending, including those that match nothing."""
        parts = [block.slots[block.slots >= 0] for block in self.blocks]
        parts.append(np.array([*self.loose, *self.never], np.int64))
        return np.sort(np.concatenate(parts))

    @staticmethod
    def of(queries: Iterable[tuple[int, Factors]], schema: Schema) -> StemSnapshot:
        """Make a snapshot of just these queries, for matching them against kept elements."""
        stem = QuerySteM(schema)
        for slot, factors in queries:
            stem.add(slot, factors)
        return stem.snapshot()

    def save(self, path: Path | str) -> list[Path]:
        """Write the snapshot to `path`, and its blocks beside it unless they are there.

        Returns:
            Every file the snapshot consists of. Snapshots that contain a block share its file; the
            caller deletes a file that no snapshot it still wants names.
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
        write_owner_only(partial, pickle.dumps(content, protocol=5))
        os.replace(partial, path)
        return [path, *(path.parent / name for name in names)]

    @staticmethod
    def load(path: Path | str) -> StemSnapshot:
        """Map a saved snapshot; blocks this process has mapped before are used again.

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


def _free_slots() -> npt.NDArray[np.int64]:
    return np.full(BLOCK, -1, np.int64)


@dataclass(slots=True, eq=False)
class _Draft:
    """The mutable side of a block: its slots, and the block as last built."""

    slots: npt.NDArray[np.int64] = field(default_factory=_free_slots)  # by position, -1 if free
    packed: list[bytes] = field(default_factory=lambda: [b""] * BLOCK)  # factors, by position
    size: int = 0
    cuts: dict[str, int] = field(default_factory=dict)  # attribute -> cuts, at most
    built: Block | None = None

    def take(self, slot: int, packed: bytes) -> int:
        """Give the slot the first free position."""
        position = int(self.slots.argmin())
        self.slots[position] = slot
        self.packed[position] = packed
        self.size += 1
        self.built = None
        return position

    def leave(self, position: int) -> bytes:
        """Free the position; return the packed factors that were there."""
        packed = self.packed[position]
        self.slots[position] = -1
        self.packed[position] = b""
        self.size -= 1
        self.built = None
        return packed

    def members(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (position, slot, packed factors) of each slot, by position."""
        for position in np.flatnonzero(self.slots >= 0).tolist():
            yield position, int(self.slots[position]), self.packed[position]

    @property
    def is_thin(self) -> bool:
        """Whether most of the block's room is empty, both for queries and for cuts."""
        return self.size * _SPARSE < BLOCK and all(
            n * _SPARSE < MOST_REGIONS for n in self.cuts.values()
        )

    def has_room(self, cuts: Mapping[str, int]) -> bool:
        return self.size < BLOCK and all(
            self.cuts.get(a, 0) + n <= MOST_REGIONS for a, n in cuts.items()
        )


class QuerySteM:
    """The standing queries of a stream, on the driver. Not for use by two threads at once.

    It holds each query's packed factors, shared with the caller that gave them (the catalog), and
    a number for the query's place. Tables are in files; blocks are rebuilt from the factors.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.upto = 0
        self._drafts: dict[int, _Draft] = {}  # by number, ascending
        self._next_draft = 0
        self._roomy: list[int] = []
        self._place: dict[int, int] = {}  # slot -> number of its draft * BLOCK + position
        self._others: dict[int, tuple[str, ...]] = {}
        self._loose: dict[int, None] = {}
        self._never: dict[int, None] = {}
        self._snapshot: StemSnapshot | None = None

    def __len__(self) -> int:
        return len(self._place) + len(self._loose) + len(self._never)

    def __contains__(self, slot: int) -> bool:
        return slot in self._place or slot in self._loose or slot in self._never

    def add(self, slot: int, factors: Factors) -> None:
        """Add a query under a slot that is not taken."""
        self.add_packed(slot, factors.pack())

    def add_packed(self, slot: int, packed: bytes) -> None:
        """Add a query by its packed factors; the bytes are kept, not copied."""
        if slot in self:
            raise ValueError(f"slot {slot} is taken")
        factors = Factors.unpack(packed)
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
        self._place_in_block(slot, packed, _cut_counts(factors))

    def _place_in_block(self, slot: int, packed: bytes, cuts: Mapping[str, int]) -> None:
        """Give the slot a place in a block with room."""
        while self._roomy and self._drafts[self._roomy[-1]].size >= BLOCK:
            self._roomy.pop()
        number = next((n for n in reversed(self._roomy) if self._drafts[n].has_room(cuts)), None)
        if number is None:
            number = self._next_draft
            self._next_draft += 1
            self._drafts[number] = _Draft()
            self._roomy.append(number)
        draft = self._drafts[number]
        self._place[slot] = number * BLOCK + draft.take(slot, packed)
        for attribute, count in cuts.items():
            draft.cuts[attribute] = draft.cuts.get(attribute, 0) + count

    def remove(self, slot: int) -> None:
        """Remove a query; its slot may be added again.

        Raises:
            KeyError: there is no such slot.
        """
        if slot not in self:
            raise KeyError(slot)
        self._snapshot = None
        self._others.pop(slot, None)
        if slot in self._place:
            number, position = divmod(self._place.pop(slot), BLOCK)
            draft = self._drafts[number]
            if draft.size == BLOCK and number not in self._roomy:
                self._roomy.append(number)
            gone = Factors.unpack(draft.leave(position))
            for attribute, count in _cut_counts(gone).items():
                draft.cuts[attribute] -= count
        else:
            self._loose.pop(slot, None)
            self._never.pop(slot, None)

    def snapshot(self) -> StemSnapshot:
        """Return the queries as they are now. Only blocks that changed are built."""
        if self._snapshot is None:
            self._compact()
            for draft in self._drafts.values():
                if draft.built is None:
                    draft.built = build_block(
                        [
                            (position, slot, (factors.sets, factors.clauses))
                            for position, slot, packed in draft.members()
                            for factors in (Factors.unpack(packed),)
                        ]
                    )
            self._snapshot = StemSnapshot(
                self.schema,
                tuple(draft.built for draft in self._drafts.values() if draft.built is not None),
                dict(self._others),
                tuple(self._loose),
                tuple(self._never),
                self.upto,
            )
        return self._snapshot

    def _compact(self) -> None:
        """Move the queries of mostly empty blocks to others, if that saves a block."""
        thin = {number: draft for number, draft in self._drafts.items() if draft.is_thin}
        if len(thin) < 2 and all(draft.size for draft in thin.values()):
            return
        for number in thin:
            del self._drafts[number]
        self._roomy = [number for number in self._roomy if number not in thin]
        for draft in thin.values():
            for _, slot, packed in draft.members():
                self._place_in_block(slot, packed, _cut_counts(Factors.unpack(packed)))

    def release(self, directory: Path) -> None:
        """Replace blocks by mappings of the files a snapshot was saved to in `directory`.

        The driver then holds only the factors that blocks are rebuilt from, not their tables.
        """
        for draft in self._drafts.values():
            if (
                draft.built is not None
                and (path := directory / f"{draft.built.digest}.block").exists()
            ):
                draft.built = _mapped.get(path)
        self._snapshot = None

    def expressions(self) -> set[str]:
        """Return the other factors of all queries."""
        return {text for others in self._others.values() for text in others}

    def memory(self) -> int:
        """Estimate the bytes held, tables included unless they were released to files.

        Packed factors belong to the catalog, and are not counted.
        """
        drafts = self._drafts.values()
        tables = sum(draft.built.nbytes for draft in drafts if draft.built is not None)
        places = sum(2 * draft.slots.nbytes for draft in drafts)  # and as many references
        texts = sum(len(text) + 49 for others in self._others.values() for text in others)
        # A slot costs about 100 bytes in each of the dictionaries that know it.
        known = len(self._place) + len(self._others) + len(self._loose) + len(self._never)
        return tables + places + texts + 100 * known


def _cut_counts(factors: Factors) -> dict[str, int]:
    """Count the cuts on each attribute, of value sets and clauses."""
    counts: dict[str, int] = {}
    for clause in (factors.sets, *factors.clauses):
        for attribute, values in clause:
            counts[attribute] = counts.get(attribute, 0) + len(values.cuts)
    return counts
