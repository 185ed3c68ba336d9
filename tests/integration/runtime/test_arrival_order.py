"""Building segments: whatever order splits come in, rows are laid in the splits' own order."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.model.schema import Field, Schema
from millpond.runtime import batch_tasks
from millpond.runtime.batch_tasks import BatchPlan, BuiltSegment, StreamPlan, build
from millpond.runtime.chunks import Chunk
from millpond.service.ingest.segment_refs import number_runs
from millpond.state.segment_file import global_seq, open_segment
from millpond.state.store import Store

SCHEMA = Schema((Field("ts", "TIMESTAMP"), Field("n", "BIGINT")))


@pytest.fixture
def plan(tmp_path: Path) -> BatchPlan:
    Store.open(tmp_path / "store").close()
    stream = StreamPlan(1, SCHEMA, "ts", floor=0, arrival=0, stem=None, upto=0)
    return BatchPlan(str(tmp_path / "store"), {1: stream})


def chunk(key: tuple[str, int], *rows: tuple[int, int | str]) -> Chunk:
    stamps = pa.array([ts for ts, _ in rows], pa.timestamp("us"))
    return Chunk(1, key, pa.table({"ts": stamps, "n": [str(n) for _, n in rows]}))


#: Splits in their order; all rows are numbered in it, and many have equal timestamps.
SPLITS = [
    chunk(("a", 0), (5, 0), (5, 1), (9, 2)),
    chunk(("a", 0), (5, 3), (9, 4)),
    chunk(("a", 64), (5, 5), (1, 6)),
    chunk(("b", 0), (5, 7)),
    chunk(("b", 8), (9, 8), (5, 9), (5, 10)),
]


def arrivals(built: list[BuiltSegment]) -> list[list[tuple[int, int, int]]]:
    """Per segment its rows as (timestamp, arrival number, n)."""
    _, runs = number_runs(built, 0)
    found = []
    for item, own in zip(built, runs, strict=True):
        table = open_segment(item.file.path, item.file.checksum)
        numbers = global_seq(table["__seq"].to_numpy(), own)
        stamps, values = table["__ts"].to_pylist(), table["n"].to_pylist()
        found.append(list(zip(stamps, numbers.tolist(), values, strict=True)))
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_arrival_numbers_follow_the_splits_however_tasks_get_them(plan, shared):
    first, second, *rest = SPLITS  # a split's own rows come in order
    for order in itertools.permutations([(first, second), *((split,) for split in rest)]):
        chunks = [split for group in order for split in group]
        share = [chunks] if shared else [list(group) for group in order]
        segments = arrivals([item for task in share for item in build(task, plan)])
        assert sorted(n for segment in segments for _, _, n in segment) == list(range(11))
        for segment in segments:
            assert all(number == n for _, number, n in segment)
            assert segment == sorted(segment)


def test_a_full_segment_does_not_break_the_order(plan, monkeypatch):
    monkeypatch.setattr(batch_tasks, "segment_rows", lambda stem: 4)
    segments = arrivals(list(build(reversed(SPLITS[2:]), plan)))
    assert [len(segment) for segment in segments] == [4, 2]
    for segment in segments:
        assert segment == sorted(segment)
    rows = sorted(row for segment in segments for row in segment)
    assert [n for _, _, n in rows] == [6, 5, 7, 9, 10, 8]
