"""Grouped filters: the factors of a block of queries on each attribute, as region tables.

CACQ indexes the factors of all queries on one attribute, so that one look at a tuple's value
finds every query whose factor holds (sections 2.3 and 3.2.6). Here the distinct cuts of a block's
value sets divide the attribute's domain into regions, and a table gives each region the query set
that holds there; NULL is one more region. A factor on an element is a row of the table, and the
conjunction over attributes is an AND of rows. A query without a factor on an attribute has its
bit set in every row.

Between two neighbouring regions only the queries with a cut there change, and they flip: the
table is a running XOR, built in time proportional to its size.

A block has 512 queries, eight words, one cache line: a row is one memory access, and the tables
of a block with two cuts per query and attribute fit the second-level cache for a handful of
attributes. Tables are linear in the number of queries, and one more query rebuilds one block.

Disjunctions over attributes (section 3.2.7, CNF) become layers: layer j holds every query's
j-th clause, as tables that are OR-ed over the clause's attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.engine.matching.array_files import digest_arrays, map_arrays, write_arrays
from millpond.engine.values.value_sets import Cut, ValueSet
from millpond.model.kept_property import kept_property

#: Queries in a block.
BLOCK = 512
#: Words in a block's query set.
WORDS = 8
#: Cuts a block may have on one attribute, so that a region fits 16 bits.
MOST_REGIONS = 65_000

_MAGIC = b"MPBLOCK1"

#: The factors of a query that a block serves: (attribute, values) pairs, and clauses of such pairs.
Served = tuple[tuple[tuple[str, ValueSet], ...], tuple[tuple[tuple[str, ValueSet], ...], ...]]


@dataclass(frozen=True, eq=False)
class Block:
    """An immutable grouped filter of up to 512 queries.

    Attributes:
        attributes: The attributes it looks at.
        texts: For each attribute its cuts if it is a string, else None.
        arrays: `slots` (512 numbers, -1 where free), `present` (8 words), `numbers` (the cuts of
            the other attributes, one after the other), `cut_start` (where each attribute's
            begin), `table` (rows of 8 words), `stage_attribute`, `stage_row`, `stage_rate` (the
            mean share of queries a stage keeps), `layer_pass`, `layer_start`, `part_attribute`,
            `part_row`.
        mapped: Whether the arrays are mapped from a file.
    """

    attributes: tuple[str, ...]
    texts: tuple[tuple[bytes, ...] | None, ...]
    arrays: dict[str, npt.NDArray[Any]]
    mapped: bool = False

    def cuts(self, index: int) -> npt.NDArray[np.int64] | tuple[bytes, ...]:
        """Return the distinct cuts of an attribute, ascending."""
        texts = self.texts[index]
        if texts is not None:
            return texts
        start = self.arrays["cut_start"]
        return self.arrays["numbers"][start[index] : start[index + 1]]

    @property
    def slots(self) -> npt.NDArray[np.int64]:
        return self.arrays["slots"]

    @kept_property
    def lanes(self) -> int:
        """How many words of the query set have a query in them."""
        used = np.flatnonzero(self.slots >= 0)
        return 0 if len(used) == 0 else int(used[-1]) // 64 + 1

    @kept_property
    def having(self) -> npt.NDArray[np.uint64]:
        """For each stage, the queries that have a factor on its attribute, as a row of words.

        The other queries have their bit set in every region.
        """
        table, present = self.arrays["table"], self.arrays["present"]
        sets = [np.zeros((0, WORDS), np.uint64)]
        for stage, attribute in enumerate(self.arrays["stage_attribute"].tolist()):
            cuts = self.cuts(attribute)
            start = int(self.arrays["stage_row"][stage])
            everywhere = np.bitwise_and.reduce(table[start : start + len(cuts) + 2], axis=0)
            sets.append((present & ~everywhere)[None, :])
        return np.concatenate(sets)

    @kept_property
    def served(self) -> tuple[int, ...]:
        """How many queries have a factor, by stage."""
        return tuple(np.bitwise_count(self.having).sum(axis=1).tolist())

    @property
    def nbytes(self) -> int:
        """Bytes of private memory: those mapped from a file are not counted."""
        own = 0 if self.mapped else sum(a.nbytes for a in self.arrays.values())
        return own + sum(len(c) + 33 for t in self.texts if t for c in t)

    @kept_property
    def digest(self) -> str:
        """The name made from the content: equal blocks have equal names."""
        return digest_arrays(self._header(), self.arrays)

    def _header(self) -> dict[str, Any]:
        """Everything but the arrays, for JSON; bytes as Latin-1, which keeps every byte."""
        return {
            "attributes": self.attributes,
            "texts": [None if t is None else [c.decode("latin-1") for c in t] for t in self.texts],
        }

    def save(self, directory: Path) -> str:
        """Write the block under its content's name unless it is there; return the name."""
        name = f"{self.digest}.block"
        write_arrays(directory / name, _MAGIC, self._header(), self.arrays)
        return name

    @staticmethod
    def load(path: Path) -> Block:
        """Map a saved block; its arrays are read when they are used.

        Raises:
            ValueError: the file is not a block.
            OSError: it cannot be read.
        """
        header, arrays = map_arrays(path, _MAGIC, "a block of grouped filters")
        texts = tuple(
            None if t is None else tuple(c.encode("latin-1") for c in t) for t in header["texts"]
        )
        return Block(tuple(header["attributes"]), texts, arrays, mapped=True)


def bit_words(numbers: Iterable[int]) -> npt.NDArray[np.uint64]:
    """Make a block's query set with these bits."""
    words = [0] * WORDS
    for number in numbers:
        words[number >> 6] |= 1 << (number & 63)
    return np.array(words, np.uint64)


def build_block(members: Sequence[tuple[int, int, Served]]) -> Block:
    """Build the grouped filter of some queries.

    Args:
        members: For each query (position in the block, slot, the factors that are served).
    """
    slots = np.full(BLOCK, -1, np.int64)
    base: dict[str, list[tuple[int, ValueSet]]] = {}
    layers: list[dict[str, list[tuple[int, ValueSet]]]] = []
    in_layer: list[list[int]] = []
    for position, slot, (sets, clauses) in members:
        slots[position] = slot
        for attribute, values in sets:
            base.setdefault(attribute, []).append((position, values))
        for number, clause in enumerate(clauses):
            if number == len(layers):
                layers.append({})
                in_layer.append([])
            in_layer[number].append(position)
            for attribute, values in clause:
                layers[number].setdefault(attribute, []).append((position, values))
    attributes = sorted({*base, *(a for layer in layers for a in layer)})
    index = {a: i for i, a in enumerate(attributes)}
    distinct: list[list[Cut]] = []
    for attribute in attributes:
        entries = [base.get(attribute, []), *(layer.get(attribute, []) for layer in layers)]
        every = {c for entry in entries for _, values in entry for c in values.cuts}
        distinct.append(sorted(every))
    tables: list[npt.NDArray[np.uint64]] = []
    rows = 0

    def add(attribute: str, entries: list[tuple[int, ValueSet]], absent: bool) -> int:
        nonlocal rows
        table = _region_table(distinct[index[attribute]], entries, absent)
        tables.append(table)
        rows += len(table)
        return rows - len(table)

    stage_row = [add(a, base[a], True) for a in sorted(base)]
    rates = [float(np.bitwise_count(t).mean()) / 64 for t in tables]
    part_attribute, part_row, layer_start = [], [], [0]
    for layer in layers:
        for attribute in sorted(layer):
            part_attribute.append(index[attribute])
            part_row.append(add(attribute, layer[attribute], False))
        layer_start.append(len(part_row))
    everyone = bit_words(range(BLOCK))
    is_text = [bool(cuts) and isinstance(cuts[0], bytes) for cuts in distinct]
    numbers = [
        np.zeros(0, np.int64) if text else np.array(cuts, np.int64)
        for cuts, text in zip(distinct, is_text, strict=True)
    ]
    return Block(
        tuple(attributes),
        tuple(
            tuple(c for c in cuts if isinstance(c, bytes)) if text else None
            for cuts, text in zip(distinct, is_text, strict=True)
        ),
        {
            "slots": slots,
            "present": bit_words(position for position, _, _ in members),
            "numbers": np.concatenate([np.zeros(0, np.int64), *numbers]),
            "cut_start": np.cumsum([0, *(len(n) for n in numbers)]).astype(np.int64),
            "table": np.concatenate([np.zeros((0, WORDS), np.uint64), *tables]),
            "stage_attribute": np.array([index[a] for a in sorted(base)], np.int64),
            "stage_row": np.array(stage_row, np.int64),
            "stage_rate": np.array(rates, np.float64),
            "layer_pass": np.array(
                [everyone & ~bit_words(having) for having in in_layer], np.uint64
            ).reshape(-1, WORDS),
            "layer_start": np.array(layer_start, np.int64),
            "part_attribute": np.array(part_attribute, np.int64),
            "part_row": np.array(part_row, np.int64),
        },
    )


def _region_table(
    cuts: list[Cut], entries: list[tuple[int, ValueSet]], absent: bool
) -> npt.NDArray[np.uint64]:
    """Compute the query sets of the regions between `cuts`, in order, and of NULL.

    Args:
        absent: Whether the bit of a query without an entry is set.
    """
    place = {cut: i + 1 for i, cut in enumerate(cuts)}
    flips: list[int] = []
    having = bit_words(position for position, _ in entries)
    rest = ~having if absent else np.zeros(WORDS, np.uint64)
    for position, values in entries:
        flips.extend([place[cut] << 9 | position for cut in values.cuts])
    table = np.zeros((len(cuts) + 2, WORDS), np.uint64)
    table[0] = rest | bit_words(position for position, values in entries if values.below)
    if flips:
        flip = np.array(flips, np.int64)
        bits = np.uint64(1) << (flip & 63).astype(np.uint64)
        np.bitwise_xor.at(table.reshape(-1), flip >> 6, bits)
    np.bitwise_xor.accumulate(table[:-1], axis=0, out=table[:-1])
    table[-1] = rest | bit_words(position for position, values in entries if values.nulls)
    return table
