"""The file that says up to when sources were read, over the end of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.state import read_times
from millpond.state.read_times import NAME, ReadTimes, Times

STORE = "c0ffee"
AWAY = ((20, 30), (40, 60))


def begin(store: Path) -> ReadTimes:
    times = ReadTimes(store, STORE)
    times.begin(Times(100, 9, AWAY))
    return times


def test_what_was_noted_is_found(tmp_path):
    times = begin(tmp_path)
    assert times.before is None
    times.show(500)
    times.note(7, 300)
    times.note(9, 400)
    times.note(7, 450)
    assert ReadTimes(tmp_path, STORE).before == Times(500, 9, AWAY, {7: 450, 9: 400})
    times.close()
    times.close()
    times.show(600)
    times.note(7, 600)
    assert ReadTimes(tmp_path, STORE).before == Times(500, 9, AWAY, {7: 450, 9: 400})


def test_more_streams_than_a_page_has_room_for(tmp_path):
    times = begin(tmp_path)
    read = {id: id * 10 for id in range(1, 2_000)}
    for id, upto in read.items():
        times.note(id, upto)
    times.note(1, 11)
    times.show(99_999)
    assert ReadTimes(tmp_path, STORE).before == Times(99_999, 9, AWAY, read | {1: 11})


def test_only_the_same_store_on_the_same_machine_believes_it(tmp_path, monkeypatch):
    begin(tmp_path).show(5)
    assert ReadTimes(tmp_path, "another").before is None
    assert ReadTimes(tmp_path, None).before is None
    (tmp_path / "boot").write_text("another start of the machine\n")
    monkeypatch.setattr(read_times, "_BOOT", tmp_path / "boot")
    assert ReadTimes(tmp_path, STORE).before is None


def test_where_the_start_of_the_machine_is_not_known_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(read_times, "_BOOT", tmp_path / "missing")
    times = begin(tmp_path)
    times.show(5)
    times.note(1, 5)
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize("length", [0, 5, 96, 100])
def test_a_short_file_is_none(tmp_path, length):
    begin(tmp_path).close()
    content = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(content[:length])
    assert ReadTimes(tmp_path, STORE).before is None


def test_a_file_that_cannot_be_written_leaves_no_old_one(tmp_path, monkeypatch):
    begin(tmp_path).close()

    def fail(*_: object) -> int:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(read_times.os, "pwrite", fail)
    times = ReadTimes(tmp_path, STORE)
    assert times.before is not None
    times.begin(Times(200, 9, AWAY, {1: 50}))
    times.show(300)
    times.note(2, 300)
    assert ReadTimes(tmp_path, STORE).before is None


@pytest.mark.parametrize("at", range(0, 96 + 16 * 36, 5))
def test_no_damaged_value_is_believed(tmp_path, at):
    """Behind the header each byte counts; in it, those that say whose the file is."""
    times = begin(tmp_path)
    times.show(500)
    times.note(7, 300)
    content = bytearray((tmp_path / NAME).read_bytes())
    named = content.index(b"\n") + 1
    content[at] ^= 0x10
    (tmp_path / NAME).write_bytes(content)
    is_padding = named <= at < 96
    assert (ReadTimes(tmp_path, STORE).before is None) != is_padding


def test_it_outlives_sigkill(tmp_path):
    program = (
        "import os, signal\nfrom pathlib import Path\n"
        "from millpond.state.read_times import ReadTimes, Times\n"
        f"times = ReadTimes(Path({str(tmp_path)!r}), {STORE!r})\n"
        f"times.begin(Times(1, 9, {AWAY}))\n"
        "times.note(3, 33)\ntimes.show(44)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert ReadTimes(tmp_path, STORE).before == Times(44, 9, AWAY, {3: 33})
