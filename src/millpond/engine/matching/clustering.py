"""Whether a batch's matches are kept with like elements side by side, and how these stand.

Coding, matching and writing see the elements in that order; what is not smaller so is put back in
the order of arrival. Blocks of queries share the order: it is made by the first that can gain, and
given up when a block gains little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millpond.engine.matching.clustered_rows import (
    NO_ORDER,
    cluster,
    restore_rows,
    take_in_order,
    write_clustered,
)
from millpond.engine.matching.grouped_filter import Block
from millpond.engine.values.region_codes import CodableColumn

#: Elements of a batch from which on there are like ones.
_FROM = 16_384
#: A query has to match more than this share of the elements: fewer are a list.
_ABOVE = 1 / 128
#: The share of the bytes it took otherwise that a query may take: to read it costs more.
_AT_MOST = 0.8
#: Blocks whose queries are asked what they look at.
_BLOCKS = 64

Codes = npt.NDArray[np.int32]


class Written(NamedTuple):
    """The matches that were written: of which queries, all bytes, and where each query's end."""

    queries: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]


class Clustering:
    """How like elements of one batch stand side by side.

    Attributes:
        order: See `clustered_rows.cluster`; empty until a block of queries can gain from it.
    """

    def __init__(
        self, rows: int, blocks: Sequence[Block], column: Callable[[str], CodableColumn]
    ) -> None:
        """Think of elements that meet some blocks of queries; `column` opens an attribute's."""
        self._rows, self._blocks, self._column = rows, blocks, column
        self._gains = rows >= _FROM
        self.order = NO_ORDER

    def begin(self, codes: Codes) -> None:
        """Go on to the codes of a group of blocks."""
        self._codes = codes
        self._taken: Codes | None = None

    def take(self, share: float) -> Codes | None:
        """Return the codes with like elements side by side, unless that gains nothing.

        Args:
            share: The share of the elements that a query of the block is expected to match.
        """
        if not self._gains or share < _ABOVE:
            return None
        if not len(self.order):
            ranked = rank_by_use(self._blocks)
            self.order = cluster([self._column(name) for name in ranked], self._rows)
        if self._taken is None:
            self._taken = take_in_order(self._codes, self.order)
        return self._taken

    def write(
        self,
        bits: npt.NDArray[np.uint64],
        chosen: npt.NDArray[np.int64],
        otherwise: npt.NDArray[np.int64],
    ) -> Written:
        """Write those of the chosen queries that get smaller.

        Args:
            bits: See `write_clustered`.
            chosen: The numbers of their rows.
            otherwise: The bytes that each of them takes otherwise.
        """
        most = (otherwise * _AT_MOST).astype(np.int64)
        data, ends = write_clustered(bits, chosen, most, self._rows)
        smaller = np.diff(ends, prepend=0) > 0
        self._gains = 2 * int(np.count_nonzero(smaller)) >= len(chosen)
        return Written(chosen[smaller], data, ends[smaller])

    def restore(self, bits: npt.NDArray[np.uint64], chosen: npt.NDArray[np.int64]) -> None:
        """Put the bits of chosen queries in the order of arrival."""
        restore_rows(bits, chosen.astype(np.int64), self.order)


def rank_by_use(blocks: Sequence[Block]) -> list[str]:
    """Name the attributes of some blocks, those first that most queries look at."""
    uses: Counter[str] = Counter()
    for block in blocks[:: 1 + len(blocks) // _BLOCKS]:
        arrays = block.arrays
        for attribute, queries in zip(
            arrays["stage_attribute"].tolist(), block.served, strict=True
        ):
            uses[block.attributes[attribute]] += queries
        in_layer = np.bitwise_count(arrays["present"] & ~arrays["layer_pass"]).sum(axis=1)
        in_part = np.repeat(in_layer, np.diff(arrays["layer_start"])).tolist()
        for attribute, queries in zip(arrays["part_attribute"].tolist(), in_part, strict=True):
            uses[block.attributes[attribute]] += queries
    return [name for name, _ in uses.most_common()]
