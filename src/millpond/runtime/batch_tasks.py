"""Builds a batch in a worker: admits its rows, matches them, and writes them as segments.

A runtime ships to its workers only the functions of this module and of the task modules beside it.
These read the files they are given, write files nobody sees until the driver commits them, and
return only descriptions. Running a task again leaves an orphan and changes nothing.
"""

from __future__ import annotations

import re
import time as clock_time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from millpond.catalog.objects import PSEUDO_SCHEMAS
from millpond.engine.admission.admit import Admission, AdmittedRows, admit
from millpond.engine.admission.shed import SHED_COUNT, Shedding
from millpond.engine.eddy.eddy import Ledger, Router
from millpond.engine.eddy.routing import Account, policy
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.matching.results_structure import FilterPassage
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import factorize
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.model.time import BEGINNING, END
from millpond.runtime.chunks import PIECE_BYTES, Chunk, divide, gather_small
from millpond.runtime.files.match_files import write_matches
from millpond.runtime.files.stem_files import load_stem
from millpond.state.arrow_file import FileMeta, write_arrow
from millpond.state.file_share import withdraw
from millpond.state.segment_file import encode_elements
from millpond.state.store import new_mark, new_path
from millpond.state.version import DATA, REJECTS, SHED

#: A segment has at most this many bits for the slots whose matches are not found by blocks.
_MATRIX_BITS = 1 << 31
SEGMENT_ROWS = 1_000_000
#: The bytes of a segment's rows, about. A task holds one segment's rows, and once more while it
#: lays them in order, however large its batch is. Texts of a segment also have to stay within the
#: reach of 32-bit offsets (2 GiB).
SEGMENT_BYTES = 256 << 20
#: How many records of a partition are shed together where whole splits are.
_CHUNK = 16_384
#: How many times a file's length its rows may have at least; dictionaries make files small.
MOST_GROWTH = 100


def segment_rows(stem: StemSnapshot | None) -> int:
    """Compute how many rows a segment may have that is matched against these queries.

    Matches are written as they are found, but queries with other factors wait for one another.
    """
    waiting = len(stem.others) if stem is not None else 0
    return max(16_384, min(SEGMENT_ROWS, _MATRIX_BITS // max(waiting, 1)))


@dataclass(frozen=True)
class StreamPlan:
    """How to admit and match one stream's rows of one batch."""

    stream_id: int
    schema: Schema
    timestamp_by: str | None
    floor: int
    arrival: int
    stem: str | None
    upto: int
    routing: str = "ticket"
    accounts: dict[str, Account] = field(default_factory=dict)
    ceiling: int = END
    #: The first slot that is matched, and the slots behind it that are not, while queries wait.
    low: int = 0
    deferred: tuple[int, ...] = ()
    #: How many bytes of rows one file may become, beyond `MOST_GROWTH` times its length.
    file_growth: int | None = None
    #: Rows before the first instant, or not before the second, are passed over: the history has
    #: them, or what follows it.
    taken: tuple[int, int] = (BEGINNING, END)
    #: Whether the batch is of the files of the stream's history.
    reads_history: bool = False
    #: What is shed of a source's rows; None: nothing.
    shedding: Shedding | None = None

    def most_of(self, length: int, parts: int = 1) -> int | None:
        """The bytes of rows a part of a file of so many bytes may become; None: any number."""
        if self.file_growth is None:
            return None
        return (self.file_growth + MOST_GROWTH * length) // parts

    @property
    def judge(self) -> Admission:
        return Admission(
            self.schema, self.timestamp_by, self.floor, self.arrival, self.ceiling, self.taken
        )


@dataclass(frozen=True)
class BatchPlan:
    """What the driver decides about a batch before any task runs."""

    store: str
    streams: dict[int, StreamPlan]
    #: What the driver holds for the batch; tasks do not use it.
    token: int | None = None
    #: What the names of the batch's files begin with.
    mark: str = field(default_factory=new_mark)
    #: When it was decided, ns since 1970.
    began: int = field(default_factory=clock_time.time_ns)


@dataclass(frozen=True)
class SplitRun:
    """Rows of a segment from `start` on, which came from the split `key`, from its row `offset` on.

    Splits are laid out in the order of their keys, which is the arrival order of the batch.
    """

    start: int
    key: tuple[Any, ...]
    offset: int
    #: The greatest timestamp: of a run of elements whose key begins with topic and partition; and
    #: of counts, that of the elements that were shed of a source's split.
    high: int | None = None


@dataclass(frozen=True)
class BuiltSegment:
    """A segment (or a merge of some) and its matches, written but not committed."""

    stream_id: int
    kind: str
    file: FileMeta
    min_ts: int
    max_ts: int
    runs: tuple[SplitRun, ...] = ()
    matches: FileMeta | None = None
    upto: int = 0
    low: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    stats: dict[str, FilterPassage] = field(default_factory=dict)
    matched: int = 0
    visits: int = 0
    routed: int = 0
    learnt: dict[str, Account] = field(default_factory=dict)
    #: The first of the segment's own rows in its file, which other segments may be in, too.
    start: int = 0
    #: How many elements were shed, of a segment that counts them.
    shed: int = 0

    def discard(self) -> None:
        """Remove the segment's files, which will not be committed."""
        for file in (self.file, self.matches):
            if file is not None:
                file.path.unlink(missing_ok=True)
                withdraw(file.path)


#: What stands before the path in the name of a file: what it is ordered by, or the protocol.
_BEFORE_PATH = re.compile(r"^([0-9.]+:|file:)/+")


def build(chunks: Iterable[Chunk], plan: BatchPlan) -> Iterator[BuiltSegment]:
    """Admit, sort, match and write a task's share of a batch."""
    builders: dict[int, _Builder] = {}
    for together in gather_small(chunks):
        stream_id = together[0].stream_id
        if stream_id not in plan.streams:
            continue  # the stream was dropped while its rows were on their way
        builder = builders.get(stream_id)
        if builder is None:
            builder = _Builder(plan.store, plan.streams[stream_id], plan.mark)
            builders[stream_id] = builder
        yield from builder.add_all(together)
    for builder in builders.values():
        yield from builder.finish()


class _Builder:
    """Collects the rows of one stream into segments of bounded size."""

    def __init__(self, store: str, plan: StreamPlan, mark: str) -> None:
        self._store = store
        self._mark = mark
        #: By file, the bytes of rows it has become.
        self._grown: dict[Any, int] = {}
        self._plan = plan
        self._stem = load_stem(plan.stem) if plan.stem else None
        self._limit = segment_rows(self._stem)
        #: Rows that wait for their segment, by kind: (split key, offset in the split, rows).
        self._waiting: dict[str, list[tuple[tuple[Any, ...], int, pa.Table]]] = {
            DATA: [],
            REJECTS: [],
            SHED: [],
        }
        #: By kind, how many rows wait, and their bytes.
        self._sizes: dict[str, tuple[int, int]] = {}
        self._offsets: dict[tuple[str, tuple[Any, ...]], int] = {}
        #: By split, how many of its rows came, and the greatest timestamp that was shed.
        self._came: dict[tuple[Any, ...], int] = {}
        self._shed_highs: dict[tuple[Any, ...], int] = {}
        self._partitioned = False

    def add(self, chunk: Chunk) -> Iterator[BuiltSegment]:
        """Admit a chunk piece by piece; yield a segment whenever one is full."""
        for start, rows in divide(chunk.rows, self._limit, min(PIECE_BYTES, SEGMENT_BYTES)):
            pushed = chunk.accepted_at is not None
            admitted = _unpack(rows) if pushed else admit(rows, self._plan.judge)
            yield from self._make_room(admitted)
            if chunk.name_row is not None:
                self._partitioned = True
                admitted = _name_rejects(admitted, chunk.name_row, start)
            self._take(chunk, start, rows.num_rows, admitted)

    def add_all(self, together: list[Chunk]) -> Iterator[BuiltSegment]:
        """Admit chunks that `gather_small` gave, at once unless a segment is too small for them."""
        counts = [chunk.rows.num_rows for chunk in together]
        size = sum(chunk.rows.nbytes for chunk in together)
        if len(together) == 1 or sum(counts) > self._limit or size > SEGMENT_BYTES:
            for chunk in together:
                yield from self.add(chunk)
            return
        admitted = admit(pa.concat_tables([chunk.rows for chunk in together]), self._plan.judge)
        yield from self._make_room(admitted)
        for chunk, part in zip(together, admitted.split(counts), strict=True):
            self._take(chunk, 0, chunk.rows.num_rows, part)

    def _make_room(self, admitted: AdmittedRows) -> Iterator[BuiltSegment]:
        """Yield the segments of what waits, if these rows do not go into them any more."""
        for kind, rows in ((DATA, admitted.elements), (REJECTS, admitted.rejects)):
            count, size = self._sizes.get(kind, (0, 0))
            most = self._limit if kind == DATA else SEGMENT_ROWS
            if count and (count + rows.num_rows > most or size + rows.nbytes > SEGMENT_BYTES):
                yield self._segment() if kind == DATA else self._write_pseudo(kind)

    def _take(self, chunk: Chunk, start: int, count: int, admitted: AdmittedRows) -> None:
        """Have what became of rows of a chunk wait for its segment, but for what is shed."""
        if chunk.most is not None:
            self._check_growth(chunk, admitted.elements.nbytes + admitted.rejects.nbytes)
        if self._plan.shedding is not None and chunk.accepted_at is None:
            admitted = self._shed(self._plan.shedding, chunk, start, admitted)
        self._came[chunk.key] = self._came.get(chunk.key, 0) + count
        elements, rejects = admitted.elements, admitted.rejects
        at = self._plan.arrival if chunk.accepted_at is None else chunk.accepted_at
        self._keep(DATA, chunk.key, elements)
        if admitted.shed is not None:
            stamps = pa.array(np.full(admitted.shed.num_rows, at, np.int64))
            self._keep(SHED, chunk.key, admitted.shed.append_column("__ts", stamps))
        if rejects.num_rows:
            stamps = pa.array(np.full(rejects.num_rows, at, dtype=np.int64))
            self._keep(REJECTS, chunk.key, rejects.append_column("__ts", stamps))

    def _shed(
        self, shedding: Shedding, chunk: Chunk, start: int, admitted: AdmittedRows
    ) -> AdmittedRows:
        """Shed elements of a part of a chunk that begins at a row, by their places in the split.

        A record's place is its offset in its partition, however its partition is cut into splits.
        """
        rows = admitted.element_rows
        if rows is None:
            rows = np.arange(admitted.elements.num_rows)
        if chunk.places is not None:
            split, places = chunk.key[:2], np.array(chunk.places, np.int64)[start + rows]
            chunks = places // _CHUNK
        else:
            split, places = chunk.key, self._came.get(chunk.key, 0) + rows
            chunks = np.zeros(len(rows), np.int64)
        kept = shedding.shed(admitted, zlib.crc32(repr(split).encode()), places, chunks)
        if kept.shed is not None:
            high = int(pc.max(admitted.elements["__ts"]).as_py())
            self._shed_highs[chunk.key] = max(high, self._shed_highs.get(chunk.key, high))
        return kept

    def _check_growth(self, chunk: Chunk, size: int) -> None:
        """Raise DATA-502 if a file becomes more rows than it may; its batch then writes nothing."""
        file = chunk.key[0]
        grown = self._grown[file] = self._grown.get(file, 0) + size
        assert chunk.most is not None
        if grown > chunk.most:
            raise MillpondError(
                "DATA-502",
                f'the file "{_BEFORE_PATH.sub("/", str(file))}" stands for too many rows',
                detail=f"Its rows would take more than {chunk.most:,} bytes of disk.",
                hint="Take it away, or allow more: ALTER SYSTEM SET (file_growth = '10 GB').",
            )

    def finish(self) -> Iterator[BuiltSegment]:
        if self._waiting[DATA]:
            yield self._segment()
        if self._waiting[REJECTS]:
            yield self._write_pseudo(REJECTS)
        if self._waiting[SHED]:
            yield self._write_pseudo(SHED)

    def _keep(self, kind: str, key: tuple[Any, ...], rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        offset = self._offsets.get((kind, key), 0)
        self._offsets[kind, key] = offset + rows.num_rows
        count, size = self._sizes.get(kind, (0, 0))
        self._sizes[kind] = count + rows.num_rows, size + rows.nbytes
        self._waiting[kind].append((key, offset, rows))

    def _lay(self, kind: str) -> tuple[pa.Table, list[SplitRun]]:
        """Lay out the waiting rows in the order of their splits; say where each split begins.

        A task gets splits in any order (Spark: the largest first). Laid out by split, the rows of
        the segment are in the stream's arrival order.
        """
        runs: list[SplitRun] = []
        tables, start = [], 0
        for key, offset, rows in sorted(self._waiting[kind], key=lambda piece: piece[:2]):
            if not runs or runs[-1].key != key:
                runs.append(SplitRun(start, key, offset))
            if self._partitioned and kind == DATA:
                highest = max(int(pc.max(rows["__ts"]).as_py()), runs[-1].high or BEGINNING)
                runs[-1] = replace(runs[-1], high=highest)
            if kind == SHED:
                runs[-1] = replace(runs[-1], high=self._shed_highs.get(key))
            tables.append(rows)
            start += rows.num_rows
        self._waiting[kind] = []
        self._sizes[kind] = 0, 0
        return in_time_order(pa.concat_tables(tables)), runs

    def _segment(self) -> BuiltSegment:
        elements, runs = self._lay(DATA)
        plan, store = self._plan, self._store
        router = task_router(plan.routing, plan.arrival, plan.accounts)
        return write_segment(
            store,
            plan.stream_id,
            elements,
            self._stem,
            plan.upto,
            router,
            runs,
            low=plan.low,
            deferred=plan.deferred,
            mark=self._mark,
        )

    def _write_pseudo(self, kind: str) -> BuiltSegment:
        """Write what was rejected, or counts of what was shed; both say first when that was."""
        table, runs = self._lay(kind)
        stamp, *columns = PSEUDO_SCHEMAS[kind].names
        table = table.select([*columns, "__ts", "__seq"]).add_column(
            0, stamp, table["__ts"].cast(pa.timestamp("us"))
        )
        path = new_path(self._store, "rejects", self._mark)
        file = write_arrow(path, encode_elements(table))
        stamps = table["__ts"].to_numpy()
        span = int(stamps[0]), int(stamps[-1])
        shed = int(pc.sum(table["elements"]).as_py()) if kind == SHED else 0
        return BuiltSegment(self._plan.stream_id, kind, file, *span, runs=tuple(runs), shed=shed)


def _name_rejects(
    admitted: AdmittedRows, name_row: Callable[[int], str], start: int
) -> AdmittedRows:
    """Add to each reject's reason which record it is."""
    if not admitted.rejects.num_rows:
        return admitted
    reasons = [
        f"{reason} ({name_row(start + int(row))})"
        for reason, row in zip(
            admitted.rejects["reason"].to_pylist(), admitted.reject_rows, strict=True
        )
    ]
    place = admitted.rejects.column_names.index("reason")
    rejects = admitted.rejects.set_column(place, "reason", pa.array(reasons, pa.string()))
    return replace(admitted, rejects=rejects)


def in_time_order(elements: pa.Table) -> pa.Table:
    """Sort elements by (timestamp, arrival), with their arrival number as `__seq`."""
    ts = elements["__ts"].to_numpy()
    numbered = elements.append_column("__seq", pa.array(np.arange(len(ts), dtype=np.int64)))
    if len(ts) > 1 and not bool((ts[1:] >= ts[:-1]).all()):
        numbered = numbered.take(pa.array(np.argsort(ts, kind="stable")))
    return numbered.combine_chunks()


def write_segment(
    store: str,
    stream_id: int,
    elements: pa.Table,
    stem: StemSnapshot | None,
    upto: int,
    router: Router | None = None,
    runs: Iterable[SplitRun] = (),
    kind: str = DATA,
    low: int = 0,
    deferred: Collection[int] = (),
    mark: str = "",
) -> BuiltSegment:
    ts = elements["__ts"].to_numpy()
    folder = "segments" if kind == DATA else "rejects"
    matches, found = None, None
    # Waiting for the disk takes no time from matching.
    with ThreadPoolExecutor(1) as beside:
        writing = beside.submit(
            write_arrow, new_path(store, folder, mark), encode_elements(elements)
        )
        if stem is not None and len(stem.slots):
            found, matches = write_matches(store, elements, stem, router, deferred, mark)
        file = writing.result()
    return BuiltSegment(
        stream_id,
        kind,
        file,
        int(ts[0]),
        int(ts[-1]),
        tuple(runs),
        matches,
        upto,
        low,
        found.failed if found else {},
        found.stats if found else {},
        found.matched if found else 0,
        router.ledger.visits if router else 0,
        router.ledger.routed if router else 0,
        router.ledger.accounts if router else {},
    )


def task_router(routing: str, seed: int, accounts: Mapping[str, Account]) -> Router:
    """Make a task's router, which starts with the driver's accounts of its modules."""
    return Router(policy(routing, seed), Ledger(dict(accounts)))


def _unpack(rows: pa.Table) -> AdmittedRows:
    """Split a packed push into elements, rejects and counts of shed elements."""
    shed = None
    if SHED_COUNT in rows.column_names:
        is_count = pc.is_valid(rows[SHED_COUNT])
        counts = rows.filter(is_count)
        if counts.num_rows:
            shed = pa.table(
                {
                    "second": counts["__ts"].cast(pa.timestamp("us")),
                    "elements": counts[SHED_COUNT],
                    "spared": counts["__raw"],
                }
            )
        rows = rows.filter(pc.invert(is_count)).drop_columns([SHED_COUNT])
    rejected = rows["__reason"].is_valid().to_numpy()
    names = [n for n in rows.column_names if n not in ("__reason", "__raw")]
    if not rejected.any():
        empty = rows.slice(0, 0)
        rejects = pa.table({"reason": empty["__reason"], "raw": empty["__raw"]})
        return AdmittedRows(rows.select(names), rejects, np.empty(0, np.int64), shed)
    bad = rows.filter(pa.array(rejected))
    rejects = pa.table({"reason": bad["__reason"], "raw": bad["__raw"]})
    elements = rows.filter(pa.array(~rejected)).select(names)
    return AdmittedRows(elements, rejects, np.flatnonzero(rejected), shed)


def pack(admitted: AdmittedRows) -> pa.Table:
    """Pack a judged push into one table for the inbox; `build` unpacks it.

    A reject is a row with a `__reason`. Where elements were shed, a row with a `__shed` count
    stands for that many elements of the second `__ts`; its `__raw` is what was spared.
    """
    elements, rejects = admitted.elements, admitted.rejects
    parts = [elements.append_column("__reason", pa.nulls(elements.num_rows, pa.string()))]
    parts[0] = parts[0].append_column("__raw", pa.nulls(elements.num_rows, pa.string()))
    schema = parts[0].schema
    if rejects.num_rows:
        bad = {f.name: pa.nulls(rejects.num_rows, f.type) for f in elements.schema}
        bad["__reason"], bad["__raw"] = rejects["reason"], rejects["raw"]
        parts.append(pa.table(bad, schema=schema))
    if admitted.shed is None:
        return pa.concat_tables(parts)
    shed = admitted.shed
    counts = {f.name: pa.nulls(shed.num_rows, f.type) for f in schema}
    counts["__ts"], counts["__raw"] = shed["second"].cast(pa.int64()), shed["spared"]
    parts = [part.append_column(SHED_COUNT, pa.nulls(part.num_rows, pa.int64())) for part in parts]
    parts.append(pa.table(counts, schema=schema).append_column(SHED_COUNT, shed["elements"]))
    return pa.concat_tables(parts)


def warm_up(number: int) -> int:
    """Load the code of matching into a worker, so that its first element need not wait."""
    schema = Schema((Field("a", "INTEGER"), Field("b", "VARCHAR"), Field("c", "DOUBLE")))
    predicate = sqlglot.parse_one("a > 1 AND b = 'x' AND c < 2.5 AND a % 2 = 0", read="duckdb")
    stem = snapshot_queries([(0, factorize(cast(exp.Expression, predicate), schema))], schema)
    rows = pa.table({"a": [1, 2], "b": ["x", "x"], "c": [1.0, 2.0]}, schema=schema.to_arrow())
    judge = Admission(schema, None, 0, 0)
    match(admit(rows, judge).elements, stem, ScalarEvaluator.of_this_thread()).to_table()
    return number
