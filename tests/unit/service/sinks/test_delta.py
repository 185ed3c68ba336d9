"""Sinks to Delta tables: each change is in the table once, whoever dies or appends when."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.catalog.sink_def import SinkDef, SinkPosition
from millpond.errors import MillpondError
from millpond.runtime.spark.checkpoint import cut_back
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.pond import Pond
from millpond.service.results import Changes
from millpond.service.sinks import delta
from millpond.service.sinks.delta import DeltaSender
from millpond.service.sinks.sender import Delivery, DeliveryError
from millpond.state.backup.backup import backup_store
from millpond.state.backup.restore import restore_store
from millpond.testing.local_runtime import open_local

deltalake = pytest.importorskip("deltalake")


def table(path: Path) -> pa.Table:
    return pa.table(deltalake.DeltaTable(str(path)).to_pyarrow_table())


def values(path: Path) -> list[int]:
    return sorted(table(path)["v"].to_pylist())


# -- a pond with a sink ----------------------------------------------------------------------------

SCHEMA = (
    "CREATE STREAM s (at TIMESTAMP, k VARCHAR, v INTEGER) TIMESTAMP BY at;"
    "CREATE QUERY q AS SELECT k, v, at FROM s [RANGE 2 MINUTES];"
)


def insert(pond: Pond, *minutes: int) -> None:
    rows = [{"at": f"2026-03-01 10:{minute:02}:00", "k": "a", "v": minute} for minute in minutes]
    pond.ingest("s", rows)
    pond.catch_up()


def state(pond: Pond) -> str:
    (sink,) = pond._components.sinks.describe()
    return str(sink["state"])


def changes(pond: Pond) -> list[tuple[Any, ...]]:
    return sorted((change.sign, *change.row) for change in pond.query("q").fetch())


def in_table(path: Path) -> list[tuple[Any, ...]]:
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return []
    columns = table(path).select(["__change", "k", "v", "at"]).to_pydict().values()
    return sorted(zip(*columns, strict=True))


def test_changes_are_in_the_table_once_over_restarts(tmp_path, eventually):
    path = tmp_path / "out" / "alerts"
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        pond.execute(f"CREATE SINK out USING delta (path '{path}', batch 3) FROM QUERY q")
        insert(pond, 0, 1, 2, 3, 9)
        eventually(lambda: len(in_table(path)) == len(changes(pond)) > 7)
    with open_local(tmp_path / "store") as pond:
        insert(pond, 20, 30)
        eventually(lambda: len(in_table(path)) == len(changes(pond)) > 10)
        assert in_table(path) == changes(pond)
        (sink,) = pond._components.sinks.describe()
        assert (sink["state"], sink["failures"]) == ("delivers", 0)
        assert sink["to"] == f"table {path}"
        found = table(path)
        assert found.column_names == ["k", "v", "at", *delta.MORE_COLUMNS.names]
        assert set(found["__exact"].to_pylist()) == {True}
        assert found["__loss"].null_count == found.num_rows
        by_cursor = {change.cursor: change for change in pond.query("q").fetch()}
        for row in found.to_pylist():
            change = by_cursor[row["__cursor"]]
            assert row["__timestamp"].timestamp() * 1e6 == change.at
            assert (row["__change"], row["v"]) == (change.sign, change.row[1])


def restored(tmp_path: Path, name: str = "restored") -> Path:
    restore_store(tmp_path / "kept", tmp_path / name, cut_checkpoint=cut_back)
    return tmp_path / name


def test_a_restored_store_goes_on_where_the_table_is(tmp_path, eventually):
    """Nothing was delivered since the backup: each change is in the table once, twice restored."""
    path, store = tmp_path / "alerts", tmp_path / "store"
    with open_local(store) as pond:
        pond.execute(SCHEMA)
        pond.execute(f"CREATE SINK out USING delta (path '{path}') FROM QUERY q")
    for minute in (5, 20, 40):
        with open_local(store) as pond:
            insert(pond, *range(minute, minute + 5))
            upto = len(in_table(path)) + 4
            eventually(lambda upto=upto: len(in_table(path)) > upto)
            eventually(lambda pond=pond: in_table(path) == changes(pond))
            assert state(pond) == "delivers"
        shutil.rmtree(tmp_path / "kept", ignore_errors=True)
        backup_store(store, tmp_path / "kept")
        store = restored(tmp_path, f"restored {minute}")


@pytest.mark.parametrize("has_delivered", [False, True])
def test_a_restored_store_that_is_older_than_the_table_stops(tmp_path, eventually, has_delivered):
    """What was undone is in the table: the sink adds nothing to it, and says why."""
    path = tmp_path / "alerts"
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        pond.execute(f"CREATE SINK out USING delta (path '{path}') FROM QUERY q")
        if has_delivered:
            insert(pond, 0, 1, 2, 3)
            eventually(lambda: len(in_table(path)) == len(changes(pond)) > 3)
        backup_store(tmp_path / "store", tmp_path / "kept")
        insert(pond, 10, 11, 12, 13, 14)
        eventually(lambda: len(in_table(path)) == len(changes(pond)) > 2)
        held = in_table(path)
    with open_local(restored(tmp_path)) as pond:
        insert(pond, 20, 21, 22)
        eventually(lambda: "older than the table" in state(pond))
        assert in_table(path) == held
        # The way out: another table, which gets what the restored store has.
        other = tmp_path / "other"
        pond.execute(f"DROP SINK out; CREATE SINK out USING delta (path '{other}') FROM QUERY q")
        insert(pond, 30)
        eventually(lambda: in_table(other) and state(pond) == "delivers")


def test_a_table_that_cannot_take_the_rows_stops_the_sink(tmp_path, eventually):
    path = tmp_path / "other"
    deltalake.write_deltalake(str(path), pa.table({"n": ["x"]}))
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        pond.execute(f"CREATE SINK out USING delta (path '{path}') FROM QUERY q")
        insert(pond, 0, 9)
        eventually(lambda: state(pond).startswith("dead: "))
        assert "cannot take the rows" in state(pond)
        assert table(path).to_pydict() == {"n": ["x"]}


def test_a_folder_of_other_files_is_left_alone(tmp_path, eventually):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        pond.execute(f"CREATE SINK out USING delta (path '{tmp_path}/mine') FROM QUERY q")
        insert(pond, 0, 9)
        eventually(lambda: state(pond).startswith("dead: "))
        assert "is there, and is no Delta table" in state(pond)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    ("select", "sink", "words"),
    [
        ("k", "FROM QUERIES TAGGED t", "takes the changes of one query"),
        ("k, k AS K2, v AS __change", "FROM QUERY q", "another column"),
        ("k", "FROM QUERY q KEY (k)", "KEY is none of a sink USING delta"),
    ],
)
def test_a_sink_that_cannot_be(tmp_path, select, sink, words):
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA.replace("k, v, at", select))
        with pytest.raises(MillpondError, match=words) as refused:
            pond.execute(f"CREATE SINK out USING delta (path '{tmp_path}/t') {sink}")
        assert refused.value.code == "CQL-214"


@pytest.mark.parametrize(
    ("options", "words"),
    [("", "has no path"), ("path 's3://bucket/t'", "cannot be the table"), ("topic 't'", "topic")],
)
def test_options_that_cannot_be(tmp_path, options, words):
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        with pytest.raises(MillpondError, match=words) as refused:
            pond.execute(f"CREATE SINK out USING delta ({options}) FROM QUERY q")
        assert refused.value.code == "CQL-214"


# -- the sender alone: delivery n has one change, v = n --------------------------------------------


def sender(path: Path, done: int = 0, hosts: tuple[str, ...] | None = None) -> DeltaSender:
    options = {"path": str(path)}
    position = SinkPosition(f"c{done}", done, done)
    sink = SinkDef(7, "s", "delta", options, hosts=hosts, position=position)
    return DeltaSender(sink, options)


def delivery(number: int, count: int = 1, made_by: str = "3f2a9c", received: int = 0) -> Delivery:
    rows = pa.table(
        {"cursor": [number], "timestamp": [number], "change": ["+"], "v": pa.array([number])}
    )
    page = Changes(rows, "q", f"r.{number}", number, number)
    cursor = f"{made_by}.feed.{number}"
    events = [FeedEvent("change", cursor, "q", 1, changes=page)] * count
    id, received = f"{made_by}.7.{number}", received or number - 1
    return Delivery(id, "s", cursor, events, [], None, "3f2a9c", received)


@pytest.mark.parametrize("number", [3, 5, 6, 9])
def test_a_restored_store_is_older_than_the_table_however_often_it_tries(tmp_path, number):
    """A pending delivery whose changes are not the same any more gets a greater number."""
    path = tmp_path / "t"
    first = sender(path)
    for made in range(1, 6):
        first.send(delivery(made))
    with pytest.raises(DeliveryError, match="it is older than the table") as stopped:
        sender(path, done=2).send(delivery(number, made_by="b20fd4", received=2))
    assert stopped.value.is_final
    assert values(path) == [1, 2, 3, 4, 5]


def test_a_client_has_no_sinks_to_tables(tmp_path):
    with pytest.raises(DeliveryError, match="clients may not") as stopped:
        sender(tmp_path / "t", hosts=("h",)).send(delivery(1))
    assert stopped.value.is_final


def test_what_has_no_changes_makes_no_version(tmp_path):
    path = tmp_path / "t"
    first = sender(path)
    first.send(delivery(1, count=0))
    assert not path.exists()
    sender(path).send(delivery(2))
    second = sender(path, done=2)
    second.send(delivery(3, count=0))
    sender(path, done=2).send(delivery(4))
    assert values(path) == [2, 4]


class Died(BaseException):
    """The process ends here."""


def dying(step: Callable[..., Any], before: bool) -> Callable[..., Any]:
    """A step that is made, or not, before the process ends."""

    def die(*given: Any, **named: Any) -> Any:
        if not before:
            step(*given, **named)
        raise Died

    return die


#: The steps of a delivery, by where their functions are found.
STEPS = ("create", "write_deltalake", "sync_version")


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_who_dies_at_any_step_delivers_once(tmp_path, monkeypatch, step, before):
    """The first delivery, which makes the table, and a later one."""
    path = tmp_path / "t"
    place = {"create": deltalake.DeltaTable, "write_deltalake": deltalake, "sync_version": delta}
    for number in (1, 2):
        with monkeypatch.context() as patched:
            patched.setattr(place[step], step, dying(getattr(place[step], step), before))
            if number == 1 or step != "create":
                with pytest.raises(Died):
                    sender(path, number - 1).send(delivery(number))
        again = sender(path, number - 1)
        again.send(delivery(number))
        again.send(delivery(number))
        assert values(path) == list(range(1, number + 1))


def test_who_appends_between_reading_and_committing(tmp_path, monkeypatch):
    """Others append just before the sink does: it reads again, and is still right."""
    path = tmp_path / "t"
    ours = sender(path)
    ours.send(delivery(1))
    write, others = deltalake.write_deltalake, [100, 101, 102]

    def after_others(given: Any, *rest: Any, **named: Any) -> None:
        if others:
            rows = delta.rows_of(delivery(others.pop()).changes)
            write(str(path), rows, mode="append")
        write(given, *rest, **named)

    monkeypatch.setattr(deltalake, "write_deltalake", after_others)
    ours.send(delivery(2))
    assert values(path) == [1, 2, 100, 101, 102]
    monkeypatch.setattr(delta, "_TRIES", 2)
    others += [103, 104, 105]
    with pytest.raises(DeliveryError, match="others appended") as failed:
        ours.send(delivery(3))
    assert not failed.value.is_final
    assert values(path) == [1, 2, *range(100, 103), 104, 105]


def test_a_zombie_commits_nothing(tmp_path, monkeypatch):
    """Another process takes over between the zombie's reading and its commit."""
    path = tmp_path / "t"
    zombie = sender(path)
    zombie.send(delivery(1))
    write = deltalake.write_deltalake

    def after_another(*given: Any, **named: Any) -> None:
        monkeypatch.setattr(deltalake, "write_deltalake", write)
        other = sender(path, 1)
        for number in (2, 3):
            other.send(delivery(number))
        write(*given, **named)

    monkeypatch.setattr(deltalake, "write_deltalake", after_another)
    with pytest.raises(DeliveryError, match="another Millpond has taken") as stopped:
        zombie.send(delivery(2))
    assert stopped.value.is_final
    assert values(path) == [1, 2, 3]


def test_a_twin_of_the_same_delivery_counts_as_its_own(tmp_path, monkeypatch):
    """A commit whose outcome was lost is found again, not made again."""
    path = tmp_path / "t"
    ours = sender(path)
    ours.send(delivery(1))
    write = deltalake.write_deltalake

    def twice(*given: Any, **named: Any) -> None:
        monkeypatch.setattr(deltalake, "write_deltalake", write)
        sender(path, 1).send(delivery(2))
        write(*given, **named)

    monkeypatch.setattr(deltalake, "write_deltalake", twice)
    synced = count_syncs(monkeypatch)
    ours.send(delivery(2))
    assert values(path) == [1, 2]
    assert synced


def count_syncs(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    synced: list[None] = []
    monkeypatch.setattr(os, "sync", lambda: synced.append(None))
    return synced


def test_what_was_committed_and_not_synced_is_synced_by_who_takes_over(tmp_path, monkeypatch):
    path = tmp_path / "t"
    ours = sender(path)
    ours.send(delivery(1))
    with monkeypatch.context() as patched:
        patched.setattr(delta, "sync_version", dying(delta.sync_version, before=True))
        with pytest.raises(Died):
            ours.send(delivery(2))
    synced = count_syncs(monkeypatch)
    sender(path, 1).send(delivery(2))
    assert synced
    assert values(path) == [1, 2]


def test_a_table_that_does_not_fit_the_store_stops_the_sink(tmp_path):
    path = tmp_path / "t"
    ahead = sender(path)
    for number in (1, 2, 3):
        ahead.send(delivery(number))
    with pytest.raises(DeliveryError, match="older than the table") as stopped:
        sender(path, 1).send(delivery(2))
    assert stopped.value.is_final
    with pytest.raises(DeliveryError, match="does not say any more") as stopped:
        sender(tmp_path / "another", 3).send(delivery(4))
    assert stopped.value.is_final
    assert values(path) == [1, 2, 3]


def test_the_client_itself_would_commit_a_delivery_twice(tmp_path):
    """Why the sink reads applications' versions itself: a client does not compare them."""
    path = str(tmp_path / "t")
    for _ in range(2):
        deltalake.write_deltalake(
            path,
            pa.table({"v": [1]}),
            mode="append",
            commit_properties=deltalake.CommitProperties(
                app_transactions=[deltalake.Transaction("a", 1)]
            ),
        )
    assert values(Path(path)) == [1, 1]
