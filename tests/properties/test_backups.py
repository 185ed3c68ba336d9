"""A store that is restored answers and delivers as its original did when it was backed up."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings

sys.path.insert(0, str(Path(__file__).parent))

from test_scripts import FEW, declare, fetched, invoked, play
from tests.tools.random_scripts import Script, scripts

from millpond.runtime.spark.checkpoint import cut_back
from millpond.state.backup.backup import backup_store
from millpond.state.backup.restore import restore_store
from millpond.state.check_and_repair.check import check_store
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock


def look(pond: Any, script: Script) -> list[Any]:
    """Every answer at every instant, and all changes there are."""
    names = [f"q{number}" for number in range(len(script.queries))]
    answers = [invoked(pond, name, at) for name in names for at in (None, *script.instants)]
    return [answers, [fetched(pond, name, 0) for name in names]]


def run(script: Script, root: Path, every: int) -> None:
    """Play a script with a backup after every so many events; restore each."""
    clock = ManualClock()
    pond = open_local(root / "store", clock)
    seen: dict[int, list[Any]] = {}
    try:
        declare(pond, script)
        for number, event in enumerate((*script.events, "backup")):
            if event == "reopen":
                pond.close()
                pond = open_local(root / "store", clock)
            elif event != "backup":
                play(pond, event)
            if number % every == 0 or event == "backup":
                before = look(pond, script)
                kept = backup_store(root / "store", root / "backups", link=number % 2 == 0)
                seen[kept.epoch] = before
        for epoch, before in seen.items():
            to = root / f"epoch-{epoch}"
            done = restore_store(root / "backups", to, epoch=epoch, cut_checkpoint=cut_back)
            assert (done.damage, done.stopped) == ([], [])
            assert check_store(to).is_whole
            with open_local(to, clock) as restored:
                assert look(restored, script) == before, f"epoch {epoch}\n{script}"
    finally:
        pond.close()


@settings(FEW, max_examples=3)
@given(scripts())
def test_restored_stores_answer_as_the_original_did(script: Script) -> None:
    with TemporaryDirectory(prefix="millpond-backups-") as directory:
        run(script, Path(directory), every=5)


@pytest.mark.slow
@settings(FEW, max_examples=60)
@given(scripts(most_queries=5))
def test_many_restored_stores_answer_as_the_original_did(script: Script) -> None:
    with TemporaryDirectory(prefix="millpond-backups-") as directory:
        run(script, Path(directory), every=2)
