"""What the pond appends to its own streams is one epoch, or nothing."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import components_of

from millpond.catalog.objects import SYSTEM_ACTIONS
from millpond.service.pond import Pond
from millpond.state.epoch_log import EpochLog


def test_rows_become_elements_of_one_instant_in_one_epoch(pond: Pond) -> None:
    parts = components_of(pond)
    before = parts.log.version.epoch
    rows = [("shed", name, 0.0, 1.0, 0.5, "why") for name in "ab"]
    parts.system_streams.append(SYSTEM_ACTIONS, rows)
    assert parts.log.version.epoch == before + 1
    found = pond.ask("SELECT at, name FROM system$actions").rows()
    assert [name for _, name in found] == ["a", "b"]
    assert len({at for at, _ in found}) == 1


def test_what_cannot_be_committed_leaves_neither_a_file_nor_a_floor(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = components_of(pond)
    folder = parts._store.directory
    before = sorted(folder.rglob("*.arrow"))

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(EpochLog, "commit", fail)
        with pytest.raises(OSError, match="full"):
            parts.system_streams.append(SYSTEM_ACTIONS, [("shed", "s", 0.0, 1.0, 0.5, "why")])
    assert sorted(folder.rglob("*.arrow")) == before
    assert pond.ask("SELECT * FROM system$actions").rows() == []
    parts.system_streams.append(SYSTEM_ACTIONS, [("shed", "t", 0.0, 1.0, 0.5, "why")])
    assert pond.ask("SELECT name FROM system$actions").rows() == [("t",)]
