"""Damage to any file of a store: no answer is ever wrong without a word.

A store as a killed process left it is copied, one file of the copy is damaged, and the copy is
opened. Then either opening refuses, or an answer that differs from what was acknowledged says that
it is not complete, or fails, or the pond lists what is damaged.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.state.check_and_repair.check import check_store
from millpond.state.check_and_repair.repair import repair_store
from millpond.state.database import database
from millpond.state.journal.journal_file import list_files, read_file
from millpond.state.journal.record import HEAD_BYTES
from millpond.testing.local_runtime import LocalRuntime, open_local

SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts;
CREATE STREAM other (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts;
CREATE RELATION names (n BIGINT, name STRING, PRIMARY KEY (n));
INSERT INTO names VALUES (1, 'one'), (2, 'two');
CREATE QUERY all_of_s AS SELECT n FROM s WHERE n > 0;
CREATE QUERY counted AS SELECT count(*) AS c, sum(n) AS total FROM s;
CREATE QUERY pairs AS SELECT s.n FROM s [RANGE 1 DAY], other [RANGE 1 DAY] WHERE s.n = other.n;
CREATE QUERY named AS SELECT s.n, name FROM s JOIN names ON s.n = names.n;
CREATE QUERY rejected AS SELECT reason FROM s$rejects;
CREATE QUERY others AS SELECT n FROM other;
"""
ASKED = ("all_of_s", "counted", "pairs", "named", "rejected", "others")

Rows = list[tuple[Any, ...]]


def answers(pond: Pond) -> dict[str, Rows | None]:
    """What every query answers, and what FETCH gives; None for what fails or is incomplete."""
    found: dict[str, Rows | None] = {}
    for name in ASKED:
        try:
            answer = pond.query(name).invoke()
            found[name] = sorted(answer.rows()) if answer.exact else None
        except MillpondError:
            found[name] = None
    try:
        found["fetched"] = pond.query("all_of_s").fetch().rows()
    except MillpondError:
        found["fetched"] = None
    return found


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A store as a killed process leaves it, and its answers once it is opened again.

    It has a snapshot and records behind it, a push that is no epoch yet, and beside it, in `older`,
    the database and the journal as they were some time before.
    """
    folder = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_SNAPSHOT_BYTES", 6_000)
        patch.setattr(database, "_SNAPSHOT_SHARE", 0)
        pond = open_local(folder / "living")
        pond.execute(SCHEMA)
        pond.query("all_of_s").fetch()
        for minute in range(6):
            rows = [{"ts": f"2024-01-01 00:{minute:02}:00", "n": minute + i} for i in range(3)]
            pond.ingest("s", [*rows, {"ts": "soon", "n": 1}])
            pond.ingest("other", rows)
            pond.wait_until_matched()
            pond.query("all_of_s").fetch()
            if minute == 3:
                (folder / "older").mkdir()
                for file in (folder / "living").glob("pond.db*"):
                    shutil.copy(file, folder / "older")
                shutil.copytree(folder / "living" / "journal", folder / "older" / "journal")
        patch.setattr(database, "_SNAPSHOT_BYTES", 1 << 40)
        pond.execute("INSERT INTO names VALUES (3, 'three')")
        pond.ingest("s", [{"ts": "2024-01-01 00:06:00", "n": 3}])
        pond.wait_until_matched()
        patch.setattr(LocalRuntime, "wake_inbox", lambda runtime: None)
        for n in (50, 51):
            pond.ingest("other", [{"ts": "2024-01-01 00:07:00", "n": n}])
        shutil.copytree(folder / "living", folder / "killed")
        pond.close()
    with open_local(copy_of(folder / "killed")) as again:
        again.catch_up(timeout=120)
        truth = answers(again)
        assert again.status()["problems"] == []
    assert all(truth.values()), truth
    return folder, truth


#: No two copies have a path in common: this process knows files it has opened by their paths.
numbers = itertools.count()


def copy_of(store: Path) -> Path:
    """A fresh copy of a store, beside it."""
    return Path(shutil.copytree(store, store.with_name(f"copy{next(numbers)}")))


def cut(file: Path, chance: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: chance.randrange(max(file.stat().st_size, 1))])


def flip(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def zero(file: Path, chance: random.Random) -> None:
    """A page of zeros, as a lost write leaves it."""
    data = bytearray(file.read_bytes())
    start = chance.randrange(max(len(data), 1))
    size = min(4096, len(data) - start)
    data[start : start + size] = bytes(size)
    file.write_bytes(data)


def delete(file: Path, chance: random.Random) -> None:
    file.unlink()


def swap(file: Path, chance: random.Random) -> None:
    """Exchange it with another file of the same folder."""
    other = chance.choice([f for f in sorted(file.parent.iterdir()) if f.is_file()])
    file.rename(file.with_name("held"))
    if other != file:
        other.rename(file)
        file.with_name("held").rename(other)
    else:
        file.with_name("held").rename(file)


DAMAGE: dict[str, Callable[[Path, random.Random], None]] = {
    "cut": cut, "flip": flip, "zero": zero, "delete": delete, "swap": swap,
}  # fmt: skip
PLACES = (
    "FORMAT", "LAST", "pond.db", "pond.db-wal", "journal/*.log", "journal/*.db", "segments/*",
    "rejects/*", "relations/*", "matches/*", "runs/*", "pairs/*", "inbox/*",
)  # fmt: skip


def look(store: Path, truth: dict[str, Any]) -> str:
    """Open a damaged store and compare; what became of it."""
    try:
        pond = open_local(store)
    except MillpondError as error:
        refusal = error
    else:
        refusal = None
    if refusal is not None:
        assert refusal.code.startswith("STORE-"), refusal
        assert refusal.hint
        return "refused"
    with pond:
        try:
            pond.catch_up(timeout=60)
        except MillpondError:
            return "stands still, and says so"
        found = answers(pond)
        said = pond.status()["problems"]
    wrong = [name for name, rows in found.items() if rows is not None and rows != truth[name]]
    assert not wrong or said, (wrong, {name: found[name] for name in wrong})
    if None in found.values():
        return "says what is missing"
    return "listed" if wrong else "unharmed"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_never_silent(killed, place, how):
    folder, truth = killed
    store = copy_of(folder / "killed")
    chance = random.Random(f"{place} {how}")
    files = sorted(store.glob(place))
    assert files, place
    DAMAGE[how](chance.choice(files), chance)
    look(store, truth)


@pytest.mark.parametrize("what", ["pond.db*", "pond.db", "pond.db-wal"])
def test_an_older_copy_of_the_database_changes_nothing(killed, what):
    folder, truth = killed
    store = copy_of(folder / "killed")
    for file in (folder / "older").glob(what):
        shutil.copy(file, store)
    assert look(store, truth) == "unharmed"


@pytest.mark.parametrize("how", ["cut", "flip", "delete"])
def test_the_last_record_of_the_journal_was_acknowledged(killed, how):
    """It looks like a record that was never finished, but the database has seen it."""
    folder, truth = killed
    store = copy_of(folder / "killed")
    last = max(store.glob("journal/*.log"))
    data = bytearray(last.read_bytes())
    data[-3] ^= 1
    if how == "delete":
        last.unlink()
    else:
        last.write_bytes(data if how == "flip" else data[:-3])
    assert look(store, truth) == "refused"


def test_a_journal_that_was_cut_at_a_record_is_noticed(killed):
    folder, truth = killed
    store = copy_of(folder / "killed")
    first, path = list_files(store / "journal")[-1]
    _, body = read_file(path, first).records[-1]
    path.write_bytes(path.read_bytes()[: -HEAD_BYTES - len(body)])
    assert look(store, truth) == "refused"


@pytest.mark.parametrize("records", range(1, 6))
def test_a_journal_whose_end_the_database_does_not_know_either_is_noticed(killed, records):
    """Both lose the same changes: records are cut off, and SQLite's write-ahead log is gone."""
    folder, _ = killed
    store = copy_of(folder / "killed")
    first, path = list_files(store / "journal")[-1]
    lost = sum(HEAD_BYTES + len(body) for _, body in read_file(path, first).records[-records:])
    path.write_bytes(path.read_bytes()[:-lost])
    (store / "pond.db-wal").unlink()
    with pytest.raises(MillpondError, match="STORE-602") as raised:
        open_local(store)
    assert "LAST says that there were" in str(raised.value)
    assert not check_store(store).is_whole
    repaired = repair_store(store, store.with_name(f"{store.name}-repaired"))
    assert repaired.source == "the journal"
    assert repaired.lost
    open_local(repaired.to).close()


def test_an_older_copy_of_journal_and_database_is_noticed(killed):
    folder, truth = killed
    store = copy_of(folder / "killed")
    shutil.rmtree(store / "journal")
    for file in store.glob("pond.db*"):
        file.unlink()
    shutil.copytree(folder / "older", store, dirs_exist_ok=True)
    assert look(store, truth) == "refused"


def test_the_journal_of_another_store_is_noticed(killed):
    folder, truth = killed
    store, other = copy_of(folder / "killed"), folder / f"other{next(numbers)}"
    open_local(other).close()
    shutil.rmtree(store / "journal")
    shutil.copytree(other, store, dirs_exist_ok=True, ignore=shutil.ignore_patterns("LAST"))
    assert look(store, truth) == "refused"


@pytest.mark.parametrize("left", [b"", b"3f2a9c", bytes(42)])
def test_a_store_whose_last_was_never_written_opens(killed, left):
    """Nobody waits for it to be on the disk."""
    folder, truth = killed
    store = copy_of(folder / "killed")
    (store / "LAST").write_bytes(left)
    assert look(store, truth) == "unharmed"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_random_damage_is_never_silent(killed, part):
    folder, truth = killed
    for number in range(50):
        chance = random.Random(f"{part} {number}")
        store = copy_of(folder / "killed")
        files = sorted(f for f in store.rglob("*") if f.is_file() and f.name != "LOCK")
        for _ in range(chance.choice((1, 1, 1, 2))):
            file = chance.choice(files)
            if file.exists():
                DAMAGE[chance.choice(list(DAMAGE))](file, chance)
        look(store, truth)
        shutil.rmtree(store)
