"""A pond that follows parts is killed where results and what waits are written.

With budgets in probes the life goes on as if nothing had been: no result is lost, none comes twice,
and every cursor names the same result.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from parts_life import FOLLOWED
from pond_life import received

pytestmark = pytest.mark.slow

LIFE = Path(__file__).parent / "parts_life.py"
#: Where an advance writes and commits, early and late in the life.
KILLED = [
    "file.before_rename:25",
    "epoch.before_write:30",
    "journal.after_sync:40",
    "epoch.after_commit:20",
]


def test_killed_lives_receive_what_a_whole_one_receives(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, str(LIFE), str(tmp_path), *KILLED],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    told = {name: counts for name, *counts in map(str.split, shown.stdout.splitlines())}
    assert sum(word == "killed" for word, *_ in told.values()) >= 3, told
    cut = set()
    for number, name in enumerate(FOLLOWED):
        whole = _rows(received(tmp_path / "whole", name))
        assert len(whole) > 20
        cursors = [json.loads(line)[0] for line in whole]
        assert cursors == sorted(set(cursors)), name
        for setting, (word, *counts) in told.items():
            found, before = _rows(received(tmp_path / setting, name)), int(counts[number])
            # Row by row: what had come before the kill, and what comes behind it.
            assert found[:before] == whole[:before], (setting, name)
            assert found[before:] == whole[before:], (setting, name)
            if word == "killed" and 0 < before < len(whole):
                cut.add(name)
    assert cut == set(FOLLOWED)  # each was cut in the middle by some kill


def _rows(record: Path) -> list[str]:
    """The changes received: a line each, with its cursor."""
    return record.read_text().splitlines()
