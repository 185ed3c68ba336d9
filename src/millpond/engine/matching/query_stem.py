"""The Query SteM: the standing queries of a stream, as the other side of every element's join.

PSoup (VLDB 2002, section 3.1) stores queries as data: a new element probes the Query SteM as a
new query probes the Data SteM. The driver holds the mutable `QuerySteM`; tasks see a
`StemSnapshot`, of blocks of 512 queries and indexes of led ones, of which only the changed ones are
built anew.

New queries go to blocks. Once there are some thousands of them, all that one factor leads to become
an index together. An index is merged with the one before it unless the one before is four times as
large. So a million queries are in a handful of indexes, and each query is laid out a few times.

INV-STEM-1: a slot is in one block or index, or in `loose`, or matches nothing.
INV-STEM-2: a block's bit of a slot that was removed is clear in every later snapshot, and its
place in an index is among those gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millpond.engine.matching.grouped_filter import BLOCK, build_block
from millpond.engine.matching.led_queries import LedQueries, choose_leads, lead
from millpond.engine.matching.predicate_columns import PredicateColumns, gather, merge
from millpond.engine.matching.stem_drafts import BlockDraft, LedIndex
from millpond.engine.matching.stem_snapshot import StemSnapshot, mapped_blocks, mapped_indexes
from millpond.engine.predicates.factors import Factors, pack_bare
from millpond.model.schema import Schema

#: An index is merged with the one before it unless that has so many times its queries.
_MERGE_BELOW = 4


@dataclass(frozen=True)
class Leading:
    """Which queries are led, instead of being in blocks.

    Attributes:
        least: How many new queries are looked at together; fewer stay in blocks.
        few: Fewer than these are led only if that saves a block: an index costs about as much.
        most_share: The greatest share of elements that a leading factor may hold of. Being led to
            a query costs as much as a hundred queries of a block, or more.
    """

    least: int = BLOCK
    few: int = 4 * BLOCK
    most_share: float = 1 / 256


LEADING = Leading()


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
        #: Slots in blocks of which it is open whether they are led.
        self._young: dict[int, None] = {}
        #: From how many of them on it is looked at whether they are led.
        self._look_at = leading.least
        self._indexes: list[LedIndex] = []
        self._drafts: dict[int, BlockDraft] = {}  # by number, ascending
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
        if len(self._new) + len(self._young) < self._look_at:
            for slot, packed in self._new.items():
                self._place_in_block(slot, packed)
            self._young.update(dict.fromkeys(self._new))
        else:
            self._lead()
        self._new.clear()
        self._merge_indexes()

    def _lead(self) -> None:
        """Look which of the young and new queries are led; the others' places are in blocks."""
        young = {slot: self._find_packed(slot) for slot in self._young}
        looked_at = young | self._new
        led, rest = self._divide(gather(looked_at.items(), self.schema))
        saved = _count_blocks(len(looked_at)) - _count_blocks(len(rest))
        if len(looked_at) < self._leading.few and not saved:
            self._look_at = min(len(looked_at) + BLOCK, self._leading.few)
            led, rest = None, np.array([*self._new], np.int64)
            self._young.update(dict.fromkeys(self._new))
        else:
            self._look_at = self._leading.least
            for slot in self._young:
                self._take_from_block(slot)
            self._young.clear()
        for slot in rest.tolist():
            self._place_in_block(slot, looked_at[slot])
        if led is not None:
            self._indexes.append(LedIndex.of(led))

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
            self._indexes = before if led is None else [*before, LedIndex.of(led)]
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
            self._drafts[number] = BlockDraft()
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

    def _find_packed(self, slot: int) -> bytes:
        number, position = divmod(self._place[slot], BLOCK)
        return self._drafts[number].packed[position]

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
                draft.built = mapped_blocks.get(path)
        for index in self._indexes:
            if not index.led.mapped and (path := directory / index.led.name).exists():
                index.led = mapped_indexes.get(path)
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


def _count_blocks(queries: int) -> int:
    return -(-queries // BLOCK)


def snapshot_queries(
    queries: Iterable[tuple[int, Factors]], schema: Schema, leading: Leading = LEADING
) -> StemSnapshot:
    """Make a snapshot of just these queries, for matching them against kept elements."""
    stem = QuerySteM(schema, leading)
    for slot, factors in queries:
        stem.add(slot, factors)
    return stem.snapshot()


def _cut_counts(factors: Factors) -> dict[str, int]:
    """Count the cuts on each attribute, of value sets and clauses."""
    counts: dict[str, int] = {}
    for clause in (factors.sets, *factors.clauses):
        for attribute, values in clause:
            counts[attribute] = counts.get(attribute, 0) + len(values.cuts)
    return counts
