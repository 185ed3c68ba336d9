"""The shared copy of a checkpoint: what is published of a batch is what another driver restores."""

import json
from pathlib import Path

import pytest
from tests.tools.founded_place import founded_place

from millpond.state.file_share import share_directory, unshare_directory
from millpond.state.shared.place_share import PlaceShare
from millpond.state.shared.shared_checkpoint import SharedCheckpoint


@pytest.fixture
def share(tmp_path):
    place, terms, shared = founded_place(tmp_path / "pond"), iter(range(1, 9)), []

    def share_as(name):
        term = next(terms)
        share_directory(tmp_path / name, PlaceShare(tmp_path / name, place, lambda: term))
        shared.append(tmp_path / name)
        return SharedCheckpoint.of(tmp_path / name / "stream-3", "note.json", Path.read_text)

    yield share_as
    for directory in shared:
        unshare_directory(directory)


def write(folder, batch, text):
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    name = f"offsets/{batch}"
    (folder / name).write_text(text)
    (folder / "note.json").write_text(json.dumps({"batch": batch, "files": {name: text}}))
    return {name: text}


def test_a_folder_of_this_machine_alone_has_no_copy(tmp_path):
    assert SharedCheckpoint.of(tmp_path, "note.json", Path.read_text) is None


def test_of_a_batch_the_note_of_the_greatest_term_is_restored(share, tmp_path):
    first, second = share("one"), share("two")
    first.publish(5, write(tmp_path / "one/stream-3", 5, "early"))
    second.publish(5, write(tmp_path / "two/stream-3", 5, "late"))
    third = share("three")
    third.restore(5)
    assert (tmp_path / "three/stream-3/offsets/5").read_text() == "late"


def test_what_is_local_and_not_of_the_batch_goes(share, tmp_path):
    checkpoint = share("one")
    checkpoint.publish(5, write(tmp_path / "one/stream-3", 5, "five"))
    write(tmp_path / "one/stream-3", 6, "six")
    checkpoint.restore(5)
    assert [p.name for p in (tmp_path / "one/stream-3/offsets").iterdir()] == ["5"]
    checkpoint.restore(-1)
    assert not (tmp_path / "one/stream-3/offsets").exists()
    assert not (tmp_path / "one/stream-3/note.json").exists()


def test_what_this_machine_has_whole_is_not_taken_from_a_damaged_copy(share, tmp_path):
    checkpoint = share("one")
    checkpoint.publish(5, write(tmp_path / "one/stream-3", 5, "five"))
    [given] = (tmp_path / "pond/files/stream-3/offsets").iterdir()
    given.write_text("damaged")
    checkpoint.restore(5)
    assert (tmp_path / "one/stream-3/offsets/5").read_text() == "five"
    (tmp_path / "one/stream-3/offsets/5").write_text("damaged too")
    given.write_text("five")
    checkpoint.restore(5)
    assert (tmp_path / "one/stream-3/offsets/5").read_text() == "five"
    assert checkpoint.url == f"{(tmp_path / 'pond').as_uri()}/files/stream-3"


@pytest.mark.parametrize("note", ["", "{", "[]", '{"files": 7}'])
def test_a_note_that_cannot_be_read_is_left_to_the_check(share, tmp_path, note):
    checkpoint = share("one")
    checkpoint.publish(5, write(tmp_path / "one/stream-3", 5, "five"))
    [given] = (tmp_path / "pond/files/stream-3").glob("note-*")
    given.write_text(note)
    checkpoint.restore(5)
    assert (tmp_path / "one/stream-3/note.json").read_text() == note
