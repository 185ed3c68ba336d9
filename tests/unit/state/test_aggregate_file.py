"""Files of totals: named by their segment and checksum, and removed when their segment is gone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.state import aggregate_file
from millpond.state.aggregate_file import Measured, read_totals, write_totals
from millpond.state.store import Store, new_path
from millpond.synopses.blocked_totals import block_rows, block_values
from millpond.synopses.totals import open_column

SEGMENT = f"segments/{'5' * 32}.arrow"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    Store.open(tmp_path / "store").close()
    return tmp_path / "store"


def write(store: Path) -> Path:
    rows = np.arange(0, 30_000, 2)
    numbers = open_column(pa.array(np.arange(30_000)))
    entries = {
        Measured(3, None): block_rows(rows, 30_000),
        Measured(3, "a"): block_values(rows, numbers),
        Measured(None, "a"): block_values(None, open_column(pa.array([1, None, 3]))),
    }
    path, size = write_totals(new_path(store, "aggregates"), SEGMENT, entries)
    assert size == path.stat().st_size
    found = read_totals(path)
    assert found.keys() == entries.keys()
    for measured, blocks in entries.items():
        upto = blocks.blocks
        assert found[measured].total(0, upto) == blocks.total(0, upto)
    return path


def test_what_was_written_is_read(store: Path) -> None:
    path = write(store)
    assert path.name.startswith(f"{'5' * 32}.")


def test_a_damaged_file_is_found_by_its_name(store: Path) -> None:
    path = write(store)
    damaged = path.with_name(path.name.replace("5" * 32, "6" * 32))
    damaged.write_bytes(path.read_bytes().replace(b"\1", b"\2"))
    with pytest.raises(MillpondError, match="STORE-602"):
        read_totals(damaged)


def test_opening_removes_files_of_segments_that_are_gone(store: Path) -> None:
    path = write(store)
    unfinished = path.with_name(f"{'7' * 32}.arrow")
    unfinished.touch()
    foreign = path.with_name("notes.txt")
    foreign.touch()
    with Store.open(store) as opened:
        assert [str(p) for p in opened.problems if "notes.txt" in str(p)]
    assert not list((store / "aggregates").iterdir())
    assert list((store / "set_aside").rglob("notes.txt"))


def test_a_sketch_of_a_later_version_is_made_again(store: Path) -> None:
    entries = {Measured(3, "a", "approx_other"): block_rows(None, 3)}
    path, _ = write_totals(new_path(store, "aggregates"), SEGMENT, entries)
    with pytest.raises(MillpondError, match="STORE-602"):
        read_totals(path)


@pytest.mark.parametrize("other", [{"duckdb": "0.0.1"}, {"block": "4096"}])
def test_what_another_version_made_is_not_used(
    store: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str]
) -> None:
    """Sketches are of DuckDB's hashes, which may be others; blocks may have another length."""
    own = aggregate_file._SCHEMA.metadata
    older = aggregate_file._SCHEMA.with_metadata({**own, **other})
    with monkeypatch.context() as patch:
        patch.setattr(aggregate_file, "_SCHEMA", older)
        path = write(store)
    assert read_totals(path) == {}
