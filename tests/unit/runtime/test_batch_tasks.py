"""What a worker does: segments are sorted, numbered, matched; nothing is lost or counted twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import parse_one

from millpond.engine.admission.admit import Admission, admit
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.matching.results_structure import MatchReader
from millpond.engine.predicates.factors import factorize
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.model.time import BEGINNING, to_datetime
from millpond.runtime import batch_tasks
from millpond.runtime import chunks as chunks_module
from millpond.runtime.batch_tasks import BatchPlan, BuiltSegment, StreamPlan, build
from millpond.runtime.chunks import Chunk
from millpond.runtime.files.match_files import FAILED, failed_slots
from millpond.runtime.maintenance_tasks import (
    BackfillJob,
    FoldJob,
    MergeJob,
    backfill,
    fold,
    merge,
)
from millpond.service.ingest.segment_refs import number_runs
from millpond.state.arrow_file import open_arrow, write_arrow
from millpond.state.segment_file import global_seq, open_segment
from millpond.state.store import new_path, remove_marked

SECOND = 1_000_000
SCHEMA = Schema((Field("ts", "TIMESTAMP"), Field("v", "INTEGER"), Field("s", "VARCHAR")))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for kind in ("segments", "rejects", "matches", "stems"):
        (tmp_path / kind).mkdir()
    return tmp_path


def rows(*given: tuple[int, int], text: str = "x") -> pa.Table:
    """(second, v) pairs."""
    columns: dict[str, list[Any]] = {
        "ts": [to_datetime(at * SECOND) for at, _ in given],
        "v": [v for _, v in given],
        "s": [text] * len(given),
    }
    return pa.table(columns, schema=SCHEMA.to_arrow())


def stem(store: Path, *predicates: str) -> str:
    """The file of a snapshot with these predicates in slots 0, 1, …."""
    queries = [
        (n, factorize(parse_one(p, read="duckdb"), SCHEMA)) for n, p in enumerate(predicates)
    ]
    path = store / "stems" / "snapshot"
    snapshot_queries(queries, SCHEMA).save(path)
    return str(path)


def plan(
    store: Path, stem: str | None = None, slots: int = 0, floor: int = BEGINNING, **streams: int
) -> BatchPlan:
    ids = streams.values() or [1]
    plans = {id: StreamPlan(id, SCHEMA, "ts", floor, 900 * SECOND, stem, slots) for id in ids}
    return BatchPlan(str(store), plans)


def contents(built: Iterable[BuiltSegment]) -> list[tuple[int, int, int]]:
    """(v, timestamp, arrival number) of all elements, by arrival number."""
    built = list(built)
    _, runs = number_runs(built, 0)
    found = []
    for item, own in zip(built, runs, strict=True):
        table = open_segment(item.file.path, item.file.checksum)
        stamps = table["__ts"].to_pylist()
        assert stamps == sorted(stamps)
        assert (item.min_ts, item.max_ts) == (stamps[0], stamps[-1])
        numbers = global_seq(table["__seq"].to_numpy(), own).tolist()
        found += zip(table["v"].to_pylist(), stamps, numbers, strict=True)
    return sorted(found, key=lambda element: element[2])


# -- building -----------------------------------------------------------------------------------


def test_a_segment_is_in_time_order_and_remembers_arrival(store: Path) -> None:
    chunks = [Chunk(1, (0,), rows((5, 0), (3, 1), (5, 2), (4, 3)))]
    (built,) = build(chunks, plan(store))
    table = open_segment(built.file.path)
    assert table["v"].to_pylist() == [1, 3, 0, 2]
    assert contents([built]) == [
        (0, 5 * SECOND, 0),
        (1, 3 * SECOND, 1),
        (2, 5 * SECOND, 2),
        (3, 4 * SECOND, 3),
    ]


def test_splits_are_laid_by_key_whatever_order_a_task_gets_them_in(store: Path) -> None:
    pieces = [("b", 0), ("a", 64), ("a", 0), ("c", 0)]
    chunks = [Chunk(1, key, rows((n, n), (n, n + 10))) for n, key in enumerate(pieces)]
    in_order = [2, 12, 1, 11, 0, 10, 3, 13]
    assert [v for v, _, _ in contents(build(chunks, plan(store)))] == in_order
    apart = [b for chunk in chunks for b in build([chunk], plan(store))]
    assert [v for v, _, _ in contents(reversed(apart))] == in_order


def test_full_segments_go_out_and_the_count_goes_on(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_tasks, "segment_rows", lambda stem: 4)
    given = [(n % 5, n) for n in range(11)]
    chunks = [Chunk(1, ("b",), rows(*given[:3])), Chunk(1, ("b",), rows(*given[3:]))]
    built = list(build([*chunks, Chunk(1, ("a",), rows((9, 99)))], plan(store)))
    assert all(b.file.rows <= 4 for b in built)
    assert [v for v, _, _ in contents(built)] == [99, *range(11)]


@pytest.mark.parametrize(("limit", "times"), [(0, 6), (1, 6), (4, 4), (100, 3)])
def test_small_files_judged_at_once_become_what_each_becomes(
    store: Path, monkeypatch: pytest.MonkeyPatch, limit: int, times: int
) -> None:
    """Elements, rejects, their order and what is passed over, whatever is gathered."""
    texts = [["5", "1", "no"], [], ["9", "12", "2"], ["x"], ["7", "", "8"], ["3"]]
    tables = [
        pa.table({"ts": values, "v": pa.array(range(len(values)), pa.int64())}) for values in texts
    ]
    tables[3] = tables[3].append_column("s", pa.array(["other columns"]))
    given = [
        pa.table({**dict(zip(t.column_names, t.columns, strict=True)), "ts": as_instants(t["ts"])})
        for t in tables
    ]
    chunks = [Chunk(1, (f"file {n % 4}", n), rows) for n, rows in enumerate(given)]
    judged: list[int] = []

    def admit_noting(rows: pa.Table, judge: Admission) -> Any:
        judged.append(rows.num_rows)
        return admit(rows, judge)

    monkeypatch.setattr(batch_tasks, "admit", admit_noting)
    monkeypatch.setattr(chunks_module, "_TOGETHER_ROWS", limit)
    once = plan(store, floor=2 * SECOND)
    once = replace(once, streams={1: replace(once.streams[1], taken=(BEGINNING, 12 * SECOND))})
    data, rejects = build(chunks, once)
    assert [(v, at // SECOND) for v, at, _ in contents([data])] == [
        *[(0, 5), (0, 7), (2, 8), (0, 3)],
        *[(0, 9), (2, 2)],
    ]
    reasons = open_arrow(rejects.file.path)["reason"].to_pylist()
    assert [reason.partition(":")[0] for reason in reasons] == [
        *["late", 'column "ts"', "no timestamp"],
        'column "ts"',
    ]
    assert len(judged) == times


def as_instants(seconds: pa.ChunkedArray) -> pa.Array:
    """Texts of instants so many seconds after 1970; other texts stay, and nothing is NULL."""
    texts = [f"1970-01-01 00:00:{s:0>2}" if s.isdigit() else s or None for s in seconds.to_pylist()]
    return pa.array(texts, pa.string())


def test_segments_are_bounded_in_bytes(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text beyond 2 GiB could not be put into time order."""
    monkeypatch.setattr(batch_tasks, "SEGMENT_BYTES", 10_000)
    long = rows(*((9 - n, n) for n in range(10)), text="x" * 3_000)
    built = list(build([Chunk(1, (0,), long), Chunk(1, (1,), long)], plan(store)))
    assert len(built) >= 6
    assert all(b.file.rows <= 3 for b in built)
    assert [v for v, _, _ in contents(built)] == [*range(10), *range(10)]


def test_what_is_late_or_malformed_is_a_reject_of_its_batch(store: Path) -> None:
    raw = pa.table({"ts": ["1970-01-01 00:00:05", "1970-01-01 00:00:03", "no"], "v": [1, 2, 3]})
    data, rejects = build([Chunk(1, (0,), raw)], plan(store, floor=4 * SECOND))
    assert (data.kind, data.file.rows) == ("data", 1)
    assert (rejects.kind, rejects.file.path.parent.name) == ("rejects", "rejects")
    table = open_segment(rejects.file.path)
    assert table["__ts"].to_pylist() == [900 * SECOND] * 2
    assert table["rejected_at"].to_pylist() == [to_datetime(900 * SECOND)] * 2
    assert [reason.split()[0] for reason in table["reason"].to_pylist()] == ["late:", "column"]


def test_pushed_rows_are_not_judged_again(store: Path) -> None:
    raw = pa.table({"ts": ["1970-01-01 00:00:05", None], "v": [1, 2]})
    packed = batch_tasks.pack(admit(raw, Admission(SCHEMA, "ts", BEGINNING, 7 * SECOND)))
    chunk = Chunk(1, (12,), packed, accepted_at=7 * SECOND)
    data, rejects = build([chunk], plan(store, floor=100 * SECOND))
    assert contents([data]) == [(1, 5 * SECOND, 0)]
    table = open_segment(rejects.file.path)
    assert table["__ts"].to_pylist() == [7 * SECOND]
    assert table["reason"].to_pylist() == ["no timestamp"]


def test_one_task_builds_many_streams_and_passes_over_dropped_ones(store: Path) -> None:
    chunks = [Chunk(id, (id,), rows((id, id))) for id in (1, 2, 3)]
    built = list(build(chunks, plan(store, a=1, b=3)))
    assert {b.stream_id: contents([b])[0][0] for b in built} == {1: 1, 3: 3}


def test_no_rows_make_no_segment(store: Path) -> None:
    assert list(build([Chunk(1, (0,), rows())], plan(store))) == []
    assert list(build([], plan(store))) == []


def test_elements_are_matched_as_they_are_built(store: Path) -> None:
    file = stem(store, "v > 1", "v % 2 = 0", "v > 100")
    (built,) = build([Chunk(1, (0,), rows((3, 3), (2, 2), (1, 1)))], plan(store, file, 3))
    assert built.matches is not None
    reader = MatchReader(open_arrow(built.matches.path, built.matches.checksum))
    assert [reader.rows(slot, 0, 3).tolist() for slot in range(3)] == [[1, 2], [1], []]
    assert (built.upto, built.matched) == (3, 3)


# -- what failed --------------------------------------------------------------------------------


def test_a_predicate_that_fails_is_told_from_one_that_matches_nothing(store: Path) -> None:
    file = stem(store, "CAST(s AS INTEGER) > 1", "v > 100", "v > 1")
    (built,) = build([Chunk(1, (0,), rows((1, 1), (2, 2)))], plan(store, file, 3))
    assert built.failed.keys() == {0}
    assert built.matches is not None
    assert failed_slots(open_arrow(built.matches.path)) == {0}
    job = BackfillJob(
        str(store), ((7, f"segments/{built.file.path.name}", built.file.checksum),), file, 0, 3
    )
    (again,) = backfill(job)
    assert (again.segment_id, again.failed.keys()) == (7, {0})
    assert failed_slots(open_arrow(again.file.path)) == {0}


# -- merging and folding ------------------------------------------------------------------------


def merged(
    store: Path, built: list[BuiltSegment], kind: str = "data", stem: str | None = None
) -> Any:
    _, runs = number_runs(built, 100)
    segments = tuple(
        (n, f"{b.file.path.parent.name}/{b.file.path.name}", b.file.checksum, own, b.file.rows)
        for n, (b, own) in enumerate(zip(built, runs, strict=True))
    )
    return merge(MergeJob(str(store), 1, kind, 1, segments, stem, 3))


def test_a_merge_keeps_time_and_arrival_order(store: Path) -> None:
    given = [[(5, 0), (3, 1)], [(3, 2), (4, 3), (5, 4)], [(1, 5)]]
    built = [b for n, g in enumerate(given) for b in build([Chunk(1, (n,), rows(*g))], plan(store))]
    file = stem(store, "v > 1", "v = 0", "v < 0")
    result = merged(store, built, stem=file)
    table = open_segment(result.built.file.path)
    assert table["v"].to_pylist() == [5, 1, 2, 3, 0, 4]
    assert table["__seq"].to_pylist() == [5, 1, 2, 3, 0, 4]
    assert result.base == 100
    assert (result.built.min_ts, result.built.max_ts) == (1 * SECOND, 5 * SECOND)
    assert result.replaced == (0, 1, 2)
    reader = MatchReader(open_arrow(result.built.matches.path))
    assert reader.rows(0, 0, 6).tolist() == [0, 2, 3, 5]


def test_rejects_are_merged_as_rejects(store: Path) -> None:
    raw = pa.table({"ts": ["no"], "v": [1]})
    built = [b for n in range(3) for b in build([Chunk(1, (n,), raw)], plan(store))]
    result = merged(store, built, "rejects")
    assert (result.built.kind, result.built.file.path.parent.name) == ("rejects", "rejects")
    assert result.built.matches is None
    table = open_segment(result.built.file.path)
    assert table.column_names == ["rejected_at", "reason", "raw", "__ts", "__seq"]
    assert table["__seq"].to_pylist() == [0, 1, 2]
    assert result.base == 100


def test_folded_matches_say_what_their_parts_said_of_live_slots(store: Path) -> None:
    file = stem(store, "v > 1", "CAST(s AS INTEGER) = 1", "v < 3", "v >= 0")
    (built,) = build([Chunk(1, (0,), rows(*((n, n) for n in range(200))))], plan(store, file, 4))
    assert built.matches is not None
    whole = open_arrow(built.matches.path)
    parts = []
    for chosen in ([0, 1], [2], [3]):
        mask = pa.compute.is_in(whole["slot"], pa.array(chosen, pa.uint32()))
        part = whole.filter(mask).replace_schema_metadata({FAILED: "1"} if 1 in chosen else None)
        meta = write_arrow(new_path(store, "matches"), part, sync=False, whole=False)
        parts.append((f"matches/{meta.path.name}", meta.checksum))
    before = MatchReader(whole)
    for live in ((0, 1, 3), (3,), ()):
        folded = fold(FoldJob(str(store), 7, tuple(parts), live))
        assert folded is not None
        table = open_arrow(folded.path, folded.checksum)
        assert failed_slots(table) == {1} & set(live)
        reader = MatchReader(table)
        for slot in (0, 2, 3):
            expected = before.rows(slot, 0, 200).tolist() if slot in live else []
            assert reader.rows(slot, 0, 200).tolist() == expected
    torn = (*parts, ("matches/missing.arrow", "0"))
    assert fold(FoldJob(str(store), 7, torn, (0,))) is None


def plan_of(store: Path) -> BatchPlan:
    stream = StreamPlan(7, SCHEMA, "ts", BEGINNING, 0, None, 0, file_growth=1_000)
    return BatchPlan(str(store), {7: stream})


def test_a_file_becomes_no_more_rows_than_it_may(store: Path) -> None:
    stream = plan_of(store).streams[7]
    assert stream.most_of(10) == 2_000
    assert stream.most_of(10, parts=4) == 500
    few, many = rows(*[(n, n) for n in range(20)]), rows(*[(n, n) for n in range(100)])
    for pieces, expected in (([few], True), ([many], False), ([few] * 5, False)):
        chunks = [Chunk(7, ("file:/in/a.csv", n), t, most=2_000) for n, t in enumerate(pieces)]
        if expected:
            assert len(list(build(chunks, plan_of(store)))) == 1
            continue
        with pytest.raises(MillpondError, match="DATA-502") as raised:
            list(build(chunks, plan_of(store)))
        assert 'the file "/in/a.csv" stands for too many rows' in str(raised.value)
    each = [Chunk(7, (f"file:/in/{n}.csv", 0), few, most=2_000) for n in range(4)]
    assert len(list(build(each, plan_of(store)))) == 1


def test_the_files_of_a_batch_that_failed_are_found_by_their_mark(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_tasks, "SEGMENT_ROWS", 10)
    failed, kept = plan_of(store), plan_of(store)
    chunk = Chunk(7, ("a", 0), rows(*[(n, n) for n in range(20)]))
    list(build([chunk], kept))
    list(build([chunk], failed))
    (store / "segments" / f".{failed.mark}{'0' * 16}.arrow.tmp").write_bytes(b"torn")
    before = len(list((store / "segments").iterdir()))
    remove_marked(store, [failed.mark])
    left = list((store / "segments").iterdir())
    assert 0 < len(left) < before
    assert all(file.name.startswith(kept.mark) for file in left)
