"""Restoring: to an epoch or an instant, never over a store, and with cursors that still count."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.waiting import wait_until

from millpond.errors import MillpondError
from millpond.runtime.spark.checkpoint import cut_back
from millpond.service.pond import Pond
from millpond.state.backup.backup import backup_store
from millpond.state.backup.kept import list_kept
from millpond.state.backup.restore import Restored, restore_store
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pond(tmp_path: Path, clock: ManualClock) -> Pond:
    with open_local(tmp_path / "store", clock) as pond:
        pond.execute("CREATE STREAM s (n BIGINT); CREATE QUERY q AS SELECT n FROM s WHERE n > 0;")
        pond.query("q").fetch()
        yield pond


def live(pond: Pond, tmp_path: Path, clock: ManualClock, upto: int, every: int) -> None:
    """Push a number each second, with a backup after every so many."""
    for n in range(clock() // SECOND + 1, upto + 1):
        clock.set(n * SECOND)
        pond.ingest("s", [{"n": n}])
        pond.catch_up()
        pond.query("q").fetch()
        if n % every == 0:
            backup_store(tmp_path / "store", tmp_path / "b", clock=clock)


def restore(tmp_path: Path, name: str = "to", **which: int) -> Restored:
    return restore_store(tmp_path / "b", tmp_path / name, **which, cut_checkpoint=cut_back)


def numbers(store: Path, clock: ManualClock) -> list[int]:
    with open_local(store, clock) as pond:
        return [n for (n,) in pond.query("q").invoke().rows()]


@pytest.mark.parametrize(("at", "upto"), [(4, 4), (4.5, 4), (8, 8), (1000, 8)])
def test_an_instant_is_restored(pond, tmp_path, clock, at, upto):
    live(pond, tmp_path, clock, upto=8, every=4)
    done = restore(tmp_path, at=int(at * SECOND))
    assert numbers(done.to, clock) == list(range(1, upto + 1))
    assert done.point.committed_at == upto * SECOND


def test_between_backups_the_last_state_that_is_kept_is_restored(pond, tmp_path, clock):
    live(pond, tmp_path, clock, upto=4, every=4)
    for n in range(5, 8):
        clock.set(n * SECOND)
        pond.ingest("s", [{"n": n}])
        pond.catch_up()
    pond.execute("DROP QUERY q; CREATE QUERY q AS SELECT n FROM s WHERE n > 0")
    segments = [s.id for s in pond._components.log.version.segments(1)]
    backup_store(tmp_path / "store", tmp_path / "b", clock=clock)
    first, last = list_kept(tmp_path / "b")
    # A segment is lost, as if it had been merged away before the second backup.
    newest = pond._components.log.version.segment(segments[-2])
    (tmp_path / "b" / newest.path).unlink()
    done = restore(tmp_path, at=7 * SECOND)
    assert done.point.epoch < done.asked.epoch <= last.epoch
    assert done.damage == []
    assert numbers(done.to, clock) == list(range(1, 6))
    assert done.point.epoch >= first.epoch
    with pytest.raises(MillpondError, match="STORE-604") as raised:
        restore(tmp_path, "other", epoch=last.epoch - 1)
    assert f"It has epoch {done.point.epoch} of" in raised.value.detail


def test_before_the_first_backup_nothing_is_kept(pond, tmp_path, clock):
    clock.set(5 * SECOND)
    pond.ingest("s", [{"n": 1}])
    pond.catch_up()
    backup_store(tmp_path / "store", tmp_path / "b", clock=clock)
    with pytest.raises(MillpondError, match=r"STORE-604.*as of epoch 99"):
        restore(tmp_path, epoch=99)
    with pytest.raises(MillpondError, match=r"STORE-604.*that instant") as raised:
        restore(tmp_path, at=-SECOND)
    assert "It has epoch" in raised.value.detail


def test_there_is_no_store_before_its_first_epoch(tmp_path, clock):
    """An instant of a wrong year is no reason to start with an empty store."""
    clock.set(5 * SECOND)
    with open_local(tmp_path / "store", clock) as pond:
        pond.execute("CREATE STREAM s (n BIGINT)")
        backup_store(tmp_path / "store", tmp_path / "b", clock=clock)
    with pytest.raises(MillpondError, match=r"STORE-604.*that instant") as raised:
        restore(tmp_path, at=4 * SECOND)
    assert "It has epoch 1 of 1970-01-01 00:00:05" in raised.value.detail
    assert not (tmp_path / "to").exists()
    assert restore(tmp_path, at=5 * SECOND).point.epoch == 1


def test_a_store_is_never_restored_over_another(pond, tmp_path, clock):
    live(pond, tmp_path, clock, upto=2, every=1)
    for taken in ("store", "b"):
        with pytest.raises(MillpondError, match=r"STORE-604.*not empty"):
            restore(tmp_path, taken)
    (tmp_path / "empty").mkdir()
    (tmp_path / ".empty.restoring").mkdir()  # left by one that was killed
    (tmp_path / ".empty.restoring" / "half").write_text("")
    assert numbers(restore(tmp_path, "empty").to, clock) == [1, 2]
    assert not list(tmp_path.glob(".*"))


def test_what_is_no_backup_is_refused(tmp_path):
    with pytest.raises(MillpondError, match=r"STORE-604.*not a directory of backups"):
        restore(tmp_path)
    (tmp_path / "b" / "kept").mkdir(parents=True)
    (tmp_path / "b" / "BACKUP").write_text("millpond backup 1\n3f2a9c\n")
    with pytest.raises(MillpondError, match=r"STORE-604.*was finished"):
        restore(tmp_path)


def test_a_damaged_backup_is_named(pond, tmp_path, clock):
    live(pond, tmp_path, clock, upto=2, every=1)
    pond.close()
    first = list_kept(tmp_path / "b")[0]
    segment = max((tmp_path / "b" / "segments").iterdir(), key=lambda path: path.stat().st_mtime)
    segment.write_bytes(segment.read_bytes()[::-1])
    assert [line.split(":")[0] for line in restore(tmp_path).damage] == [f"segments/{segment.name}"]
    log = max((tmp_path / "b" / "journal").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-7])
    with pytest.raises(MillpondError, match="STORE-602"):
        restore(tmp_path, "other")
    restore(tmp_path, "first", epoch=first.epoch)


def test_cursors_are_good_up_to_the_last_change_that_both_stores_have(pond, tmp_path, clock):
    live(pond, tmp_path, clock, upto=3, every=3)
    seen = [change.cursor for change in pond.query("q").subscribe(follow=False)]
    live(pond, tmp_path, clock, upto=5, every=9)
    ahead = pond.query("q").fetch().cursor
    done = restore(tmp_path)
    with open_local(done.to, clock) as found:
        assert [len(found.query("q").fetch(after=cursor)) for cursor in seen] == [2, 1]
        with pytest.raises(MillpondError, match=r"POND-412.*before it was restored") as raised:
            found.query("q").fetch(after=ahead)
        at = raised.value.hint.split("'")[1]
        assert at.startswith(f"{done.incarnation}.")
        found.ingest("s", [{"n": 77}])
        found.catch_up()
        clock.advance(SECOND)
        assert found.query("q").fetch(after=at).rows()[-1][3:] == (77,)
        # It is restored once more, to before that: the cursors of both stores are known.
        backup_store(done.to, tmp_path / "second", clock=clock)
        mine = found.query("q").fetch().cursor
    third = restore_store(tmp_path / "second", tmp_path / "third", cut_checkpoint=cut_back)
    with open_local(third.to, clock) as found:
        assert len(found.query("q").fetch(after=mine)) == 0
        assert len(found.query("q").fetch(after=seen[0])) == 3
        with pytest.raises(MillpondError, match=r"POND-412"):
            found.query("q").fetch(after=ahead)


def test_sinks_go_on_where_they_were(pond, tmp_path, clock, monkeypatch):
    monkeypatch.setenv("A_KEY", "0123456789abcdef")
    pond.execute(
        "CREATE SINK w USING http (url 'http://127.0.0.1:9/', key_env 'A_KEY') FROM QUERY q"
    )
    live(pond, tmp_path, clock, upto=2, every=9)
    log = pond._components.log
    wait_until(lambda: next(iter(log.version.sinks.values())).position.pending is not None)
    backup_store(tmp_path / "store", tmp_path / "b")
    done = restore(tmp_path)
    with open_local(done.to, clock) as found:
        (sink,) = found._components.log.version.sinks.values()
        assert sink.position.pending.cursor.startswith(f"{done.incarnation}.feed")
        assert sink.dead is None
