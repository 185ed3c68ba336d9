"""How much of a disk stays free."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.state import disk_floor
from millpond.state.arrow_file import write_arrow
from millpond.state.disk_floor import DISK_FLOOR, DiskRoom, measure_room


def test_the_variable_says_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DISK_FLOOR, raising=False)
    assert disk_floor.disk_floor(1 << 40) == 1 << 30
    assert disk_floor.disk_floor(20 << 20) == 1 << 20
    for given, expected in (("512m", 512 << 20), (" 3G ", 3 << 30), ("0", 0)):
        monkeypatch.setenv(DISK_FLOOR, given)
        assert disk_floor.disk_floor(1 << 40) == expected
    for wrong in ("", "0g", "-1g", "lots", "4", "4t", "00"):
        monkeypatch.setenv(DISK_FLOOR, wrong)
        with pytest.raises(MillpondError, match="CQL-214"):
            disk_floor.disk_floor(1 << 40)


@pytest.mark.parametrize(("free", "is_written"), [(5_000_000, True), (1_050_000, False)])
def test_a_file_is_written_only_above_the_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_written: bool
) -> None:
    monkeypatch.setenv(DISK_FLOOR, "1m")
    found = SimpleNamespace(f_frsize=1, f_blocks=10_000_000, f_bavail=free)
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    rows = pa.table({"n": list(range(1_000))})
    if is_written:
        assert write_arrow(tmp_path / "a.arrow", rows).rows == 1_000
        return
    with pytest.raises(MillpondError, match="STORE-603") as raised:
        write_arrow(tmp_path / "a.arrow", rows)
    assert "8,000 bytes; 1,050,000 are free" in str(raised.value.detail)
    assert list(tmp_path.iterdir()) == []


def test_what_is_said_before_the_disk_is_full_and_then() -> None:
    plenty, scarce, none = (DiskRoom(free, 100) for free in (300, 299, 99))
    assert [room.is_scarce for room in (plenty, scarce, none)] == [False, True, True]
    assert [room.is_used_up for room in (plenty, scarce, none)] == [False, False, True]
    assert "nearly full" in scarce.explain().primary
    assert "too full" in none.explain().primary


def test_a_directory_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        measure_room(tmp_path / "away")
