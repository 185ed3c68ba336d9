"""A pond is killed while its sink appends to a Delta table: every change is in the table once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

deltalake = pytest.importorskip("deltalake")

LIFE = Path(__file__).parent / "delta_life.py"


def command(folder: Path, rows: int) -> list[str]:
    return [sys.executable, str(LIFE), str(folder / "store"), str(folder / "table"), str(rows)]


def in_table(folder: Path) -> list[int]:
    table = deltalake.DeltaTable(str(folder / "table")).to_pyarrow_table()
    return sorted(table["v"].to_pylist())


@pytest.mark.parametrize("point", ["sink.after_send:2", "sink.before_send:2"])
def test_killed_around_a_delivery(tmp_path: Path, point: str) -> None:
    settings = {**os.environ, "MILLPOND_FAIL_POINT": point}
    killed = subprocess.run(command(tmp_path, 8), env=settings, timeout=300)
    assert killed.returncode == -9
    assert subprocess.run(command(tmp_path, 8), timeout=300).returncode == 0
    assert in_table(tmp_path) == list(range(7))


@pytest.mark.slow
def test_killed_thirty_times_at_any_moment(tmp_path: Path) -> None:
    """Each process does a little more than the one before it, and is killed on the way."""
    chance = random.Random(17)
    for number in range(30):
        rows = 40 * (number + 1)
        with subprocess.Popen(
            command(tmp_path, rows), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0.0, 0.8))
            process.kill()
    assert subprocess.run(command(tmp_path, 1_201), timeout=600).returncode == 0
    assert in_table(tmp_path) == list(range(1_200))
