"""Keeps the current answers of selections that differ in their predicates alone (PSoup-C).

PSoup (VLDB 2002, section 5) keeps "the results corresponding to the current input window for each
query in linked lists" of pointers to data tuples. Here elements that come are matched with all
predicates of a shape at once, and lie in a chunk once, however many queries select them. Each
query has a list of places in each chunk. An element says by itself when it enters and leaves a
window over time, so nothing is done when it leaves: a reader passes over what has left, and chunks
are merged, without it, as they become many. When an element leaves a window of rows, its successors
say (`counted_lives.py`), once for all queries.

INV-SELECTION-1: every element that was read, and may be in the window from `position` on, is in one
chunk, which has a place for each query that selects it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.engine.invocation.window_slices import find_slice
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import Factors
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.model.time import BEGINNING, END
from millpond.model.windows import Now, Range, Rows, Unbounded, interval
from millpond.operators.structures.lifetimes import lifetimes
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.shared_log import QueryShape, find_shape
from millpond.service.answers.answer_flow import MustBeginAgain
from millpond.service.answers.counted_lives import CountedLives
from millpond.service.answers.leaf_scan import Files, LeafView
from millpond.state.segment_file import TIMESTAMP, global_seq
from millpond.state.version import Version

Ints = npt.NDArray[np.int64]

#: A chunk is merged with the one before it when it has grown to this part of its size.
_GROWN = 2


def find_kept_shape(bound: BoundQuery, factors: Factors | None) -> QueryShape | None:
    """The shape by which a query's answer is kept together with others'; None if it is not.

    A window that counts only the rows a query selects is that query's own.

    Args:
        bound: The query.
        factors: Its predicate.
    """
    shape = find_shape(bound)
    if shape is None:
        return None
    if not (isinstance(shape.window, Range | Now | Unbounded) or shape.counts_all):
        return None
    # What DuckDB evaluates may fail, and is evaluated for each query by itself.
    return None if factors is not None and factors.others else shape


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Elements, and which of them each query selects.

    Attributes:
        rows: The elements, with the columns of the answers.
        numbers: Their numbers, ascending, in the order in which they were read.
        at, until: When each of them enters the window, and when it leaves.
        starts: Where the places of each query begin, by its number; one more at the end.
        places: The places in `rows`.
    """

    rows: pa.Table
    numbers: Ints
    at: Ints
    until: Ints
    starts: Ints
    places: Ints

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + 8 * (3 * len(self.at) + len(self.places) + len(self.starts)))

    def read(self, query: int, instant: int) -> pa.Table | None:
        """The elements that a query selects, and that are in the window at an instant."""
        own = self.places[self.starts[query] : self.starts[query + 1]]
        if not len(own):
            return None
        own = own[(self.at[own] <= instant) & (instant < self.until[own])]
        return self.rows.take(pa.array(own)) if len(own) else None

    def end(self, numbers: Ints, at: Ints) -> None:
        """Note when elements leave, those of them that are here."""
        places = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        here = self.numbers[places] == numbers
        self.until[places[here]] = at[here]

    def merge(self, later: _Chunk, position: int) -> _Chunk:
        """Merge it with a later one, without the elements that have left at an instant."""
        at, until = np.concatenate([self.at, later.at]), np.concatenate([self.until, later.until])
        stays = until > position
        moved = np.cumsum(stays) - 1
        counts = np.diff(self.starts), np.diff(later.starts)
        queries = np.arange(len(counts[0]))
        owners = np.concatenate([np.repeat(queries, own) for own in counts])
        places = np.concatenate([self.places, later.places + len(self.at)])
        kept = stays[places]
        owners, places = owners[kept], moved[places[kept]]
        order = np.argsort(owners, kind="stable")
        numbers = np.concatenate([self.numbers, later.numbers])
        rows = pa.concat_tables([self.rows, later.rows])
        if not stays.all():
            rows = rows.filter(pa.array(stays))
        starts = np.searchsorted(owners[order], np.arange(len(queries) + 1))
        kept_rows = rows.combine_chunks()
        lives = (numbers[stays], at[stays], until[stays])
        return _Chunk(kept_rows, *lives, starts, places[order])


class KeptSelections:
    """The answers of the queries of one shape; for use by one thread at a time.

    Attributes:
        position: The instant before which nothing is kept.
        predicates: The queries' predicates, by their ids; None: every element.
        queries: The queries' numbers here, by their ids.
    """

    def __init__(
        self,
        files: Files,
        shape: QueryShape,
        stream: StreamDef,
        queries: Mapping[int, Factors | None],
    ) -> None:
        """Begin with some queries.

        Args:
            files: Opens segments.
            shape: Their shape.
            stream: The stream they read.
            queries: By id, their predicates; None: every element.
        """
        self._files = files
        self._shape = shape
        self._stream = stream
        self.predicates = dict(queries)
        self.position: int = BEGINNING
        self.queries = {id: number for number, id in enumerate(queries)}
        some = [(n, f) for n, f in enumerate(queries.values()) if f is not None]
        self._every = [n for n, f in enumerate(queries.values()) if f is None]
        self._stem: StemSnapshot | None = None
        if some:
            self._stem = snapshot_queries(some, stream.schema)
        self._empty = self._project(stream.schema.to_arrow().empty_table())
        self._chunks: list[_Chunk] = []
        self._lives = CountedLives(shape.window, stream) if isinstance(shape.window, Rows) else None
        self._read = 0
        self._known = 0
        self._epoch = -1

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory it takes."""
        lives = 0 if self._lives is None else self._lives.nbytes
        return lives + sum(chunk.nbytes for chunk in self._chunks)

    def has_read(self, version: Version) -> bool:
        """Whether it has read what a version has, and nothing else."""
        same = version.streams.get(self._stream.id) is self._stream
        return same and version.clock(self._stream.id).next_seq == self._known

    def step(self, version: Version, upto: int) -> bool:
        """Take in what a version has; return whether that was anything.

        Args:
            version: A version that is pinned, no older than that of the step before.
            upto: The instant from which on answers are read.

        Raises:
            MustBeginAgain: the stream is another one, or its clock was set back.
            MillpondError: STORE-602 for a corrupt segment.
        """
        number = version.clock(self._stream.id).next_seq
        if version.streams.get(self._stream.id) is not self._stream or number < self._known:
            raise MustBeginAgain
        self.position = max(self.position, upto)
        if number == self._known:
            return False
        if self._lives is not None and self._epoch < 0:
            self._begin(version)
            return True
        low = interval(self._shape.window, self.position)[0]
        for ref in version.segments(self._stream.id, self._stream.kind):
            if ref.epoch <= self._epoch or (low is not None and ref.max_ts < low):
                continue
            opened = self._files.segment(ref)
            first = 0 if low is None else int(np.searchsorted(opened.ts, low))
            numbers = global_seq(opened.local_seq[first:], ref.seq_runs)
            fresh = numbers >= self._known
            if not fresh.any():
                continue
            elements = opened.table.slice(first)
            if not fresh.all():
                elements = elements.take(pa.array(np.flatnonzero(fresh)))
            self._add(elements.combine_chunks())
        self._known, self._epoch = number, version.epoch
        return True

    def _begin(self, version: Version) -> None:
        """Read the elements of a window of rows as it is after everything that is kept."""
        refs = version.segments(self._stream.id, self._stream.kind)
        schema = self._stream.schema
        views = [LeafView(self._files, version, ref, schema, None, None, None) for ref in refs]
        found = find_slice(views, self._shape.window, END).read((*schema.names, TIMESTAMP))
        if found:
            self._add(pa.concat_tables(found).combine_chunks())
        self._known, self._epoch = version.clock(self._stream.id).next_seq, version.epoch

    def read(self, query_id: int, instant: int) -> pa.Table:
        """Read the answer of one of the queries at an instant, `position` or later."""
        number = self.queries[query_id]
        parts = [chunk.read(number, instant) for chunk in self._chunks]
        found = [rows for rows in parts if rows is not None]
        return pa.concat_tables(found) if found else self._empty

    def _project(self, elements: pa.Table) -> pa.Table:
        """Give elements the columns of the answers, under their names there."""
        columns = [elements[column] for column, _ in self._shape.projection]
        return pa.Table.from_arrays(columns, names=[name for _, name in self._shape.projection])

    def _add(self, elements: pa.Table) -> None:
        """Add a chunk of elements."""
        count = elements.num_rows
        stamps = elements[TIMESTAMP].to_numpy()
        numbers = np.arange(self._read, self._read + count)
        self._read += count
        at, until = lifetimes(self._shape.window, stamps)
        found: list[Ints] = []
        owners: list[int] = []
        if self._stem is not None:
            reader = match(elements, self._stem, ScalarEvaluator.of_this_thread()).reader()
            for slot in reader.slots.tolist():
                owners.append(slot)
                found.append(reader.rows(slot, 0, count).astype(np.int64))
        for number in self._every:
            owners.append(number)
            found.append(np.arange(count))
        sizes = np.zeros(len(self.queries), np.int64)
        sizes[owners] = [len(rows) for rows in found]
        order = np.argsort(owners)
        places = np.concatenate([found[i] for i in order]) if owners else np.zeros(0, np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        rows = self._project(elements)
        self._chunks.append(_Chunk(rows, numbers, at, until, starts, places))
        if self._lives is not None and count:
            # Of what is younger than `position`, it is not said here whether it is there yet.
            self.position = max(self.position, int(stamps.max()))
            left, left_at = self._lives.add(elements, numbers)
            for chunk in self._chunks:
                chunk.end(left, left_at)
        while len(self._chunks) > 1:
            before, last = self._chunks[-2:]
            if len(before.at) > _GROWN * len(last.at):
                break
            self._chunks[-2:] = [before.merge(last, self.position)]
