"""A record is a point of a backup only if every file that it refers to is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from millpond.state.backup.find_points import find_points
from millpond.state.database import database
from millpond.state.journal.fold import read_journal
from millpond.testing.local_runtime import open_local


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_file_of_several_segments_is_missing_as_long_as_one_of_them_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_snapshot: bool
) -> None:
    """Of the queries whose changes lie in one file, one is dropped: the other still needs it."""
    names = ["one", "two"]
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM m (n BIGINT)")
        for name in names:
            pond.execute(f"CREATE QUERY {name} AS SELECT count(*) AS c FROM m")
            pond.query(name).fetch()
        before = pond._components.log.version.epoch
        pond.ingest("m", [{"n": 1}])
        for name in names:
            pond.query(name).fetch()
        (path,) = pond._components.log.version.shared_files
        written = pond._components.log.version.epoch
        if with_snapshot:
            with monkeypatch.context() as patched:
                for size in ("_SNAPSHOT_BYTES", "_SNAPSHOT_SHARE"):
                    patched.setattr(database, size, 0)
                assert pond._components.log.snapshot_if_due()
        for number, name in enumerate(names):
            pond.execute(f"DROP QUERY {name}")
            if not number:
                one_left = pond._components.log.version.epoch
    backup = tmp_path / "backup"
    shutil.copytree(tmp_path / "store", backup)
    (backup / path).unlink(missing_ok=True)
    found = find_points(backup, read_journal(backup, None), tmp_path / "scratch.db")
    whole: dict[int, bool] = {}
    for point in found:  # an epoch's first point; behind it comes a push, whose file is gone
        whole.setdefault(point.epoch, point.is_whole)
    assert whole[one_left] is False
    assert whole[max(whole)] is True
    if not with_snapshot:
        assert (whole[before], whole[written]) == (True, False)
