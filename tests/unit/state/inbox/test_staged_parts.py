"""Staged parts: kept until their batch comes, and no longer than a day."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.state.inbox.staged_parts import StagedParts

DAY = 24 * 3_600 * 1_000_000
ROWS = pa.table({"v": [1, 2]})


def test_parts_are_kept_across_restarts_and_replaced_by_name(tmp_path: Path) -> None:
    for rows in (ROWS, ROWS.slice(1)):
        StagedParts(tmp_path).write(7, "a-1", rows, DAY)
    StagedParts(tmp_path).write(8, "a-1", ROWS, DAY)
    assert StagedParts(tmp_path).open(7, ["a-1", "a-1"]) == [ROWS.slice(1)] * 2
    StagedParts(tmp_path).remove(7, ["a-1", "nobody"])
    with pytest.raises(MillpondError, match=r'DATA-504: the part "a-1" of the batch is not there'):
        StagedParts(tmp_path).open(7, ["a-1"])
    assert StagedParts(tmp_path).open(8, ["a-1"]) == [ROWS]


def test_a_part_goes_after_a_day(tmp_path: Path) -> None:
    staged = StagedParts(tmp_path)
    staged.write(7, "old", ROWS, 10 * DAY)
    staged.write(7, "young", ROWS, 10 * DAY + DAY // 2)
    staged.write(7, "new", ROWS, 11 * DAY + 1)
    with pytest.raises(MillpondError, match='"old"'):
        staged.open(7, ["young", "new", "old"])
    assert len(staged.open(7, ["young", "new"])) == 2


@pytest.mark.parametrize("name", ["", "..", "a/b", "ä", "x" * 101])
def test_a_name_cannot_lead_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(MillpondError, match="DATA-501"):
        StagedParts(tmp_path / "inbox").write(7, name, ROWS, DAY)
    assert list(tmp_path.iterdir()) == []
