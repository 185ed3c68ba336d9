"""A small pond's life, for `test_fail_points.py` to end at any moment.

    python killed_pond.py DIRECTORY [shared]

lives it once, then again and again, each time killed at another fail point and hit, in a forked
process of its own. Under DIRECTORY, `whole` is the uninterrupted life and `<fail point>:<hit>` what
each killed one left. Beside each store, `<store>.said` has a line for everything its clients were
told: what is said there must be true for ever. With `shared` each store is a cache of the shared
store `<store>.shared`.
"""

import os
import signal
import sys
from pathlib import Path

import pyarrow as pa

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.model.schema import Field, Schema
from millpond.state import fail_points
from millpond.state.arrow_file import open_arrow, write_arrow
from millpond.state.database import database
from millpond.state.epoch.epoch_change import EpochChange, new_segment_id
from millpond.state.inbox.push_file import read_push
from millpond.state.store import Store, new_path
from millpond.state.version import LeafRef, MatchRef, SegmentRef, SlotRef, StreamClock


def live(directory: Path, is_shared: bool) -> None:
    """Register, push, absorb, push, absorb, merge, expire: every kind of epoch once or twice."""
    said = os.open(f"{directory}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    shared = f"{directory}.shared" if is_shared else None
    store = Store.open(directory, clock=lambda: 1, shared=shared)
    stream, query = store.log.next_id(), store.log.next_id()

    def commit(change: EpochChange) -> None:
        epoch = store.log.commit(change).epoch
        os.write(said, f"epoch {epoch}\n".encode())

    def push(value: int) -> None:
        table = pa.table({"n": [value]})
        number = store.inbox.accept(stream, table, value, value, 1, f"k{value}", "f").number
        os.write(said, f"push {number} {value}\n".encode())

    commit(
        EpochChange(
            kind="create", add=[StreamDef(stream, "flights", Schema((Field("n", "BIGINT"),)))]
        )
    )
    commit(
        EpochChange(
            kind="register",
            add=[QueryDef(query, "late", "SELECT * FROM flights")],
            add_slots=[SlotRef(stream, 0, b"k", b"f")],
            add_leaves=[LeafRef(query, 0, stream, 0)],
        )
    )
    push(10)
    push(11)
    commit(absorbed(store, stream, batch_id=0))
    store.inbox.collect(upto=2)
    push(12)
    commit(absorbed(store, stream, batch_id=1))
    commit(merged(store, stream))
    store.log.collect()
    database._SNAPSHOT_BYTES, database._SNAPSHOT_SHARE = 0, 0
    store.log.snapshot_if_due()
    push(13)
    commit(EpochChange(kind="expire", expired=[s.id for s in store.log.version.segments(stream)]))
    store.log.collect()
    store.log.snapshot_if_due()
    store.close()


def absorbed(store: Store, stream: int, batch_id: int) -> EpochChange:
    """The epoch of everything pending: a segment a push, with matches."""
    segments, matches = [], []
    rows = store.inbox.list_pending(stream)
    for index, row in enumerate(rows):
        table = read_push(store.inbox.path(row.number)).table
        segments.append(segment(store, stream, table))
        file = write_arrow(new_path(store.directory, "matches"), table)
        path = store.relative_path(file.path)
        owner = new_segment_id(index)
        matches.append(MatchRef(0, owner, 0, 1, path, file.checksum, file.bytes))
    return EpochChange(
        kind="batch",
        batches=[("inbox", batch_id)],
        segments=segments,
        matches=matches,
        clocks={stream: StreamClock(high=rows[-1].high, next_seq=batch_id + 1)},
        inbox_done=[row.number for row in rows],
    )


def merged(store: Store, stream: int) -> EpochChange:
    """The epoch in which all segments become one."""
    parts = store.log.version.segments(stream)
    table = pa.concat_tables(open_arrow(store.directory / s.path, s.checksum) for s in parts)
    return EpochChange(
        kind="merge",
        segments=[segment(store, stream, table.replace_schema_metadata(None))],
        replaced=[part.id for part in parts],
    )


def segment(store: Store, stream: int, table: pa.Table) -> SegmentRef:
    """A new segment with those rows."""
    file = write_arrow(new_path(store.directory, "segments"), table)
    values = table.column("n").to_pylist()
    path = store.relative_path(file.path)
    runs = ((0, 0),)
    return SegmentRef(
        0, stream, "data", 0, 0, path, len(values), min(values), max(values), runs,
        file.checksum, file.bytes,
    )  # fmt: skip


def main(directory: Path, is_shared: bool) -> None:
    """Every fail point, every hit, until a life runs to its end."""
    live(directory / "whole", is_shared)
    for name in fail_points.FAIL_POINTS:
        hit = 1
        while killed(directory / f"{name}:{hit}", is_shared, name, hit):
            hit += 1


def killed(directory: Path, is_shared: bool, name: str, hit: int) -> bool:
    """Whether a life ends at that fail point and hit."""
    child = os.fork()
    if child == 0:
        fail_points.arm(f"{name}:{hit}")
        live(directory, is_shared)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    assert status == 0, (name, hit, status)
    directory.rename(directory.parent / f"{name} is not reached again")
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]), "shared" in sys.argv[2:])
