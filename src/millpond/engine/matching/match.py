"""The query-data join: a batch of elements against all standing queries of their stream.

New elements meet all queries, and kept elements meet new queries, by this one function (PSoup,
VLDB 2002, section 3.2: symmetric treatment of data and queries). It is pure: the same elements
and the same snapshot give the same matches, whatever else is in the batch or in the snapshot.

    values ──coders──▶ region codes ──blocks──▶ bits or pairs ──▶ pieces of the table
                       (per group)              (per block)         │
                                     slots with others ──▶ DuckDB ──┘

Led queries are found by their regions instead, one by one (`engine/matching/led_queries.py`).
Blocks are taken in groups that share the coding of values: coding costs some 5 ns a value and
group, and then each of the group's blocks only translates codes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.eddy.eddy import Router
from millpond.engine.eddy.routing import TicketPolicy
from millpond.engine.matching.block_groups import Group, Groups, Program
from millpond.engine.matching.clustering import Clustering
from millpond.engine.matching.gap_lists import gaps_of_bits
from millpond.engine.matching.grouped_filter import BLOCK, Block
from millpond.engine.matching.led_queries import LedQueries
from millpond.engine.matching.led_run import LedRun, list_ends, pad_lists
from millpond.engine.matching.match_kernels import (
    STREAM_FROM,
    count_pairs,
    list_rows,
    match_dense,
    match_sparse,
    observe,
    sort_pairs,
)
from millpond.engine.matching.other_factors import OtherFactors, Rows
from millpond.engine.matching.results_structure import (
    ALL,
    CLUSTERED,
    DENSE,
    GAPS,
    LIST,
    OTHERS,
    FilterPassage,
    Matches,
    MatchReader,
    choose_encoding,
    encode,
    least_bytes,
    list_bytes,
    order_piece,
    piece,
)
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.values.region_codes import CodableColumn
from millpond.engine.values.value_sets import domain_of
from millpond.model.bit_matrix import rows_of_bits, words_for

__all__ = ["MatchReader", "Matches", "match"]

#: Blocks that share the coding of values.
GROUP = 8
#: Elements sampled per block to choose the loop.
_SAMPLE = 256
#: Matches per element and block below which writing pairs is cheaper than transposing bits.
_SPARSE_BELOW = 2.5
_MOST_ROWS = 2**32 - 1
#: Rows of undecided slots that are held, four bytes each.
_MOST_UNDECIDED = 64_000_000
#: Slots whose other factors are decided together have as many bits for all elements at most, and
#: slots whose matches are encoded together are so many.
_MOST_BITS = 1 << 31
_TOGETHER = 64
_NO_MATCH = -1


def match(
    table: pa.Table,
    stem: StemSnapshot,
    scalar: ScalarEvaluator,
    order: Sequence[str] | None = None,
    router: Router | None = None,
    keep: Callable[[pa.RecordBatch], None] | None = None,
) -> Matches:
    """Find for each standing query the elements its predicate is TRUE for.

    Args:
        table: The elements; it has the schema's columns, and may have more.
        stem: The queries.
        scalar: Evaluates the other factors, which no grouped filter serves.
        order: The attributes in the order elements should visit them; attributes not named come
            last. By default the most selective by their tables first. It changes no match.
        router: Chooses the order instead, block by block, and learns from each block.
        keep: Takes the pieces of the table as they are made. Without it all of them are held: as
            many as there are matches, while a call with it holds those of a block of queries.
    """
    if table.num_rows > _MOST_ROWS:
        raise ValueError("a batch has at most 2**32 - 1 elements")
    run = _BatchMatch(table, stem, order, router, keep)
    if table.num_rows:
        for start in range(0, len(stem.blocks), GROUP):
            run.match_group(_groups.get(stem.schema, stem.blocks[start : start + GROUP]))
            if run.are_many_undecided:
                run.evaluate_others(scalar)
        for led, gone in zip(stem.led, stem.gone, strict=True):
            run.match_led(led, gone)
            if run.are_many_undecided:
                run.evaluate_others(scalar)
        run.match_loose()
        run.evaluate_others(scalar)
    return run.matches


_groups = Groups(192 * 2**20)


class _BatchMatch:
    """One call of `match`."""

    def __init__(
        self,
        table: pa.Table,
        stem: StemSnapshot,
        order: Sequence[str] | None,
        router: Router | None,
        keep: Callable[[pa.RecordBatch], None] | None,
    ) -> None:
        self.table = table
        self.router = router
        self.stem = stem
        self.rows = table.num_rows
        self.matches = Matches(self.rows)
        self._hand_over = keep or self.matches.batches.append
        self._rank = {a: i for i, a in enumerate(order or ())}
        self._columns: dict[str, CodableColumn] = {}
        # Slots whose other factors are not evaluated yet, and their rows so far; None: all rows.
        self._undecided: dict[int, Rows | None] = {}
        self._clustering = Clustering(self.rows, stem.blocks, self._column)
        self._order_is_kept = False

    def _column(self, attribute: str) -> CodableColumn:
        column = self._columns.get(attribute)
        if column is None:
            field = self.stem.schema.find(attribute)
            domain = domain_of(field.type) if field else None
            assert domain is not None, attribute
            column = self._columns[attribute] = CodableColumn(self.table.column(attribute), domain)
        return column

    def _keep(self, pieces: Iterable[pa.RecordBatch]) -> None:
        for found in pieces:
            self.matches.matched += int(pc.sum(found["count"]).as_py() or 0)
            self._hand_over(found)

    def _count(self, attribute: str, passage: FilterPassage) -> None:
        known = self.matches.stats.get(attribute)
        self.matches.stats[attribute] = known.plus(passage) if known else passage

    def match_group(self, group: Group) -> None:
        """Code the values and match the group's blocks."""
        codes = np.empty((len(group.attributes), self.rows), np.int32)
        for i, attribute in enumerate(group.attributes):
            begun = time.perf_counter_ns()
            self._column(attribute).code(group.coders[i], group.of_null[i], codes[i])
            self._count(attribute, FilterPassage(0, 0, time.perf_counter_ns() - begun))
        self._clustering.begin(codes)
        for program in group.programs:
            if program.block.lanes:
                self._match_block(program, codes)

    def _match_block(self, program: Program, codes: npt.NDArray[np.int32]) -> None:
        block = program.block
        stage_attribute = block.arrays["stage_attribute"]
        names = [block.attributes[a] for a in stage_attribute]
        rates = block.arrays["stage_rate"]
        last = len(self._rank)
        ranked = sorted(range(len(names)), key=lambda s: (self._rank.get(names[s], last), rates[s]))
        if self.router is not None:
            place = {names[s]: s for s in ranked}
            route = self.router.route({names[s]: block.served[s] for s in ranked})
            ranked = [place[name] for name in route]
        stages = np.array(ranked, np.int64)
        arguments = program.arguments(stages)
        step = max(1, self.rows // _SAMPLE)
        seen = np.zeros((len(stages) + 1, 3), np.int64)
        begun = time.perf_counter_ns()
        observe(codes, *arguments, step, seen)
        watched = -(-self.rows // step)
        if seen[-1, 2] < _SPARSE_BELOW * watched:
            self._match_sparse(block, codes, arguments)
        else:
            queries = int(np.bitwise_count(block.arrays["present"]).sum())
            share = seen[-1, 2] / (watched * queries)
            self._match_dense(block, codes, self._clustering.take(share), arguments)
        spent = time.perf_counter_ns() - begun
        visits = max(1, int(seen[:, 0].sum()))
        if self.router is not None:
            self.router.ledger.routed += self.rows
        for s, stage in enumerate(stages):
            came, left = (int(x) for x in seen[s, :2])
            passage = FilterPassage(came * step, left * step, spent * came // visits)
            self._count(names[stage], passage)
            if self.router is not None:
                self.router.count_visit(names[stage], *passage[:2], passage.ns)

    def _match_dense(
        self,
        block: Block,
        codes: npt.NDArray[np.int32],
        clustered: npt.NDArray[np.int32] | None,
        arguments: tuple[Any, ...],
    ) -> None:
        """Match all elements with a block; `clustered` has the codes of like ones side by side."""
        words = words_for(self.rows)
        queries = block.lanes * 64
        if words * queries >= STREAM_FROM:
            # Whole cache lines, so that the matrix can be written past the caches.
            words = -(-words // 8) * 8
        # Arrow's pool reuses memory; fresh pages would cost as much as the matching.
        buffer = pa.allocate_buffer(8 * words * queries)
        out = np.frombuffer(buffer, np.uint64).reshape(queries, words)
        counts = np.zeros(queries, np.int64)
        match_dense(codes if clustered is None else clustered, *arguments, out, counts)
        slots = block.slots[:queries]
        alive = counts > 0
        deferred = self._find_deferred(slots, alive)
        alive[deferred] = False
        encoding = np.where(alive, choose_encoding(counts, self.rows), _NO_MATCH)
        if clustered is not None:
            self._keep_clustered(slots, counts, out, encoding)
            others = np.flatnonzero((encoding != _NO_MATCH) & (encoding != ALL))
            self._clustering.restore(out, np.append(others, deferred))
        for position in deferred:
            rows = rows_of_bits(out[position], 0, self.rows)
            self._undecided[int(slots[position])] = rows.astype(np.uint32)
        self._append(slots, counts, ALL, np.flatnonzero(encoding == ALL), b"")
        if len(chosen := np.flatnonzero(encoding == LIST)):
            ends = np.cumsum(list_bytes(counts[chosen]))
            data = np.empty(int(ends[-1]) // 4, np.uint32)
            list_rows(out, chosen, ends // 4, data)
            self._append(slots, counts, LIST, chosen, data, ends)
        if len(chosen := np.flatnonzero(encoding == GAPS)):
            gaps, ends = gaps_of_bits(out, chosen, counts[chosen], self.rows)
            self._append(slots, counts, GAPS, chosen, gaps, ends)
        dense = np.flatnonzero(encoding == DENSE)
        kept = len(dense)
        if kept:
            # The first `kept` rows become the dense rows: rows from further down fill the gaps.
            target = np.arange(kept)
            gaps = np.setdiff1d(target, dense, assume_unique=True)
            moved = dense[dense >= kept]
            for gap, source in zip(gaps, moved, strict=True):
                out[gap] = out[source]
            source_of = target.copy()
            source_of[gaps] = moved
            ends = (target + 1) * (8 * words)
            self._append(slots, counts, DENSE, source_of, buffer, ends)

    def _keep_clustered(
        self, slots: Any, counts: Any, bits: npt.NDArray[np.uint64], encoding: Any
    ) -> None:
        """Keep what takes less with like elements side by side; take it out of `encoding`."""
        chosen = np.flatnonzero((encoding == GAPS) | (encoding == DENSE))
        found = self._clustering.write(bits, chosen, least_bytes(counts[chosen], self.rows))
        if not len(found.queries):
            return
        if not self._order_is_kept:
            self._hand_over(order_piece(self._clustering.order))
            self._order_is_kept = True
        self._append(slots, counts, CLUSTERED, found.queries, found.data, found.ends)
        encoding[found.queries] = _NO_MATCH

    def _match_sparse(
        self, block: Block, codes: npt.NDArray[np.int32], arguments: tuple[Any, ...]
    ) -> None:
        found: list[tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint32], int]] = []
        counts = np.zeros(BLOCK, np.int64)
        first = 0
        room = 2 * BLOCK + int(min(_SPARSE_BELOW * self.rows, 4_000_000))
        while first < self.rows:
            queries, rows = np.empty(room, np.uint16), np.empty(room, np.uint32)
            pairs, first = match_sparse(codes, *arguments, first, queries, rows)
            count_pairs(queries, pairs, counts)
            found.append((queries, rows, pairs))
        ends = np.cumsum(list_bytes(counts)) // 4
        starts = np.concatenate([[0], ends[:-1]])
        lists = np.zeros(int(ends[-1]), np.uint32)
        cursor = starts.copy()
        for queries, rows, pairs in found:
            sort_pairs(queries, rows, pairs, cursor, lists)
        slots = block.slots
        alive = counts > 0
        apart = alive & (choose_encoding(counts, self.rows) != LIST)
        for position in self._find_deferred(slots, alive):
            start = starts[position]
            self._undecided[int(slots[position])] = lists[start : start + counts[position]]
            alive[position] = False
        slices = {
            int(slots[p]): lists[starts[p] : starts[p] + counts[p]]
            for p in np.flatnonzero(alive & apart)
        }
        self._keep(encode(slices, self.rows))
        chosen = np.flatnonzero(alive & ~apart)
        if len(chosen) < int((counts > 0).sum()):
            parts = [lists[starts[p] : ends[p]] for p in chosen]
            lists = np.concatenate([np.zeros(0, np.uint32), *parts])
        self._append(slots, counts, LIST, chosen, lists, np.cumsum(list_bytes(counts[chosen])))

    def match_led(self, led: LedQueries, gone: npt.NDArray[np.int64]) -> None:
        """Lead the elements to the queries of an index, except to those that are gone."""
        begun = time.perf_counter_ns()
        run = LedRun(led, [self._column(axis.attribute) for axis in led.columns.axes], self.rows)
        for members, counts, rows in run.find(gone):
            slots, ends = led.columns.slots[members], np.cumsum(counts)
            apart = choose_encoding(counts, self.rows) != LIST
            deferred = led.columns.deferred[members]
            listed = ~apart & ~deferred
            lists = pad_lists(rows, counts, ends, listed)
            self._append(
                slots, counts, LIST, np.flatnonzero(listed), lists, list_ends(counts[listed])
            )
            slices: dict[int, Rows] = {}
            for i in np.flatnonzero(apart | deferred).tolist():
                found = rows[ends[i] - counts[i] : ends[i]]
                (self._undecided if deferred[i] else slices)[int(slots[i])] = found
            self._keep(encode(slices, self.rows))
        spent = time.perf_counter_ns() - begun
        for attribute, came in run.came.items():
            passage = FilterPassage(self.rows, came, spent // len(run.came))
            self._count(attribute, passage)

    def _find_deferred(
        self, slots: npt.NDArray[np.int64], alive: npt.NDArray[np.bool_]
    ) -> list[int]:
        """Find the positions with a match whose slots have other factors to satisfy too."""
        if not self.stem.others:
            return []
        return [int(p) for p in np.flatnonzero(alive) if int(slots[p]) in self.stem.others]

    def _append(
        self, slots: Any, counts: Any, encoding: int, chosen: Any, data: Any, ends: Any = None
    ) -> None:
        if len(chosen):
            if ends is None:
                ends = np.zeros(len(chosen), np.int64)
            self._keep([piece(slots[chosen], counts[chosen], encoding, ends, data)])

    def match_loose(self) -> None:
        """Match slots in no block: every element matches, or other factors alone decide."""
        whole = []
        for slot in self.stem.loose:
            if slot in self.stem.others:
                self._undecided[slot] = None
            else:
                whole.append(slot)
        slots, counts = np.array(whole, np.int64), np.full(len(whole), self.rows)
        self._append(slots, counts, ALL, np.arange(len(whole)), b"")

    @property
    def are_many_undecided(self) -> bool:
        """Whether the rows of undecided slots take so much memory that they are decided now."""
        return self._pairs(self._undecided) > _MOST_UNDECIDED

    def evaluate_others(self, scalar: ScalarEvaluator) -> None:
        """Evaluate the other factors on the rows that are left to undecided slots."""
        undecided, self._undecided = list(self._undecided.items()), {}
        most = max(_TOGETHER, _MOST_BITS // max(self.rows, 1))
        for first in range(0, len(undecided), most):
            self._decide(dict(undecided[first : first + most]), scalar)

    def _decide(self, undecided: dict[int, Rows | None], scalar: ScalarEvaluator) -> None:
        begun, came = time.perf_counter_ns(), self._pairs(undecided)
        router = self.router or Router(TicketPolicy())
        if not self.stem.blocks:
            router.ledger.routed += self.rows
        others = OtherFactors(self.table, self.stem.others, scalar, router)
        passed = 0
        deciding = others.decide(undecided)
        while decided := dict(islice(deciding, _TOGETHER)):
            passed += self._pairs(decided)
            self._keep(encode(decided, self.rows))
        self.matches.failed.update(others.failed)
        self._count(OTHERS, FilterPassage(came, passed, time.perf_counter_ns() - begun))

    def _pairs(self, of_slots: Mapping[int, Rows | None]) -> int:
        return sum(self.rows if rows is None else len(rows) for rows in of_slots.values())
