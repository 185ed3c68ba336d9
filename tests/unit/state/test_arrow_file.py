"""Arrow files: whole, durable and unchanged, or an error that names the file."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash

from millpond.errors import MillpondError
from millpond.state import arrow_file
from millpond.state.arrow_file import (
    forget,
    open_arrow,
    write_arrow,
    write_pieces,
    write_together,
)

TABLE = pa.table(
    {
        "n": pa.array(range(1_000), pa.int64()),
        "s": pa.array([None if i % 3 else f"row {i}" for i in range(1_000)]),
    }
)


def test_what_is_written_is_read_back_without_copying(tmp_path):
    meta = write_arrow(tmp_path / "a.arrow", TABLE)
    content = meta.path.read_bytes()
    assert (meta.rows, meta.bytes) == (1_000, len(content))
    assert meta.checksum == xxhash.xxh3_64(content).hexdigest()
    before = pa.total_allocated_bytes()
    table = open_arrow(meta.path, meta.checksum)
    assert pa.total_allocated_bytes() == before
    assert table.equals(TABLE)
    assert list(tmp_path.iterdir()) == [meta.path]


def test_pieces_are_written_as_they_are_made(tmp_path):
    lengths = []

    def make(keep):
        for piece in TABLE.to_batches(max_chunksize=100):
            keep(piece)
            [unfinished] = tmp_path.iterdir()
            lengths.append(unfinished.stat().st_size)

    meta = write_pieces(tmp_path / "a.arrow", TABLE.schema, make)
    assert lengths == sorted(set(lengths))
    assert meta.rows == 1_000
    assert open_arrow(meta.path, meta.checksum).equals(TABLE)


def test_a_disk_that_fills_between_pieces_leaves_no_file(tmp_path, monkeypatch):
    asked = []

    def refuse_the_third(path, room):
        asked.append(room)
        if len(asked) == 4:  # the first is asked for the file itself
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(arrow_file, "check_room", refuse_the_third)
    pieces = TABLE.to_batches(max_chunksize=100)
    with pytest.raises(MillpondError, match="STORE-603"):
        write_pieces(tmp_path / "a.arrow", TABLE.schema, lambda keep: list(map(keep, pieces)))
    assert len(asked) == 4
    assert list(tmp_path.iterdir()) == []


def test_a_table_in_pieces_becomes_one_record_batch(tmp_path):
    pieces = pa.concat_tables([TABLE.slice(0, 10), TABLE.slice(500, 20)])
    table = open_arrow(write_arrow(tmp_path / "a.arrow", pieces).path)
    assert table.column("n").num_chunks == 1
    assert table.equals(pieces)


def test_an_empty_table_keeps_its_schema(tmp_path):
    table = open_arrow(write_arrow(tmp_path / "a.arrow", TABLE.slice(0, 0)).path)
    assert (table.num_rows, table.schema) == (0, TABLE.schema)


def test_an_open_table_is_found_again_and_holds_no_descriptor(tmp_path, eventually):
    meta = write_arrow(tmp_path / "a.arrow", TABLE)
    descriptors = len(os.listdir("/proc/self/fd"))
    table = open_arrow(meta.path, meta.checksum)
    # Threads that earlier tests left may have files open for a moment.
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
    assert open_arrow(str(meta.path), meta.checksum) is table
    assert open_arrow(meta.path) is table


def test_few_tables_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow_file, "_OPEN_TABLES", 2)
    paths = [write_arrow(tmp_path / f"{i}.arrow", TABLE).path for i in range(3)]
    first = open_arrow(paths[0])
    open_arrow(paths[1])
    open_arrow(paths[2])
    assert open_arrow(paths[0]) is not first


def test_a_table_in_use_outlives_its_file(tmp_path):
    meta = write_arrow(tmp_path / "a.arrow", TABLE)
    table = open_arrow(meta.path, meta.checksum)
    forget(meta.path)
    meta.path.unlink()
    assert table.equals(TABLE)
    with pytest.raises(MillpondError, match="no such file"):
        open_arrow(meta.path, meta.checksum)


def _flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(_flip, id="a bit flipped"),
        pytest.param(lambda content: content[:-20], id="torn"),
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: content + b"x", id="too long"),
        pytest.param(lambda content: b"x" * len(content), id="something else"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, damage):
    meta = write_arrow(tmp_path / "a.arrow", TABLE)
    meta.path.write_bytes(damage(meta.path.read_bytes()))
    with pytest.raises(MillpondError) as caught:
        open_arrow(meta.path, meta.checksum)
    assert caught.value.code == "STORE-602"
    assert str(meta.path) in caught.value.primary


def test_a_torn_file_is_noticed_without_a_checksum(tmp_path):
    meta = write_arrow(tmp_path / "a.arrow", TABLE)
    meta.path.write_bytes(meta.path.read_bytes()[:-20])
    with pytest.raises(MillpondError, match="STORE-602"):
        open_arrow(meta.path)


def test_a_table_opened_unverified_is_verified_when_a_checksum_comes(tmp_path):
    meta = write_arrow(tmp_path / "a.arrow", TABLE)
    meta.path.write_bytes(_flip(meta.path.read_bytes()))
    open_arrow(meta.path)
    with pytest.raises(MillpondError, match="not those that were written"):
        open_arrow(meta.path, meta.checksum)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("call", ["write", "fsync", "open", "rename"])
def test_what_cannot_be_written_is_said_and_leaves_nothing(tmp_path, monkeypatch, call, number):
    def fail(*_args, **_kwargs):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(MillpondError) as caught:
        write_arrow(tmp_path / "a.arrow", TABLE)
    monkeypatch.undo()
    assert caught.value.code == "STORE-603"
    assert str(tmp_path / "a.arrow") in caught.value.primary
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:7]))
    meta = write_arrow(tmp_path / "a.arrow", TABLE.slice(0, 20))
    monkeypatch.undo()
    assert open_arrow(meta.path, meta.checksum).equals(TABLE.slice(0, 20))


def test_files_written_together_are_all_there_or_none(tmp_path: Path) -> None:
    tables = [pa.table({"v": [n, n + 1]}) for n in range(20)]
    files = [(tmp_path / f"{n}.arrow", table) for n, table in enumerate(tables)]
    metas = write_together(files)
    assert [open_arrow(m.path, m.checksum) for m in metas] == tables
    assert sorted(tmp_path.iterdir()) == sorted(path for path, _ in files)
    again = [(tmp_path / f"again-{n}.arrow", table) for n, table in enumerate(tables)]
    again[7] = (tmp_path / "nowhere" / "7.arrow", tables[7])
    with pytest.raises(MillpondError, match="STORE-603"):
        write_together(again)
    assert sorted(tmp_path.iterdir()) == sorted(path for path, _ in files)
    assert write_together([]) == []
