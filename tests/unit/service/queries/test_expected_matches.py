"""`service/queries/expected_matches.py`: what matches take is known before they are there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.service.queries import expected_matches
from millpond.state.disk_floor import DiskRoom
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
ROWS = 40_000
WIDE = [f"SELECT v FROM s WHERE v > {ROWS // 2 + number}" for number in range(600)]
SELECTIVE = [f"SELECT v FROM s WHERE v = {number}" for number in range(600)]


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Any]:
    """40,000 kept elements; numbers from 0 on, in no order."""
    with open_local(tmp_path / "store", clock=ManualClock(10_000 * SECOND)) as made:
        made.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
        for part in range(4):
            places = range(part * ROWS // 4, (part + 1) * ROWS // 4)
            stamps = pa.array([place * 1000 for place in places], pa.timestamp("us"))
            values = pa.array([place * 7919 % ROWS for place in places], pa.int32())
            made.ingest("s", pa.table({"ts": stamps, "v": values}))
        made.catch_up()
        yield made


def leave_free(patch: pytest.MonkeyPatch, free: int, floor: int) -> None:
    patch.setattr(expected_matches, "measure_room", lambda directory: DiskRoom(free, floor))


def test_matches_that_take_much_are_told_of(
    pond: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leave_free(monkeypatch, 20_000_000, 1_000_000)
    with caplog.at_level(logging.WARNING, "millpond.queries"):
        pond.register_many(WIDE)
    [warning] = [r.getMessage() for r in caplog.records if r.name == "millpond.queries"]
    assert "600 new predicates match of 40,000 kept elements" in warning
    pond.wait_until_matched()
    written = sum(file.stat().st_size for file in (tmp_path / "store").glob("matches/**/*"))
    told = int(warning.split("about ")[1].split(" bytes")[0].replace(",", ""))
    assert 0.8 * written < told < 1.2 * written


def test_selective_queries_are_not_told_of(
    pond: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leave_free(monkeypatch, 20_000_000, 19_000_000)
    with caplog.at_level(logging.WARNING, "millpond.queries"):
        pond.register_many(SELECTIVE)
    assert not [r for r in caplog.records if r.name == "millpond.queries"]


def test_matches_that_do_not_fit_are_refused(pond: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_free(monkeypatch, 20_000_000, 18_000_000)
    with pytest.raises(MillpondError, match="does not fit on the disk") as refused:
        pond.register_many(WIDE)
    assert refused.value.code == "STORE-603"
    assert not pond.queries()
    # What is matched when it is asked writes nothing, and neither does a floor of nothing refuse.
    pond.register(WIDE[0], "asked", materialize="none")
    leave_free(monkeypatch, 2_000_000, 0)
    pond.register_many(WIDE)


def test_few_queries_are_not_looked_at(pond: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_free(monkeypatch, 20_000_000, 18_000_000)
    monkeypatch.setattr(expected_matches, "match", None)
    pond.register_many(WIDE[:100])
