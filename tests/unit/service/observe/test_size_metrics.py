"""Sizes: files by directory, memory by kind, and the heap that the runtime tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.service.conftest import components_of, rows

from millpond.runtime.process_memory import RuntimeMemory
from millpond.service.observe.size_metrics import measure_files
from millpond.service.pond import Pond


def read(pond: Pond, name: str, **labels: str) -> float | None:
    found: float | None = pond.metrics.get_sample_value(f"millpond_{name}", labels)
    return found


def test_files_by_directory(tmp_path: Path) -> None:
    (tmp_path / "pond.db").write_bytes(b"1234")
    (tmp_path / "LOCK").write_bytes(b"1")
    (tmp_path / "segments" / "deep").mkdir(parents=True)
    (tmp_path / "segments" / "a").write_bytes(b"12")
    (tmp_path / "segments" / "deep" / "b").write_bytes(b"123")
    (tmp_path / "segments" / "link").symlink_to(tmp_path)
    sizes = measure_files(tmp_path)
    assert sizes.pop("segments") - 5 == os.lstat(tmp_path / "segments" / "link").st_size
    assert sizes == {"database": 5}
    assert measure_files(tmp_path / "nothing") == {}


def test_a_pond_tells_its_sizes(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    pond.ingest("s", rows(1, 2, 3))
    pond.catch_up()
    assert (read(pond, "disk_bytes", kind="segments") or 0) > 0
    assert (read(pond, "disk_bytes", kind="database") or 0) > 0
    assert (read(pond, "memory_bytes", kind="process") or 0) > 10_000_000
    assert read(pond, "memory_bytes", kind="operators") == 0
    assert read(pond, "jvm_heap_bytes") is None
    measured = RuntimeMemory({"jvm": 7, "workers": 8}, (3, 5))
    monkeypatch.setattr(components_of(pond).runtime, "measure_memory", lambda: measured)
    assert read(pond, "memory_bytes", kind="jvm") == 7
    assert read(pond, "memory_bytes", kind="workers") == 8
    assert (read(pond, "jvm_heap_bytes"), read(pond, "jvm_heap_limit_bytes")) == (3, 5)
