"""Killed anywhere, reopened: what was said is there, and nothing is half there.

`killed_pond.py` leaves one store for every fail point and every time a small pond's life reaches
it. Each is reopened and must be the state after one of the life's epochs: the last one a client was
told of, or the one after it.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.state import fail_points
from millpond.state.arrow_file import open_arrow
from millpond.state.inbox.push_file import read_push
from millpond.state.store import Store

STATE = Path(fail_points.__file__).parent

#: After each epoch of the life: slots, values in each segment, matches, the greatest timestamp.
HISTORY = {
    0: (0, [], 0, None),
    1: (0, [], 0, None),
    2: (1, [], 0, None),
    3: (1, [[10], [11]], 2, 11),
    4: (1, [[10], [11], [12]], 3, 12),
    5: (1, [[10, 11, 12]], 0, 12),
    6: (1, [], 0, 12),
}

#: The pushes an epoch has taken out of the inbox.
ABSORBED = {0: 0, 1: 0, 2: 0, 3: 2, 4: 3, 5: 3, 6: 3}


def live(directory: Path, *how: str) -> Path:
    """Have all lives lived in a directory; return it."""
    script = str(Path(__file__).parent / "killed_pond.py")
    subprocess.run([sys.executable, script, str(directory), *how], check=True, timeout=240)
    return directory


@pytest.fixture(scope="module")
def lives(tmp_path_factory) -> Path:
    return live(tmp_path_factory.mktemp("lives"))


@pytest.fixture(scope="module")
def shared_lives(tmp_path_factory) -> Path:
    return live(tmp_path_factory.mktemp("shared"), "shared")


def said(store: Path) -> tuple[int, dict[int, int]]:
    """The last epoch and the pushes (number to value) clients of a store were told of."""
    file = Path(f"{store}.said")
    lines = file.read_text().splitlines() if file.exists() else []
    epochs = [int(line.split()[1]) for line in lines if line.startswith("epoch")]
    pushes = [line.split()[1:] for line in lines if line.startswith("push")]
    return max(epochs, default=0), {int(number): int(value) for number, value in pushes}


def check(directory: Path, other: Path | None = None) -> None:
    """Check what is found by opening a store again, or its shared store from another directory."""
    last, acknowledged = said(directory)
    shared = None if other is None else f"{directory}.shared"
    with Store.open(other or directory, shared=shared) as store:
        version = store.log.version
        assert store.problems == []
        assert version.epoch in (last, last + 1)
        slots, segments, matches, high = HISTORY[version.epoch]
        assert version.names() == ["flights", "late"][: min(version.epoch, 2)]
        assert len(version.slots(1)) == slots
        assert len(version.leaves(2)) == slots
        assert version.clock(1).high == high
        refs = version.segments(1)
        tables = [open_arrow(store.directory / ref.path, ref.checksum) for ref in refs]
        assert [table.column("n").to_pylist() for table in tables] == segments
        assert sum(len(version.matches(ref.id)) for ref in refs) == matches
        assert store.log.is_committed("inbox", 0) == (version.epoch >= 3)
        assert store.log.is_committed("inbox", 1) == (version.epoch >= 4)

        if other is None:
            files = {
                store.relative_path(file)
                for kind in ("segments", "matches", "rejects", "relations")
                for file in (directory / kind).iterdir()
            }
            assert files == version.paths().keys()

        absorbed = ABSORBED[version.epoch]
        pending = {row.number: row for row in store.inbox.list_pending()}
        must = {number for number in acknowledged if number > absorbed}
        assert must <= pending.keys() <= {*must, len(acknowledged) + 1}
        for number, row in pending.items():
            pushed = read_push(store.inbox.path(number))
            assert (pushed.number, pushed.stream_id) == (number, 1)
            assert pushed.table.column("n").to_pylist() == [row.high] == [9 + number]
        for number, value in acknowledged.items():
            again = store.inbox.receipt(1, f"k{value}", "f")
            assert (again.number, again.duplicate) == (number, True)
        assert not list((store.directory / "inbox").glob(".*"))
        assert store.log.next_id() > max(version.ids.values(), default=0)


def test_an_uninterrupted_life_is_as_written_down(lives):
    assert said(lives / "whole")[0] == max(HISTORY)
    check(lives / "whole")


#: Points that this life does not come by: tests of migrations, sinks and backups do.
ELSEWHERE = ("migration", "sink.", "backup.")


PASSED = [n for n in fail_points.FAIL_POINTS if not any(part in n for part in ELSEWHERE)]


def killed_at(lives: Path, name: str) -> list[Path]:
    return [d for digits in ("?", "??") for d in sorted(lives.glob(f"{name}:{digits}"))]


@pytest.mark.parametrize("name", PASSED)
def test_killed_at(lives, name):
    killed = killed_at(lives, name)
    assert killed, "the life does not come by here"
    for directory in killed:
        check(directory)


@pytest.mark.parametrize("name", [n for n in PASSED if n != "journal.before_sync"])
def test_killed_at_and_taken_over_by_another_driver(shared_lives, tmp_path, name):
    killed = killed_at(shared_lives, name)
    assert killed, "the life does not come by here"
    for directory in killed:
        check(directory, tmp_path / directory.name)
        check(directory, tmp_path / directory.name)
        check(directory, directory)  # and the first one is back


def test_reopening_a_recovered_store_changes_nothing(lives):
    directory = lives / "epoch.after_commit:3"
    check(directory)
    check(directory)


def test_every_fail_point_in_the_code_is_listed_and_every_listed_one_is_there():
    reached = {
        name
        for file in STATE.parent.rglob("*.py")
        for name in re.findall(r'reach\("([a-z_.]+)"\)', file.read_text())
    }
    assert reached == fail_points.FAIL_POINTS.keys()


def test_a_fail_point_must_exist():
    with pytest.raises(ValueError, match="no fail point"):
        fail_points.arm("nowhere:1")
