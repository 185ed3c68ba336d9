"""The cluster on loopback: how long its processes are waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millpond.demo.cluster import _await


def wait_for(script: str, log: Path, seconds: float) -> None:
    """Wait until the script says that it is up."""
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-uc", script], stdout=out)
    try:
        _await(process, lambda: "up" in log.read_text(), log, seconds)
    finally:
        process.kill()
        process.wait()


def test_a_process_that_goes_on_saying_something_is_waited_for(tmp_path: Path) -> None:
    script = "import time\nfor n in range(12):\n print(n); time.sleep(0.5)\nprint('up')"
    wait_for(script, tmp_path / "log", 4)


@pytest.mark.parametrize("script", ["import time; print('busy'); time.sleep(60)", "print('over')"])
def test_one_that_says_nothing_more_or_ends_is_not(tmp_path: Path, script: str) -> None:
    with pytest.raises(RuntimeError, match=r"busy|over"):
        wait_for(script, tmp_path / "log", 2)
