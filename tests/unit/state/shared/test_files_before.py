"""Files that a driver left behind are removed, and never one that somebody needs.

A machine of states: drivers of one shared store write files, commit some of them, drop others, are
taken over, are stopped with what they were about to remove, and go on with it much later.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)
from tests.waiting import wait_until

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.state.arrow_file import write_arrow
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.shared.files_before import find_orphans
from millpond.state.shared.posix_place import PosixPlace
from millpond.state.shared.shared_store import SharedStore
from millpond.state.store import FORMAT, Store, new_path
from millpond.state.version import DATA, REFERENCED, SegmentRef

ROWS = pa.table({"n": [1], "__ts": pa.array([1], pa.int64()), "__seq": pa.array([0], pa.int64())})


class Drivers(RuleBasedStateMachine):
    """The drivers; the last that opened the store leads."""

    waiting = Bundle("waiting")

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.base = Path(self._directory.name)
        self.place = PosixPlace(self.base / "place")
        self.opened: list[Store] = []
        #: What each driver has written and not committed.
        self.written: dict[int, list[SegmentRef]] = {}

    @property
    def leader(self) -> Store:
        return self.opened[-1]

    def open(self, shared: SharedStore | str, name: str) -> None:
        store = Store.open(self.base / name, clock=lambda: 1, shared=shared)
        self.opened.append(store)
        self.written[len(self.opened) - 1] = []

    @initialize()
    def found(self) -> None:
        self.open(str(self.base / "place"), "first")
        stream = StreamDef(1, "s", Schema((Field("n", "BIGINT"),)))
        self.leader.log.commit(EpochChange(kind="create", add=[stream]))

    @rule(target=waiting)
    def begin_to_wait(self) -> SharedStore:
        """Another process waits, and lists what is there."""
        directory = self.base / f"of-{len(list(self.base.iterdir()))}"
        shared = SharedStore.open(str(self.base / "place"), directory, FORMAT)
        shared.follow()
        looks = shared._looks
        assert looks is not None
        wait_until(lambda: len(looks._found) == len(REFERENCED) + 1)
        return shared

    @rule(shared=consumes(waiting))
    def take_over(self, shared: SharedStore) -> None:
        self.open(shared, shared.directory.name)

    @rule(driver=st.integers(0, 9))
    def write(self, driver: int) -> None:
        """A driver, or a task of one that leads no more, writes a file for its next epoch."""
        number = driver % len(self.opened)
        path = new_path(self.opened[number].directory, "segments")
        meta = write_arrow(path, ROWS)
        name = self.opened[number].relative_path(path)
        self.written[number].append(
            SegmentRef(0, 1, DATA, 0, 0, name, 1, 1, 1, ((0, 0),), meta.checksum, meta.bytes)
        )

    @rule(driver=st.integers(0, 9))
    def commit(self, driver: int) -> None:
        """A driver commits what it has written; if it leads no more, it cannot."""
        number = driver % len(self.opened)
        refs, self.written[number] = self.written[number], []
        change = EpochChange(kind="batch", segments=refs)
        if number == len(self.opened) - 1:
            self.leader.log.commit(change)
        else:
            with pytest.raises(MillpondError, match="STORE-606"):
                self.opened[number].log.commit(change)

    @rule()
    def drop(self) -> None:
        version = self.leader.log.version
        gone = [segment.id for segment in version.segments(1, DATA)][:1]
        self.leader.log.commit(EpochChange(kind="expire", expired=gone))

    @rule(driver=st.integers(0, 9))
    def collect(self, driver: int) -> None:
        """A driver removes what it is to remove, however long ago it was taken over."""
        number = driver % len(self.opened)
        self.opened[number].log.collect()

    @invariant()
    def what_is_needed_is_there(self) -> None:
        if not self.opened:
            return
        there = set(self.place.list_keys("files/"))
        needed = set(self.leader.log.version.paths())
        needed |= {ref.path for ref in self.written[len(self.opened) - 1]}
        assert {f"files/{path}" for path in needed} <= there

    def teardown(self) -> None:
        if self.opened:
            for store in self.opened[:-1]:
                store.close()
            self.leader.close()
            shared = SharedStore.open(str(self.base / "place"), self.base / "last", FORMAT)
            shared.follow()
            looks = shared._looks
            assert looks is not None
            wait_until(lambda: len(looks._found) == len(REFERENCED) + 1)
            with Store.open(self.base / "last", clock=lambda: 1, shared=shared) as last:
                last.log.collect()
                there = {key.removeprefix("files/") for key in self.place.list_keys("files/s")}
                assert there == set(last.log.version.paths())
        self._directory.cleanup()


TestDrivers = Drivers.TestCase
TestDrivers.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_a_push_is_nobodys_only_if_its_number_is_over() -> None:
    names = {n: f"{n:012d}-aa.arrow" for n in range(5)}
    before = [f"inbox/{name}" for name in names.values()] + ["inbox/000000000002-bb.arrow"]
    found = find_orphans([*before, "inbox/unknown"], {}, {2: names[2]}, last_push=3)
    assert found == [f"inbox/{names[n]}" for n in (0, 1, 3)] + ["inbox/000000000002-bb.arrow"]
