"""Small segments of change logs lie in one file, and each has its own rows of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millpond.runtime.batch_tasks import BuiltSegment
from millpond.runtime.files.log_files import MOST_SHARED_BYTES, discard_all, write_logs
from millpond.service.ingest.segment_refs import segment_ref
from millpond.state.segment_file import global_seq, open_rows


def changes(values: list[int], column: str = "v") -> pa.Table:
    numbers = pa.array(range(len(values)), pa.int64())
    return pa.table({column: pa.array(values), "__ts": pa.array(values), "__seq": numbers})


def read(piece: BuiltSegment, next_seq: int) -> tuple[list[int], list[int]]:
    """The values of a committed segment, and the numbers of its changes."""
    ref = segment_ref(piece, ((0, next_seq),))
    table = open_rows(piece.file.path, ref.checksum, ref.seq_runs, ref.rows)
    numbers = global_seq(table["__seq"].to_numpy(), ref.seq_runs)
    return table[table.column_names[0]].to_pylist(), numbers.tolist()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "segments").mkdir()
    return tmp_path


def test_each_segment_has_its_own_rows_and_numbers(store: Path) -> None:
    parts = [
        (5, changes([3, 4, 9])),
        (6, changes([7], "other")),
        (7, changes([1])),
        (5, changes([10, 11])),
        (8, changes([2])),
    ]
    built = write_logs(str(store), parts, apart=[4])
    assert [piece.stream_id for piece in built] == [5, 6, 7, 5, 8]
    assert [(piece.min_ts, piece.max_ts) for piece in built][:3] == [(3, 9), (7, 7), (1, 1)]
    for (_, table), piece in zip(parts, built, strict=True):
        values = table.column(0).to_pylist()
        assert read(piece, 100) == (values, list(range(100, 100 + len(values))))
    paths = [piece.file.path for piece in built]
    assert paths[0] == paths[2] == paths[3]
    assert len({*paths}) == len(list((store / "segments").iterdir())) == 3


def test_a_file_of_several_segments_is_small(store: Path) -> None:
    """It stays as long as any of them does."""
    some, many = changes(list(range(100))), changes(list(range(MOST_SHARED_BYTES // 8)))
    built = write_logs(str(store), [(n, many if n == 50 else some) for n in range(100)])
    alone = [piece for piece in built if piece.file.path == built[50].file.path]
    assert alone == [built[50]]
    sizes = {piece.file.path: piece.file.bytes for piece in built if piece is not built[50]}
    assert 3 <= len(sizes) <= 8
    assert max(sizes.values()) < 2 * MOST_SHARED_BYTES
    assert all(read(piece, 0)[0] == list(range(piece.file.rows)) for piece in built)


def test_a_file_is_removed_with_the_last_of_its_segments(store: Path) -> None:
    built = write_logs(str(store), [(n, changes([n])) for n in range(3)])
    discard_all(built[:2], built[2:])
    assert read(built[2], 0) == ([2], [0])
    discard_all(built[2:], [])
    assert not list((store / "segments").iterdir())
