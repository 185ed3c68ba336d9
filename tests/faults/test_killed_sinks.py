"""A pond is killed while its sink delivers: what was under way comes again under its own id."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.service.sinks.receiver import KEY, receiving

from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

LIFE = Path(__file__).parent / "sink_life.py"
#: Six elements come; up to the last final instant five of them are there, and leave again.
CHANGES = 10

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["sink.before_send", "sink.after_send"])
@pytest.mark.parametrize("hit", [1, 3])
def test_killed_at(name: str, hit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        command = [sys.executable, str(LIFE), str(tmp_path / "store"), receiver.url, str(CHANGES)]
        settings = {**os.environ, "HOOK_KEY": KEY.decode()}
        killed = subprocess.run(
            command, env={**settings, "MILLPOND_FAIL_POINT": f"{name}:{hit}"}, timeout=120
        )
        assert killed.returncode == -9
        before = list(receiver.ids)
        assert len(before) == (hit if name == "sink.after_send" else hit - 1)
        done = subprocess.run(command, env=settings, timeout=120)
        assert done.returncode == 0
        if name == "sink.after_send":
            assert receiver.ids[hit] == before[-1]
        numbers = list(dict.fromkeys(int(id.rpartition(".")[2]) for id in receiver.ids))
        assert numbers == list(range(1, len(numbers) + 1))
        by_id = {body["delivery"]: body["changes"] for body in receiver.bodies}
        assert all(by_id[body["delivery"]] == body["changes"] for body in receiver.bodies)
        monkeypatch.setenv("HOOK_KEY", KEY.decode())
        with open_local(tmp_path / "store", clock=ManualClock(1_772_366_400_000_000)) as pond:
            fetched = [(c.sign, c.row[0]) for c in pond.query("q").fetch()]
        assert [(sign, row["v"]) for _, _, sign, row in receiver.changes()] == fetched
        assert len(fetched) == CHANGES
