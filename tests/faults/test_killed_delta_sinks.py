"""Who appends to a Delta table is killed, or stands still: every change is in the table once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.faults.delta_life import delivery, sender_of
from tests.waiting import wait_until

deltalake = pytest.importorskip("deltalake")

LIFE = Path(__file__).parent / "delta_life.py"


def command(folder: Path, rows: int) -> list[str]:
    return [sys.executable, str(LIFE), str(folder / "store"), str(folder / "table"), str(rows)]


def in_table(folder: Path) -> list[int]:
    table = deltalake.DeltaTable(str(folder / "table")).to_pyarrow_table()
    return sorted(table["v"].to_pylist())


def stands_still(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


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


@pytest.mark.parametrize("rounds", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_a_zombie_commits_nothing(tmp_path: Path, rounds: int) -> None:
    """It stands still at any moment, also in the middle of a commit, while another takes over."""
    chance = random.Random(31)
    for number in range(rounds):
        table = tmp_path / f"t{number}" / "table"
        life = [sys.executable, str(LIFE), str(table)]
        with subprocess.Popen(life, stdout=subprocess.PIPE, text=True) as zombie:
            assert zombie.stdout is not None
            try:
                last = int(zombie.stdout.readline())
                time.sleep(chance.uniform(0.0, 0.2))
                zombie.send_signal(signal.SIGSTOP)
                state = Path(f"/proc/{zombie.pid}/stat")
                wait_until(
                    lambda state=state: state.read_text().rpartition(")")[2].split()[0] == "T"
                )
                os.set_blocking(zombie.stdout.fileno(), False)
                while line := zombie.stdout.readline():
                    last = int(line)
                os.set_blocking(zombie.stdout.fileno(), True)
                # Whether the zombie has committed the one behind the last, nobody knows.
                other = sender_of(str(table), done=last)
                for more in range(last + 1, last + 4):
                    other.send(delivery(more))
                zombie.send_signal(signal.SIGCONT)
                said = zombie.stdout.read().splitlines()
            finally:
                zombie.kill()
        assert said[-1] == "True another Millpond has taken this sink over"
        assert said[:-1] in ([], [str(last + 1)])
        assert in_table(table.parent) == list(range(1, last + 4))
