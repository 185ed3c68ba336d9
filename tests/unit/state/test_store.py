"""The store's directory: one process at a time, nothing left over, nothing missing in silence."""

import subprocess
import sys

import pytest

from millpond.errors import MillpondError
from millpond.state.arrow_file import open_arrow, write_arrow
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.store import Store, lock_store, new_path
from millpond.state.version import MatchRef


def with_segment(store, a):
    """A store with a stream and one segment with matches; gives their files."""
    id = store.log.next_id()
    segment = write_arrow(new_path(store.directory, "segments"), a.rows)
    matches = write_arrow(new_path(store.directory, "matches"), a.rows)
    ref = a.segment(id, store.relative_path(segment.path))
    store.log.commit(
        EpochChange(
            kind="batch",
            add=[a.stream(id)],
            segments=[
                type(ref)(**{**vars(ref), "checksum": segment.checksum, "bytes": segment.bytes})
            ],
            matches=[
                MatchRef(
                    0, -1, 0, 1, store.relative_path(matches.path), matches.checksum, matches.bytes
                )
            ],
        )
    )
    return segment.path, matches.path


def test_a_new_store_has_its_directories(store):
    assert {file.name for file in store.directory.iterdir()} >= {
        "FORMAT", "LOCK", "pond.db", "segments", "matches", "rejects", "relations", "inbox",
        "checkpoints", "stems",
    }  # fmt: skip
    assert store.problems == []


def test_what_was_committed_is_there_when_it_is_opened_again(store, a):
    with_segment(store, a)
    before = store.log.version
    store.close()
    store.close()
    with Store.open(store.directory) as again:
        (segment,) = again.log.version.segments(1)
        assert (segment,) == before.segments(1)
        assert open_arrow(again.directory / segment.path, segment.checksum).equals(a.rows)
        assert again.problems == []


def test_a_closed_store_says_so(store):
    store.close()
    with pytest.raises(MillpondError, match="POND-410"):
        store.log.commit(EpochChange(kind="late"))
    with pytest.raises(MillpondError, match="POND-410"):
        store.inbox.list_pending()


def test_a_second_opener_is_told_who_has_it(store):
    with pytest.raises(MillpondError) as caught:
        Store.open(store.directory)
    assert caught.value.code == "STORE-601"
    assert "open in this process already" in caught.value.primary
    store.close()
    Store.open(store.directory).close()


def test_the_lock_goes_with_the_process_that_is_killed(tmp_path):
    script = (
        "import sys; from millpond.state.store import Store\n"
        f"store = Store.open({str(tmp_path / 'pond')!r}); print('open', flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(MillpondError, match=f"STORE-601.*process {other.pid}"):
            Store.open(tmp_path / "pond")
        other.kill()
        other.wait()
        Store.open(tmp_path / "pond").close()


def test_files_no_epoch_refers_to_are_set_aside(store, a):
    kept = with_segment(store, a)
    for kind in ("segments", "matches", "rejects", "relations", "stems"):
        write_arrow(new_path(store.directory, kind), a.rows)
        new_path(store.directory, kind).with_suffix(".arrow.tmp").write_bytes(b"torn")
    (store.directory / "checkpoints" / "offsets").write_bytes(b"not ours")
    store.close()
    with Store.open(store.directory) as again:
        left = [
            file
            for kind in ("segments", "matches", "rejects", "relations", "stems", "checkpoints")
            for file in (again.directory / kind).rglob("*")
        ]
        (folder,) = again.list_set_aside()
        assert again.problems == []
    assert sorted(left) == sorted([*kept, store.directory / "checkpoints" / "offsets"])
    assert (folder.files, folder.is_known) == (8, True)


def test_unreferenced_files_are_removed_after_a_week_and_unknown_ones_never(store, a):
    path = store.directory
    write_arrow(new_path(path, "segments"), a.rows)
    (path / "segments" / "thesis.tex").write_text("…")
    store.close()
    week = 7 * 86_400 * 1_000_000
    with Store.open(path, clock=lambda: 0) as again:
        assert [p.primary for p in again.problems] == [
            'the file "segments/thesis.tex" does not belong to the store'
        ]
        assert [folder.files for folder in again.list_set_aside()] == [1, 1]
    with Store.open(path, clock=lambda: week) as again:
        assert [folder.files for folder in again.list_set_aside()] == [1, 1]
    with Store.open(path, clock=lambda: week + 2_000_000) as again:
        (left,) = again.list_set_aside()
    assert [file.name for file in left.path.rglob("*.*")] == ["thesis.tex"]


def test_missing_and_torn_files_are_named_and_the_store_opens(store, a):
    segment, matches = with_segment(store, a)
    segment.unlink()
    matches.write_bytes(matches.read_bytes()[:-1])
    store.close()
    with Store.open(store.directory) as again:
        assert [problem.code for problem in again.problems] == ["STORE-602"] * 2
        text = "\n".join(map(str, again.problems))
        assert segment.name in text
        assert matches.name in text
        (ref,) = again.log.version.segments(1)
        with pytest.raises(MillpondError, match=f"STORE-602.*{segment.name}"):
            open_arrow(again.directory / ref.path, ref.checksum)


def test_a_directory_of_other_things_is_refused_and_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("…")
    with pytest.raises(MillpondError, match=r"STORE-604.*not a store"):
        Store.open(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MillpondError, match="STORE-604"):
        Store.open(tmp_path / "file")


def test_a_store_of_another_format_is_refused(store):
    store.close()
    (store.directory / "FORMAT").write_text("millpond store 99\n")
    with pytest.raises(MillpondError) as caught:
        Store.open(store.directory)
    assert caught.value.code == "STORE-604"
    assert "millpond store 99" in caught.value.detail


def test_a_store_whose_making_was_interrupted_is_made(tmp_path):
    (tmp_path / "LOCK").touch()
    (tmp_path / ".FORMAT.tmp").touch()
    with Store.open(tmp_path) as store:
        assert store.log.version.epoch == 0


def test_a_corrupt_database_is_made_again_from_the_journal(store, a):
    with_segment(store, a)
    before = store.log.version.paths()
    store.close()
    for file in store.directory.glob("pond.db*"):
        file.unlink()
    (store.directory / "pond.db").write_bytes(b"not a database" * 1_000)
    with Store.open(store.directory) as again:
        assert again.log.version.paths() == before
        assert ["pond.db" in problem.primary for problem in again.problems] == [True]
    with Store.open(store.directory) as again:
        assert again.problems == []


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_store_without_its_database_is_refused_and_untouched(store, a, how):
    segment, matches = with_segment(store, a)
    store.close()
    for file in store.directory.glob("pond.db*"):
        file.unlink()
    if how == "empty":
        (store.directory / "pond.db").touch()
    for _ in range(2):
        with pytest.raises(MillpondError, match=r"(?s)STORE-602.*missing.*millpond repair"):
            Store.open(store.directory)
    assert segment.exists()
    assert matches.exists()


def test_paths_are_new(store):
    paths = {new_path(store.directory, "segments") for _ in range(100)}
    assert len(paths) == 100
    assert all(path.parent == store.directory / "segments" for path in paths)
    assert store.directory / store.relative_path(path := paths.pop()) == path


def test_a_lock_file_that_was_removed_lets_nobody_in(store):
    """Somebody who takes LOCK for a forgotten file must not give the journal two writers."""
    (store.directory / "LOCK").unlink()
    with pytest.raises(MillpondError, match="STORE-601"), lock_store(store.directory):
        pass
    with pytest.raises(MillpondError, match="STORE-601"):
        Store.open(store.directory)
    with pytest.raises(MillpondError, match="STORE-601"), lock_store(store.directory):
        pass
    store.close()
    with lock_store(store.directory):
        pass
    Store.open(store.directory).close()
