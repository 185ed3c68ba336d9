"""Files that nothing refers to: where they go, which are ours, and when they are removed."""

from pathlib import Path

import pytest

from millpond.state import set_aside as module
from millpond.state.set_aside import clean_set_aside, list_set_aside, set_aside

OURS = f"segments/{'0a' * 16}.arrow"
DAY = 86_400 * 1_000_000


def put(store: Path, *paths: str, content: bytes = b"12345") -> None:
    for path in paths:
        (store / path).parent.mkdir(parents=True, exist_ok=True)
        (store / path).write_bytes(content)


def test_files_are_moved_with_their_folders(tmp_path):
    paths = [OURS, "inbox/.000000000007.tmp", "inbox/000000000008.arrow", "segments/notes.txt"]
    put(tmp_path, *paths)
    assert set_aside(tmp_path, paths, 0) == ["segments/notes.txt"]
    assert not any((tmp_path / path).exists() for path in paths)
    known, unknown = sorted(list_set_aside(tmp_path), key=lambda folder: not folder.is_known)
    assert (known.files, known.bytes, unknown.files) == (3, 15, 1)
    assert (known.path / OURS).read_bytes() == b"12345"
    assert (unknown.path / "segments/notes.txt").exists()


def test_a_file_never_replaces_another(tmp_path):
    for content in (b"first", b"second"):
        put(tmp_path, OURS, content=content)
        set_aside(tmp_path, [OURS], 0)
    (folder,) = list_set_aside(tmp_path)
    assert sorted(file.read_bytes() for file in folder.path.rglob("*.arrow*")) == [
        b"first",
        b"second",
    ]


@pytest.mark.parametrize(("days", "removed"), [(6, 0), (8, 1)])
def test_unreferenced_files_are_removed_after_a_week(tmp_path, days, removed):
    put(tmp_path, OURS, "segments/notes.txt")
    set_aside(tmp_path, [OURS, "segments/notes.txt"], 0)
    assert clean_set_aside(tmp_path, days * DAY) == removed
    left = sorted(folder.is_known for folder in list_set_aside(tmp_path))
    assert left == ([False] if removed else [False, True])


def test_the_oldest_go_first_when_there_are_too_many_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "KEPT_BYTES", 8)
    for day in (1, 2):
        put(tmp_path, OURS)
        set_aside(tmp_path, [OURS], day * DAY)
    assert clean_set_aside(tmp_path, 3 * DAY) == 1
    (left,) = list_set_aside(tmp_path)
    assert left.at.day == 3  # the second day after 1970-01-01


def test_all_unreferenced_files_can_be_removed_at_once(tmp_path):
    put(tmp_path, OURS, "segments/notes.txt")
    set_aside(tmp_path, [OURS, "segments/notes.txt"], 0)
    assert clean_set_aside(tmp_path, 0, everything=True) == 1
    (left,) = list_set_aside(tmp_path)
    assert not left.is_known
