"""Sinks to Kafka behind a restore: the topic may have more than the store knows of."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.spark.kafka.out_topic import Out, rows_of
from tests.waiting import wait_until

from millpond.runtime.spark.checkpoint import cut_back
from millpond.service.pond import Pond
from millpond.state.backup.backup import backup_store
from millpond.state.backup.restore import restore_store
from millpond.testing.local_runtime import open_local

pytestmark = pytest.mark.spark

WORLD = (
    "CREATE STREAM s (at TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY at;"
    "CREATE QUERY big AS ISTREAM (SELECT k, v FROM s [NOW] WHERE v > 0);"
    "CREATE QUERY sums AS SELECT k, sum(v) AS total FROM s [RANGE 1 HOUR] GROUP BY k;"
)


def create(pond: Pond, out: Out, of: str, **more: str) -> None:
    given = ", ".join(f"{name} '{value}'" for name, value in {**out.options, **more}.items())
    pond.execute(f"CREATE SINK k USING kafka ({given}) FROM QUERY {of}")


def insert(pond: Pond, minute: int, key: str, value: int) -> None:
    pond.execute(f"INSERT INTO s VALUES ('2026-03-01 10:{minute:02}:00', '{key}', {value})")


def state(pond: Pond) -> str:
    (sink,) = pond._components.sinks.describe()
    return str(sink["state"])


def restore(folder: Path) -> Path:
    restore_store(folder / "kept", folder / "restored", cut_checkpoint=cut_back)
    return folder / "restored"


def delivered(out: Out) -> list[int]:
    return [change["row"]["v"] for change in out.read()]


@pytest.mark.parametrize("when", ["before the first delivery", "before the last", "at the end"])
def test_changes_of_a_restored_store(broker, tmp_path, when):
    """A topic that is ahead gets nothing, neither twice nor for the first time."""
    out, store, kept = Out(broker), tmp_path / "store", tmp_path / "kept"
    with open_local(store) as pond:
        pond.execute(WORLD)
        create(pond, out, "big")
        if when == "before the first delivery":
            backup_store(store, kept)
        insert(pond, 0, "a", 1)
        insert(pond, 1, "a", 2)
        wait_until(lambda: delivered(out) == [1])
        if when == "before the last":
            backup_store(store, kept)
        insert(pond, 2, "b", 3)
        wait_until(lambda: delivered(out) == [1, 2])
    if when == "at the end":
        backup_store(store, kept)
    with open_local(restore(tmp_path)) as pond:
        insert(pond, 7, "x", 100)
        insert(pond, 8, "y", 101)
        if when == "at the end":
            wait_until(lambda: delivered(out) == [1, 2, 3, 100])
            assert state(pond) == "delivers"
            return
        wait_until(lambda: "older than the topic" in state(pond))
        assert delivered(out) == [1, 2]
        # The way out: another sink goes on where this store knows that the topic is.
        facts = pond.execute("DESCRIBE k")[0].facts
        pond.execute("DROP SINK k")
        create(pond, out, "big", **({"after": facts["cursor"]} if "cursor" in facts else {}))
        again = [2] if when == "before the last" else []  # somebody has decided that it may
        wait_until(lambda: delivered(out) == [1, 2, *again, 100])


@pytest.mark.parametrize("when", ["before the first delivery", "before the last", "at the end"])
def test_an_answer_of_a_restored_store(broker, tmp_path, when):
    """The topic is never a mixture of the answer that was undone and of the one that is."""
    out, store, kept = Out(broker, "compact"), tmp_path / "store", tmp_path / "kept"
    with open_local(store) as pond:
        pond.execute(WORLD)
        create(pond, out, "sums KEY (k)")
        if when == "before the first delivery":
            backup_store(store, kept)
        insert(pond, 0, "a", 1)
        insert(pond, 1, "b", 2)
        wait_until(lambda: len(rows_of(out.read_records())) == 1)
        if when == "before the last":
            backup_store(store, kept)
        insert(pond, 2, "c", 3)
        wait_until(lambda: len(rows_of(out.read_records())) == 2)
    if when == "at the end":
        backup_store(store, kept)
    held = rows_of(out.read_records())
    with open_local(restore(tmp_path)) as pond:
        insert(pond, 7, "x", 100)
        insert(pond, 8, "y", 101)
        if when == "at the end":
            wait_until(lambda: len(rows_of(out.read_records())) == 4)
            assert state(pond) == "delivers"
            return
        for _ in range(4):  # however often somebody has it try again
            wait_until(lambda: "older than the topic" in state(pond))
            assert rows_of(out.read_records()) == held
            pond.execute("ALTER SINK k SET (active = true)")
        # The way out: another topic, into which the whole answer goes.
        pond.execute("DROP SINK k")
        other = Out(broker, "compact")
        create(pond, other, "sums KEY (k)")
        wait_until(lambda: '{"k":"x"}' in rows_of(other.read_records()))


def test_rows_flow_while_the_backup_is_made(broker, tmp_path):
    """Whatever was on its way: no change is in the topic twice, and one that is not is said."""
    out, store, kept = Out(broker), tmp_path / "store", tmp_path / "kept"
    ended = threading.Event()
    with open_local(store) as pond:
        pond.execute(WORLD)
        create(pond, out, "big")

        def flow() -> None:
            number = 0
            while not ended.is_set():
                number += 1
                at = f"2026-03-01 10:{number // 60:02}:{number % 60:02}"
                pond.execute(f"INSERT INTO s VALUES ('{at}', 'a', {number})")

        flowing = threading.Thread(target=flow)
        flowing.start()
        try:
            wait_until(lambda: len(delivered(out)) > 20)
            backup_store(store, kept)
            seen = len(delivered(out))
            wait_until(lambda: len(delivered(out)) > seen)
        finally:
            ended.set()
            flowing.join()
    before = delivered(out)
    assert before == list(range(1, len(before) + 1))
    with open_local(restore(tmp_path)) as pond:
        pond.execute("HEARTBEAT s AT TIMESTAMP '2026-03-01 11:30:00'")
        wait_until(lambda: "older than the topic" in state(pond))
    assert delivered(out) == before
