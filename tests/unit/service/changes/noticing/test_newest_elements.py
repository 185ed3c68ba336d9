"""The newest elements are those of the last segments, in the order of timestamps and arrival."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.service.versions import segment

from millpond.service.changes.noticing import newest_elements
from millpond.service.changes.noticing.newest_elements import read_newest
from millpond.state.version import SegmentRef

HELD = {1: [(0, "a"), (5, "b")], 2: [(3, "c"), (7, "d"), (9, "e")], 3: [(7, "f"), (9, "g")]}


class Opened:
    def __init__(self) -> None:
        self.opened: list[int] = []

    def segment(self, ref: SegmentRef) -> Any:
        self.opened.append(ref.id)
        ts, v = zip(*HELD[ref.id], strict=True)
        return SimpleNamespace(table=pa.table({"__ts": ts, "v": v, "other": v}))


def test_the_newest_are_read_and_no_more_segments_than_needed() -> None:
    segments = [segment(1, r[0][0], r[-1][0], id=i, rows=len(r)) for i, r in HELD.items()]
    for wanted, opened, values in ((4, [3, 2], "dfeg"), (9, [3, 2, 1], "acbdfeg"), (2, [3], "fg")):
        files: Any = Opened()
        found = read_newest(files, segments, wanted, ["v"])
        assert "".join(found["v"].to_pylist()) == values
        assert (found.column_names, files.opened) == (["__ts", "v"], opened)
    assert read_newest(Opened(), segments, 2).column_names == ["__ts", "v", "other"]  # type: ignore[arg-type]
    assert read_newest(Opened(), [], 2).num_rows == 0  # type: ignore[arg-type]


def test_of_large_elements_few_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    segments = [segment(1, r[0][0], r[-1][0], id=i, rows=len(r)) for i, r in HELD.items()]
    for size, values in ((20, "g"), (45, "feg"), (10_000, "acbdfeg")):
        monkeypatch.setattr(newest_elements, "_MOST_BYTES", size)
        files: Any = Opened()
        found = read_newest(files, segments, 9, ["v"])
        assert "".join(found["v"].to_pylist()) == values
