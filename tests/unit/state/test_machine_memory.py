"""What a container may have counts, where it is less than the machine's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.state import machine_memory


def test_a_container_may_have_less_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_memory.find_memory_limit()
    assert machine > 0
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine_memory, "_LIMITS", (limit,))
    most = machine_memory.find_memory_limit()
    for text, expected in (("max\n", most), ("1000000\n", 1_000_000)):
        limit.write_text(text)
        assert machine_memory.find_memory_limit() == expected
