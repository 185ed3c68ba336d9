"""A store that reads files is backed up while it does; what is restored reads on, each row once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millpond.runtime.spark.checkpoint import cut_back
from millpond.state.backup.backup import backup_store
from millpond.state.backup.kept import list_kept
from millpond.state.backup.restore import restore_store

pytestmark = pytest.mark.spark

COUNT = "SELECT count(*), count(DISTINCT n), coalesce(sum(n), 0) FROM s"
#: Spark compacts a source's log at each tenth batch.
BATCHES = 13


def write(folder: Path, number: int) -> None:
    (folder / f".{number}").write_text(f"{number}\n")
    (folder / f".{number}").rename(folder / f"{number}.csv")


@pytest.mark.slow
def test_sources_read_on_from_the_batch_of_the_backup(
    open_store: Callable[..., Any], tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pond = open_store()
    pond.execute(f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}')")
    for number in range(BATCHES):
        write(folder, number)
        pond.catch_up(timeout=120)
        if number in (0, 5):
            backup_store(tmp_path / "store", tmp_path / "b")
    pond.close()
    everything = (BATCHES, BATCHES, sum(range(BATCHES)))
    for place, kept in enumerate(list_kept(tmp_path / "b")):
        name = f"restored-{place}"
        done = restore_store(
            tmp_path / "b", tmp_path / name, epoch=kept.epoch, cut_checkpoint=cut_back
        )
        assert (done.damage, done.stopped) == ([], [])
        pond = open_store(name)
        eventually(lambda pond=pond: pond.ask(COUNT).rows() == [everything])
        assert pond.status()["problems"] == []
        pond.close()


def test_a_checkpoint_that_ran_ahead_of_the_backup_is_cut(
    open_store: Callable[..., Any], tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """Spark's folder is read after the journal, so it may have batches the backup has not.

    Spark remembers four batches.
    """
    folder = tmp_path / "in"
    folder.mkdir()
    pond = open_store()
    pond.execute(f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}')")
    for number in range(BATCHES):
        write(folder, number)
        pond.catch_up(timeout=120)
        if number == BATCHES - 3:
            kept = backup_store(tmp_path / "store", tmp_path / "b")
    last = backup_store(tmp_path / "store", tmp_path / "late")
    pond.close()
    ahead = tmp_path / "late" / "checkpoints" / f"{last.record:012d}.tar"
    ahead.rename(tmp_path / "b" / "checkpoints" / f"{kept.record:012d}.tar")
    done = restore_store(tmp_path / "b", tmp_path / "restored", cut_checkpoint=cut_back)
    assert (done.damage, done.stopped) == ([], [])
    pond = open_store("restored")
    eventually(lambda: pond.ask(COUNT).rows() == [(BATCHES, BATCHES, sum(range(BATCHES)))])
    assert pond.status()["problems"] == []
