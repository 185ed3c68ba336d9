"""Groups of blocks that share the coding of values.

Each block of queries has cuts of its own. A group codes values by the cuts of all its blocks, and
each block translates those codes into its own, so that a value is looked at once for thousands of
queries. Prepared groups are kept, because the same blocks meet batch after batch.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.engine.matching.grouped_filter import Block
from millpond.engine.values.region_codes import Coder, coder_for
from millpond.engine.values.value_sets import domain_of
from millpond.model.schema import Schema


@dataclass(frozen=True, eq=False)
class Program:
    """A block, with its tables addressed by its group's codes. See `match_kernels`.

    Attributes:
        block: The block.
        translation: For each attribute of the block, one after the other, and for each code of the
            group (NULL's last), the region among the block's own cuts.
        shift: Where each attribute, by its number in the block, begins in `translation`.
        code: int64[attributes of the block]: the attributes' numbers in the group.
    """

    block: Block
    translation: npt.NDArray[np.uint16]
    shift: dict[int, int]
    code: npt.NDArray[np.int64]

    def arguments(self, stages: npt.NDArray[np.int64]) -> tuple[Any, ...]:
        """Return the arguments of the compiled loops after the codes, stages in this order."""
        arrays = self.block.arrays
        stage = arrays["stage_attribute"][stages]
        part = arrays["part_attribute"]
        return (
            self.translation,
            arrays["table"],
            arrays["present"],
            self.code[stage],
            self._shifts(stage),
            arrays["stage_row"][stages],
            _find_pending(self.block.having[stages]),
            arrays["layer_pass"],
            arrays["layer_start"],
            self.code[part],
            self._shifts(part),
            arrays["part_row"],
        )

    def _shifts(self, attributes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.array([self.shift[a] for a in attributes.tolist()], np.int64)


@dataclass(frozen=True, eq=False)
class Group:
    """Blocks that share region codes.

    Attributes:
        attributes: All attributes that any of the blocks looks at, ascending.
        coders: For each attribute, the coder by the cuts of all blocks.
        of_null: The code of NULL in each attribute: one more than there are cuts.
        programs: The blocks.
    """

    attributes: tuple[str, ...]
    coders: tuple[Coder, ...]
    of_null: tuple[int, ...]
    programs: tuple[Program, ...]

    @property
    def nbytes(self) -> int:
        """About how many bytes it holds besides the blocks: a coder has some 20 bytes a cut."""
        return sum(p.translation.nbytes for p in self.programs) + 20 * sum(self.of_null)


def _find_pending(having: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """For each stage, and for the end, find the queries that still have a factor to come."""
    after = np.zeros((len(having) + 1, having.shape[1]), np.uint64)
    after[:-1] = np.bitwise_or.accumulate(having[::-1], axis=0)[::-1]
    return after


def _prepare(schema: Schema, blocks: Sequence[Block]) -> Group:
    """Merge the cuts of the blocks and build the translations."""
    attributes = tuple(sorted({a for b in blocks for a in b.attributes}))
    number = {a: i for i, a in enumerate(attributes)}
    coders: list[Coder] = []
    unions: list[Any] = []
    for attribute in attributes:
        field = schema.find(attribute)
        domain = domain_of(field.type) if field else None
        assert domain is not None, attribute
        parts = [b.cuts(b.attributes.index(attribute)) for b in blocks if attribute in b.attributes]
        union: Any
        if any(isinstance(p, tuple) for p in parts):
            texts = sorted({c for p in parts for c in p})
            union = {c: i for i, c in enumerate(texts)}
            coders.append(coder_for(domain, texts))
        else:
            union = np.unique(np.concatenate(parts))
            coders.append(coder_for(domain, union if len(union) else []))
        unions.append(union)
    programs = []
    for block in blocks:
        pieces: list[npt.NDArray[np.uint16]] = []
        shift: dict[int, int] = {}
        at = 0
        for i, attribute in enumerate(block.attributes):
            union, cuts = unions[number[attribute]], block.cuts(i)
            shift[i] = at
            pieces.append(_translation(union, cuts))
            at += len(union) + 2
        programs.append(
            Program(
                block,
                np.concatenate([np.zeros(0, np.uint16), *pieces]),
                shift,
                np.array([number[a] for a in block.attributes], np.int64),
            )
        )
    return Group(attributes, tuple(coders), tuple(len(u) + 1 for u in unions), tuple(programs))


def _translation(union: Any, cuts: Any) -> npt.NDArray[np.uint16]:
    """For each region of the union of cuts, and for NULL, find the region among `cuts`."""
    if isinstance(cuts, tuple):
        places = np.array([union[c] for c in cuts], np.int64)
    elif isinstance(union, dict):
        places = np.zeros(0, np.int64)
    else:
        places = np.searchsorted(union, cuts)
    regions = np.zeros(len(union) + 2, np.uint16)
    regions[places + 1] = 1
    np.cumsum(regions, out=regions)
    regions[-1] = len(cuts) + 1
    return regions


class Groups:
    """The groups this process has prepared, the least recently used dropped first.

    For use from any thread. Two threads that prepare the same group at once both do the work; one
    result is kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._groups: OrderedDict[tuple[int, ...], tuple[Sequence[Block], Group]] = OrderedDict()

    def get(self, schema: Schema, blocks: Sequence[Block]) -> Group:
        """Return the group of some blocks over a schema; prepare it if necessary."""
        # The entry holds the blocks, so an id is not used again while it is a key.
        key = tuple(id(b) for b in blocks)
        with self._lock:
            entry = self._groups.get(key)
            if entry is not None:
                self._groups.move_to_end(key)
                return entry[1]
        group = _prepare(schema, blocks)
        with self._lock:
            if key not in self._groups:
                self._groups[key] = blocks, group
                self._bytes += group.nbytes
            while self._bytes > self._most_bytes and len(self._groups) > 1:
                self._bytes -= self._groups.popitem(last=False)[1][1].nbytes
        return group
