"""A pond whose followed queries are advanced in shards gives what one worker gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.runtime.shards import advance_shard
from millpond.service.pond import Pond
from millpond.state.arrow_file import FileMeta
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

STREAM = "CREATE STREAM s (ts TIMESTAMP, k VARCHAR, v INTEGER, x DOUBLE) TIMESTAMP BY ts"
QUERIES = {
    "g": "SELECT k, count(*) AS n, sum(x) AS total, max(v) AS top FROM s [RANGE 9 SECONDS] "
    "GROUP BY k",
    "d": "SELECT DISTINCT k, v FROM s [RANGE 9 SECONDS]",
    "j": "SELECT a.k, a.v, b.v AS w FROM s [RANGE 4 SECONDS] a JOIN s [RANGE 9 SECONDS] b "
    "ON a.k = b.k",
    "i": "ISTREAM (SELECT k, avg(x) AS mean FROM s [RANGE 9 SECONDS] GROUP BY k)",
}


@pytest.fixture(params=[None, 1, 3])
def shards(request: pytest.FixtureRequest) -> int | None:
    found: int | None = request.param
    return found


@pytest.fixture
def pond(tmp_path: Path, shards: int | None) -> Iterator[Pond]:
    pond = open_local(tmp_path / "store", ManualClock())
    pond._components.advancer.sharded.always = shards
    pond.execute(STREAM)
    yield pond
    pond.close()


def follow(pond: Pond, name: str, text: str) -> None:
    pond.execute(f"CREATE QUERY {name} WITH (changes = 'from beginning', follow = true) AS {text}")


def feed(pond: Pond, first: int, count: int) -> None:
    keys = ["1", "b", "c", "d", None, "é"]
    rows = [
        {
            "ts": f"1970-01-01 00:{n // 240:02d}:{n // 4 % 60:02d}",
            "k": keys[n * (n + 1) // 2 % 6],
            "v": n % 5,
            "x": 0.1 * n,
        }
        for n in range(first, first + count)
    ]
    pond.ingest("s", rows)
    pond.catch_up()


def test_changes_are_the_same_in_the_same_order(
    pond: Pond, shards: int | None, tmp_path: Path
) -> None:
    for name, text in QUERIES.items():
        follow(pond, name, text)
    for step in range(6):
        feed(pond, step * 50, 50)
    other = open_local(tmp_path / "whole", ManualClock())
    other.execute(STREAM)
    feed(other, 0, 300)
    for name, text in QUERIES.items():
        follow(other, name, text)
        other.catch_up()
        rows = pond.query(name).page(0).rows()
        assert len(rows) > 50, name
        assert rows == other.query(name).page(0).rows()
    other.close()
    assert (pond._components.advancer.sharded.count() > 0) is (shards == 3)


def test_an_answer_that_cannot_be_computed_is_told_as_ever(pond: Pond, shards: int | None) -> None:
    """Shards cannot do it: the whole job does, and says whose fault it is; the others go on."""
    follow(pond, "q", "SELECT k, sum(CAST(k AS INTEGER)) AS n FROM s [RANGE 9 SECONDS] GROUP BY k")
    follow(pond, "g", "SELECT k, count(*) AS n FROM s [RANGE 9 SECONDS] GROUP BY k")
    feed(pond, 0, 100)
    feed(pond, 100, 100)
    with pytest.raises(MillpondError, match="POND-402"):
        pond.query("q").page(0)
    assert len(pond.query("g").page(0).rows()) == 44


def test_changes_that_a_shard_cannot_write_come_later(
    pond: Pond, shards: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [MillpondError("STORE-603", "the disk is full")]
    write = advance_shard._write

    def write_once_there_is_room(store: str, changes: pa.Table) -> FileMeta:
        if full:
            raise full.pop()
        return write(store, changes)

    monkeypatch.setattr(advance_shard, "_write", write_once_there_is_room)
    follow(pond, "g", "SELECT k, count(*) AS n FROM s [RANGE 9 SECONDS] GROUP BY k")
    # Who waits is told, unless the next attempt has succeeded before the waiting thread looks.
    with suppress(MillpondError):
        feed(pond, 0, 200)
    assert bool(full) is (shards != 3)
    pond.catch_up()
    assert len(pond.query("g").page(0).rows()) == 44
    scratch = pond._components.advancer._jobs._store / "scratch"
    assert not scratch.exists() or not list(scratch.iterdir())


def test_figures_of_operators_are_those_of_all_shards(pond: Pond) -> None:
    follow(pond, "g", "SELECT k, count(*) AS n FROM s [RANGE 9 SECONDS] GROUP BY k")
    feed(pond, 0, 100)
    feed(pond, 100, 100)
    version = pond._components.log.version
    (stream,) = (s for s in version.streams.values() if s.is_change_log)
    accounts = pond._components.advancer.accounts
    taken = sorted(one.taken for one in accounts.list_work(version, stream.id).values())
    # The window's operator takes the elements; every one is of one shard.
    assert taken[0] == 196  # those whose instants are final
    state = accounts.list_state(version, stream.id)
    assert max(one.rows for one in state.values()) >= 36


def test_files_of_a_round_stay_until_the_next_one(tmp_path: Path) -> None:
    """A round has several jobs of a group whose members are at several positions."""
    changes = pa.table({"n": [1]})
    rounds: dict[int, list[Path]] = {4: [], 5: []}
    for now, files in rounds.items():
        for _ in range(2):
            job: Any = SimpleNamespace(group=f"{tmp_path}", now=now)
            advance_shard._remove_left(job)
            files.append(advance_shard._write(str(tmp_path), changes).path)
            advance_shard._left.setdefault(job.group, []).append((now, files[-1]))
        assert all(file.exists() for file in files)
    assert not any(file.exists() for file in rounds[4])
