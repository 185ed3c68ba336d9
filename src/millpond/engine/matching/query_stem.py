"""The Query SteM: the standing queries of a stream, as the other side of every element's join.

PSoup (VLDB 2002, section 3.1) stores queries as data: a new element probes the Query SteM as a
new query probes the Data SteM. The driver holds the mutable `QuerySteM`; tasks see a
`StemSnapshot`. A snapshot is immutable, made of blocks of 512 queries of which only the changed
ones are rebuilt, and of indexes of led queries. It is saved one file a block or index under the
name of its content, so that a worker maps only changed ones again.

New queries go to blocks. When some thousands came, those that one factor leads to become an index
together, and an index is merged with the one before it unless that is four times as large: so a
million queries are in a handful of indexes, and each is laid out a few times.

INV-STEM-1: a slot is in one block or index, or in `loose`, or matches nothing.
INV-STEM-2: a block's bit of a slot that was removed is clear in every later snapshot, and its
place in an index is among those gone.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from millpond.engine.matching.grouped_filter import BLOCK, MOST_REGIONS, Block, build_block
from millpond.engine.matching.led_queries import LedQueries, choose_leads, lead
from millpond.engine.matching.predicate_columns import PredicateColumns, gather, merge
from millpond.engine.predicates.factors import Factors, pack_bare
from millpond.model.owner_only import write_owner_only
from millpond.model.schema import Schema

T = TypeVar("T")

#: A block with fewer queries than this share of its room is merged with others.
_SPARSE = 4
#: An index is merged with the one before it unless that has so many times its queries.
_MERGE_BELOW = 4
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Leading:
    """Which queries are led, instead of being in blocks.

    Attributes:
        least: How many new queries are looked at together. Fewer stay in blocks, which cost less
            than an index while they are few.
        most_share: The greatest share of elements that a leading factor may hold of. Being led to
            a query costs as much as a hundred queries of a block, or more.
    """

    least: int = 2048
    most_share: float = 1 / 256


LEADING = Leading()


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
        led: The indexes of led queries.
        gone: For each index the places of queries that were removed since, ascending.
    """

    schema: Schema
    blocks: tuple[Block, ...] = ()
    others: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    loose: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    upto: int = 0
    led: tuple[LedQueries, ...] = ()
    gone: tuple[npt.NDArray[np.int64], ...] = ()

    @cached_property
    def slots(self) -> npt.NDArray[np.int64]:
        """Every slot, ascending, including those that match nothing."""
        parts = [block.slots[block.slots >= 0] for block in self.blocks]
        for led, gone in zip(self.led, self.gone, strict=True):
            parts.append(np.delete(led.columns.slots, gone))
        parts.append(np.array([*self.loose, *self.never], np.int64))
        return np.sort(np.concatenate(parts))

    @staticmethod
    def of(
        queries: Iterable[tuple[int, Factors]], schema: Schema, leading: Leading = LEADING
    ) -> StemSnapshot:
        """Make a snapshot of just these queries, for matching them against kept elements."""
        stem = QuerySteM(schema, leading)
        for slot, factors in queries:
            stem.add(slot, factors)
        return stem.snapshot()

    def save(self, path: Path | str) -> list[Path]:
        """Write the snapshot to `path`, and its blocks and indexes beside it unless they are there.

        Returns:
            Every file the snapshot consists of. Snapshots that contain a block share its file; the
            caller deletes a file that no snapshot it still wants names.
        """
        path = Path(path)
        blocks = [block.save(path.parent) for block in self.blocks]
        led = [index.save(path.parent) for index in self.led]
        content = {
            "schema": self.schema,
            "blocks": blocks,
            "led": led,
            "gone": self.gone,
            "others": dict(self.others),
            "loose": self.loose,
            "never": self.never,
            "upto": self.upto,
        }
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        write_owner_only(partial, pickle.dumps(content, protocol=5))
        os.replace(partial, path)
        return [path, *(path.parent / name for name in (*blocks, *led))]

    @staticmethod
    def load(path: Path | str) -> StemSnapshot:
        """Map a saved snapshot; blocks and indexes this process has mapped are used again.

        Raises:
            OSError: a file is missing.
            ValueError: a file is not what it should be.
        """
        path = Path(path)
        content = pickle.loads(path.read_bytes())
        blocks = tuple(_mapped_blocks.get(path.parent / name) for name in content.pop("blocks"))
        led = tuple(_mapped_indexes.get(path.parent / name) for name in content.pop("led"))
        return StemSnapshot(blocks=blocks, led=led, **content)


class _Mapped(Generic[T]):
    """The files this process has mapped, the least recently used dropped first."""

    def __init__(self, load: Callable[[Path], T], most: int) -> None:
        self._load = load
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[Path, T] = OrderedDict()

    def get(self, path: Path) -> T:
        with self._lock:
            held = self._held.get(path)
            if held is not None:
                self._held.move_to_end(path)
                return held
        held = self._load(path)
        with self._lock:
            self._held[path] = held
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        return held


_mapped_blocks = _Mapped(Block.load, 4096)
_mapped_indexes = _Mapped(LedQueries.load, 64)


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


@dataclass(slots=True, eq=False)
class _Index:
    """The mutable side of an index: which of its queries were removed."""

    led: LedQueries
    removed: npt.NDArray[np.bool_]
    gone: npt.NDArray[np.int64] = field(default_factory=lambda: _NONE)  # as of the last snapshot
    size: int = 0

    @staticmethod
    def of(led: LedQueries) -> _Index:
        return _Index(led, np.zeros(len(led), np.bool_), size=len(led))

    def find(self, slot: int) -> int | None:
        """Return a slot's place, if it is there and was not removed."""
        slots = self.led.columns.slots
        place = int(np.searchsorted(slots, slot))
        is_there = place < len(slots) and slots[place] == slot and not self.removed[place]
        return place if is_there else None

    def remove(self, place: int) -> None:
        self.removed[place] = True
        self.size -= 1

    def find_gone(self) -> npt.NDArray[np.int64]:
        """List the places that were removed."""
        if len(self.gone) + self.size != len(self.led):
            self.gone = np.flatnonzero(self.removed)
        return self.gone

    @property
    def is_thin(self) -> bool:
        return self.size * 2 < len(self.led)

    def live(self) -> PredicateColumns:
        """Return the predicates of the queries that were not removed."""
        columns = self.led.columns
        return columns.select(np.flatnonzero(~self.removed)) if len(self.find_gone()) else columns


class QuerySteM:
    """The standing queries of a stream, on the driver. Not for use by two threads at once.

    It holds the packed factors of queries in blocks, shared with the caller that gave them (the
    catalog), and a number for the query's place. Tables are in files; blocks are rebuilt from the
    factors, and indexes from one another.

    Args:
        schema: The stream's columns.
        leading: Which queries are led. It changes no match.
    """

    def __init__(self, schema: Schema, leading: Leading = LEADING) -> None:
        self.schema = schema
        self.upto = 0
        self._leading = leading
        self._new: dict[int, bytes] = {}  # slots added since the last snapshot, to packed factors
        self._young: dict[
            int, None
        ] = {}  # slots in blocks of which it is open whether they are led
        self._indexes: list[_Index] = []
        self._drafts: dict[int, _Draft] = {}  # by number, ascending
        self._next_draft = 0
        self._roomy: list[int] = []
        self._place: dict[int, int] = {}  # slot -> number of its draft * BLOCK + position
        self._others: dict[int, tuple[str, ...]] = {}
        self._loose: dict[int, None] = {}
        self._never: dict[int, None] = {}
        self._snapshot: StemSnapshot | None = None

    def __len__(self) -> int:
        led = sum(index.size for index in self._indexes)
        placed = len(self._new) + len(self._place)
        return led + placed + len(self._loose) + len(self._never)

    def __contains__(self, slot: int) -> bool:
        if slot >= self.upto:
            return False
        if slot in self._new or slot in self._place or slot in self._loose or slot in self._never:
            return True
        return any(index.find(slot) is not None for index in self._indexes)

    def add(self, slot: int, factors: Factors) -> None:
        """Add a query under a slot that is not taken."""
        self._take(slot, factors.pack(), factors)

    def add_packed(self, slot: int, packed: bytes) -> None:
        """Add a query by its packed factors; the bytes are kept, not copied."""
        self._take(slot, packed, Factors.unpack(packed))

    def _take(self, slot: int, packed: bytes, factors: Factors) -> None:
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
        self._new[slot] = packed

    def _lay_out(self) -> None:
        """Give the new queries their places, in blocks or led."""
        if len(self._new) + len(self._young) < self._leading.least:
            for slot, packed in self._new.items():
                self._place_in_block(slot, packed)
            self._young.update(dict.fromkeys(self._new))
        else:
            for slot in self._young:
                self._new[slot] = self._take_from_block(slot)
            self._young.clear()
            columns = gather(self._new.items(), self.schema)
            led, rest = self._divide(columns)
            for slot in rest.tolist():
                self._place_in_block(slot, self._new[slot])
            if led is not None:
                self._indexes.append(_Index.of(led))
        self._new.clear()
        self._merge_indexes()

    def _divide(self, columns: PredicateColumns) -> tuple[LedQueries | None, npt.NDArray[np.int64]]:
        """Index the queries a factor leads to; return also the slots of the others."""
        leads = choose_leads(columns, self._leading.most_share)
        chosen = np.flatnonzero(leads >= 0)
        rest = columns.slots[leads < 0]
        if len(chosen) == 0:
            return None, rest
        if len(rest):
            ahead = leads[chosen] - columns.part_start[chosen]
            columns = columns.select(chosen)
            leads = columns.part_start[:-1] + ahead
        return lead(columns, leads), rest

    def _merge_indexes(self) -> None:
        """Merge small indexes, and lay out those anew that many queries have left."""
        self._indexes = [index for index in self._indexes if index.size]
        while self._indexes:
            *before, last = self._indexes
            if before and before[-1].size < _MERGE_BELOW * last.size:
                merged = merge([before.pop().live(), last.live()])
            elif thin := next((i for i in self._indexes if i.is_thin), None):
                before = [i for i in self._indexes if i is not thin]
                merged = thin.live()
            else:
                return
            led, rest = self._divide(merged)
            self._indexes = before if led is None else [*before, _Index.of(led)]
            for place in np.searchsorted(merged.slots, rest).tolist():
                slot = int(merged.slots[place])
                packed = pack_bare(merged.bare(place, self._others.get(slot, ())))
                self._place_in_block(slot, packed)

    def _place_in_block(self, slot: int, packed: bytes) -> None:
        """Give the slot a place in a block with room."""
        cuts = _cut_counts(Factors.unpack(packed))
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
            self._young.pop(slot, None)
            self._take_from_block(slot)
            return
        self._new.pop(slot, None)
        self._loose.pop(slot, None)
        self._never.pop(slot, None)
        for index in self._indexes:
            if (place := index.find(slot)) is not None:
                index.remove(place)

    def _take_from_block(self, slot: int) -> bytes:
        """Free a slot's place in its block; return its packed factors."""
        number, position = divmod(self._place.pop(slot), BLOCK)
        draft = self._drafts[number]
        if draft.size == BLOCK and number not in self._roomy:
            self._roomy.append(number)
        packed = draft.leave(position)
        for attribute, count in _cut_counts(Factors.unpack(packed)).items():
            draft.cuts[attribute] -= count
        return packed

    def snapshot(self) -> StemSnapshot:
        """Return the queries as they are now. Only what changed is built."""
        if self._snapshot is None:
            self._lay_out()
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
                tuple(index.led for index in self._indexes),
                tuple(index.find_gone() for index in self._indexes),
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
                self._place_in_block(slot, packed)

    def release(self, directory: Path) -> None:
        """Replace blocks and indexes by mappings of the files of a snapshot in `directory`.

        The driver then holds only the factors that blocks are rebuilt from, not their tables.
        """
        for draft in self._drafts.values():
            if (
                draft.built is not None
                and (path := directory / f"{draft.built.digest}.block").exists()
            ):
                draft.built = _mapped_blocks.get(path)
        for index in self._indexes:
            if not index.led.mapped and (path := directory / index.led.name).exists():
                index.led = _mapped_indexes.get(path)
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
        tables += sum(index.led.nbytes + index.removed.nbytes for index in self._indexes)
        known = (
            len(self._new)
            + len(self._young)
            + len(self._place)
            + len(self._others)
            + len(self._loose)
            + len(self._never)
        )
        return tables + places + texts + 100 * known


def _cut_counts(factors: Factors) -> dict[str, int]:
    """Count the cuts on each attribute, of value sets and clauses."""
    counts: dict[str, int] = {}
    for clause in (factors.sets, *factors.clauses):
        for attribute, values in clause:
            counts[attribute] = counts.get(attribute, 0) + len(values.cuts)
    return counts
