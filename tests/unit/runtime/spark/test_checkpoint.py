"""Damaged checkpoints are found before Spark goes on from them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.tools.founded_place import founded_place

from millpond.errors import MillpondError
from millpond.runtime.spark.checkpoint import Checkpoint, cut_back, note_once
from millpond.state.file_share import share_directory, unshare_directory
from millpond.state.shared.place_share import PlaceShare

NEEDED = ["metadata", "offsets/11", "sources/0/9.compact", "sources/0/10", "sources/0/11"]


def write(folder: Path, batch: int) -> None:
    """What Spark has written when it gives Millpond a batch of files."""
    for name in ("offsets", "sources/0", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    if not (folder / "metadata").exists():
        (folder / "metadata").write_text('{"id":"one"}')
    (folder / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"logOffset":{batch}}}')
    name = f"{batch}.compact" if batch % 10 == 9 else str(batch)
    (folder / "sources" / "0" / name).write_text(f'v1\n{{"path":"{batch}.csv"}}')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of twelve batches, the last of which is part of an epoch."""
    checkpoint = Checkpoint(tmp_path / "stream-3", "s")
    checkpoint.check(-1)
    for batch in range(12):
        write(checkpoint.folder, batch)
        checkpoint.note_batch(batch)
        (checkpoint.folder / "commits" / str(batch)).write_text("v1\n{}")
    return checkpoint.folder


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def check(folder: Path, last: int = 11) -> str:
    with pytest.raises(MillpondError, match="STORE-602") as raised:
        Checkpoint(folder, "s").check(last)
    assert raised.value.primary == 'the checkpoint of stream "s" is damaged'
    assert "checkpoints/stream-3" in str(raised.value.detail)
    return str(raised.value.detail)


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("damage", [Path.unlink, empty, cut])
def test_every_file_a_batch_rests_on(
    folder: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(folder / name)
    assert name in check(folder)


def test_a_whole_one(folder: Path) -> None:
    Checkpoint(folder, "s").check(11)
    # Killed between the note and the epoch; then before the next note.
    Checkpoint(folder, "s").check(10)
    write(folder, 12)
    Checkpoint(folder, "s").check(11)


def test_the_whole_folder_is_gone(folder: Path) -> None:
    shutil.rmtree(folder)
    assert "offsets/11 is missing" in check(folder)
    Checkpoint(folder, "s").check(-1)


@pytest.mark.parametrize("damage", [empty, cut])
def test_the_note(folder: Path, damage: Callable[[Path], None]) -> None:
    damage(folder / "millpond.json")
    assert "millpond.json" in check(folder)
    Checkpoint(folder, "s").check(-1)


def test_a_folder_and_a_store_of_different_times(folder: Path) -> None:
    assert "batch 11, and the store to batch 12" in check(folder, 12)
    assert "batch 11, and the store to batch 9" in check(folder, 9)


def test_checkpoints_without_a_note(folder: Path) -> None:
    """Earlier versions wrote none."""
    (folder / "millpond.json").unlink()
    Checkpoint(folder, "s").check(11)
    (folder / "offsets" / "11").unlink()
    assert "offsets/11" in check(folder)


@pytest.mark.parametrize("last", [10, 11])
def test_a_checkpoint_is_cut_to_a_batch_of_before(folder, last):
    (folder / "offsets" / f".{last + 1}.crc").write_text("")
    write(folder, 12)  # begun, and not noted
    assert cut_back(folder, last)
    for name in ("offsets", "commits", "sources/0"):
        numbers = [int(f.name.removesuffix(".compact")) for f in (folder / name).glob("[0-9]*")]
        assert max(numbers) == last
    assert not list((folder / "offsets").glob(".*"))
    Checkpoint(folder, "s").check(last)


@pytest.mark.parametrize("gone", ["offsets/7", "sources/0/7", "sources/0/3"])
def test_a_checkpoint_is_not_cut_to_a_batch_it_has_forgotten(folder, gone):
    (folder / gone).unlink()
    assert not cut_back(folder, 7)


def test_a_checkpoint_without_batches_begins_anew(folder):
    (folder / "begins.json").write_text("{}")
    assert cut_back(folder, -1)
    assert sorted(file.name for file in folder.iterdir()) == ["begins.json", "metadata"]
    Checkpoint(folder, "s").check(-1)


class TwoMachines:
    """One shared store and the folders of two drivers that lead it in turn."""

    def __init__(self, base: Path) -> None:
        self.place, self.base, self.term = founded_place(base / "shared"), base, 0

    def lead(self, name: str) -> Path:
        """Have that machine lead; return its folder of the checkpoint."""
        self.term += 1
        directory = self.base / name
        share_directory(directory, PlaceShare(directory, self.place, lambda: self.term))
        return directory / "checkpoints" / "stream-3"


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[TwoMachines]:
    yield TwoMachines(tmp_path)
    for name in "ab":
        unshare_directory(tmp_path / name)


def test_another_driver_goes_on_from_the_batch_that_was_committed(machines: TwoMachines) -> None:
    first = Checkpoint(machines.lead("a"), "s")
    first.check(-1)
    for batch in range(8):
        write(first.folder, batch)
        first.note_batch(batch)
    # Batch 7 was noted, and its driver died before it was part of an epoch.
    second = Checkpoint(machines.lead("b"), "s")
    second.check(6)
    assert sorted(p.name for p in (second.folder / "offsets").iterdir()) == ["5", "6"]
    assert sorted(p.name for p in (second.folder / "sources/0").iterdir()) == list("0123456")
    (second.folder / "offsets/7").write_text('v1\n{}\n{"logOffset":99}')
    second.note_batch(7)
    # The first machine is back, with files of its own that came to nothing.
    third = Checkpoint(machines.lead("a"), "s")
    third.check(7)
    assert (third.folder / "offsets/7").read_text().endswith("99}")


def test_another_driver_begins_anew_where_no_batch_was_committed(machines: TwoMachines) -> None:
    first = Checkpoint(machines.lead("a"), "s")
    write(first.folder, 0)
    first.note_batch(0)
    again = Checkpoint(machines.lead("a"), "s")
    again.check(-1)
    assert not (again.folder / "offsets").exists()


def test_a_batch_whose_note_is_gone_is_damage(machines: TwoMachines) -> None:
    machines.lead("a")
    where = f"the shared store has at {machines.place.url}/files/checkpoints/stream-3"
    assert check(machines.lead("b"), 3) == (
        f"In checkpoints/stream-3, which {where}: offsets/3 is missing. "
        "The stream has stopped, because rows could be left out or come twice."
    )


def test_the_shared_copy_keeps_the_last_batches(machines: TwoMachines) -> None:
    checkpoint = Checkpoint(machines.lead("a"), "s")
    for batch in range(30):
        write(checkpoint.folder, batch)
        checkpoint.note_batch(batch)
    keys = machines.place.list_keys("files/checkpoints/stream-3/")
    notes = [key for key in keys if "/note-" in key]
    assert len(notes) == 4
    assert len([key for key in keys if "/offsets/" in key]) == 5


def test_a_place_that_was_noted_once_is_known_to_the_next_driver(machines: TwoMachines) -> None:
    assert note_once(machines.lead("a"), "start.json", lambda: {"0": 7}) == {"0": 7}
    assert note_once(machines.lead("b"), "start.json", lambda: {"0": 9}) == {"0": 7}
