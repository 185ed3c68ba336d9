"""A store with checkpoints of Spark is repaired, or restored: its sources go on, or say why not."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millpond.runtime.spark.checkpoint import cut_back
from millpond.state.backup.backup import backup_store
from millpond.state.backup.kept import list_kept
from millpond.state.backup.restore import restore_store
from millpond.state.check_and_repair.repair import repair_store

pytestmark = pytest.mark.spark

BATCHES = 5
#: Spark compacts a source's log at each tenth batch.
MANY = 13
COUNT = "SELECT count(*), count(DISTINCT n), sum(n) FROM s"


def write(folder: Path, number: int) -> None:
    (folder / f".{number}").write_text(f"{number}\n")
    (folder / f".{number}").rename(folder / f"{number}.csv")


def live(open_store: Callable[..., Any], folder: Path) -> None:
    """Read a file a batch, with a pushed stream beside it, and close the store."""
    folder.mkdir()
    pond = open_store()
    pond.execute(
        f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}');"
        "CREATE STREAM pushed (n BIGINT)"
    )
    for number in range(BATCHES):
        write(folder, number)
        pond.ingest("pushed", [{"n": number}])
        pond.catch_up(timeout=120)
    assert pond.ask(COUNT).rows() == [(BATCHES, BATCHES, 10)]
    pond.close()


def test_nothing_is_lost_when_the_journal_says_all(
    open_store: Callable[..., Any], tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    live(open_store, tmp_path / "in")
    (tmp_path / "store" / "pond.db").unlink()
    # A process that was killed leaves its sockets and scratch files.
    scratch = tmp_path / "store" / "checkpoints" / ".scratch-0"
    scratch.mkdir()
    with socket.socket(socket.AF_UNIX) as left, contextlib.chdir(scratch):
        left.bind("worker.sock")  # the whole path may be longer than a socket's may be
    done = repair_store(tmp_path / "store", tmp_path / "repaired")
    assert (done.lost, done.damage) == ([], [])
    assert not list((tmp_path / "repaired" / "checkpoints").glob(".scratch-*"))

    write(tmp_path / "in", BATCHES)
    pond = open_store("repaired")
    eventually(lambda: pond.ask(COUNT).rows() == [(6, 6, 15)])
    assert pond.ask("SELECT count(*) FROM pushed").rows() == [(BATCHES,)]
    pond.ingest("pushed", [{"n": 9}])
    pond.catch_up(timeout=120)
    assert pond.ask(COUNT).rows() == [(6, 6, 15)]
    assert pond.ask("SELECT count(*) FROM pushed").rows() == [(BATCHES + 1,)]
    assert pond.status()["problems"] == []


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0.35, 0.6, 0.8])
def test_a_source_whose_batches_are_lost_stops_and_says_so(
    open_store: Callable[..., Any], tmp_path: Path, eventually: Callable[..., Any], kept: float
) -> None:
    live(open_store, tmp_path / "in")
    (tmp_path / "store" / "pond.db").unlink()
    log = max((tmp_path / "store" / "journal").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[int(len(data) * kept)] ^= 0xFF
    log.write_bytes(data)
    done = repair_store(tmp_path / "store", tmp_path / "repaired")
    assert "behind record" in done.lost[0]
    pond = open_store("repaired")
    before = pond.ask(COUNT).rows()[0]
    assert before[0] < BATCHES
    write(tmp_path / "in", BATCHES)

    def outcome() -> Any:
        (stream,) = (s for s in pond.status()["streams"] if s["name"] == "s")
        whole = pond.ask(COUNT).rows() == [(6, 6, 15)]  # only the last batch was lost
        return stream["reason"] if stream["state"] == "stopped" else whole

    said = eventually(outcome)
    if said is not True:
        assert "checkpoint" in said
        assert pond.ask(COUNT).rows()[0] == before
    columns = f"s (n BIGINT) USING csv OPTIONS (path '{tmp_path / 'in'}')"
    pond.execute(f"DROP STREAM s; CREATE STREAM {columns}")
    eventually(lambda: pond.ask(COUNT).rows() == [(6, 6, 15)])


@pytest.mark.slow
def test_sources_read_on_from_the_batch_of_the_backup(
    open_store: Callable[..., Any], tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pond = open_store()
    pond.execute(f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}')")
    for number in range(MANY):
        write(folder, number)
        pond.catch_up(timeout=120)
        if number in (0, 5):
            backup_store(tmp_path / "store", tmp_path / "b")
    pond.close()
    everything = (MANY, MANY, sum(range(MANY)))
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
    for number in range(MANY):
        write(folder, number)
        pond.catch_up(timeout=120)
        if number == MANY - 3:
            kept = backup_store(tmp_path / "store", tmp_path / "b")
    last = backup_store(tmp_path / "store", tmp_path / "late")
    pond.close()
    ahead = tmp_path / "late" / "checkpoints" / f"{last.record:012d}.tar"
    ahead.rename(tmp_path / "b" / "checkpoints" / f"{kept.record:012d}.tar")
    done = restore_store(tmp_path / "b", tmp_path / "restored", cut_checkpoint=cut_back)
    assert (done.damage, done.stopped) == ([], [])
    pond = open_store("restored")
    eventually(lambda: pond.ask(COUNT).rows() == [(MANY, MANY, sum(range(MANY)))])
    assert pond.status()["problems"] == []
