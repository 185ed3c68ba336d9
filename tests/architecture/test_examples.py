"""How the examples of hypothesis are drawn: the same every time, and others by a seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST = """
from hypothesis import given, settings, strategies as st

@given(st.integers())
@settings(max_examples=5)
def test_it(number):
    print("drawn", number)
"""


def draw_examples(tmp_path: Path, *arguments: str) -> list[str]:
    """The examples of a test that is run by itself, under what all tests share."""
    (tmp_path / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-s", *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    drawn = [line for line in done.stdout.splitlines() if "drawn" in line]
    assert len(drawn) == 5
    return drawn


def test_they_are_the_same_every_time_and_others_by_a_seed(tmp_path: Path) -> None:
    every_day = draw_examples(tmp_path)
    assert draw_examples(tmp_path) == every_day
    assert draw_examples(tmp_path, "--hypothesis-seed", "7") != every_day
