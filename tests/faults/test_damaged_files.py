"""Files of a store that are damaged or gone: what needs them says so, everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime, open_local

SCHEMA = """
CREATE STREAM old (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts;
CREATE STREAM other (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts;
CREATE RELATION names (n BIGINT, name STRING, PRIMARY KEY (n));
INSERT INTO names VALUES (1, 'one');
CREATE QUERY everything AS SELECT n FROM old WHERE n > 0;
CREATE QUERY recent AS SELECT n FROM old [RANGE 1 HOUR] WHERE n > 0;
CREATE QUERY beside AS SELECT n FROM other WHERE n > 0;
CREATE QUERY named AS SELECT name FROM other JOIN names ON other.n = names.n;
"""


def flip(file: Path) -> None:
    """Change a byte in the middle, and nothing of the length."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


DAMAGE: dict[str, Callable[[Path], None]] = {"flipped": flip, "cut": cut, "gone": Path.unlink}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two segments of `old`, an hour and more apart, and one of `other`."""
    with open_local(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        pond.ingest("old", [{"ts": "2024-01-01 00:00:00", "n": 1}])
        pond.ingest("old", [{"ts": "2024-01-02 00:00:00", "n": 2}])
        pond.ingest("other", [{"ts": "2024-01-02 00:00:00", "n": 1}])
        pond.wait_until_matched()
    return tmp_path / "store"


def files(store: Path, kind: str, stream: str) -> list[Path]:
    """The segments, oldest first, or their matches."""
    with open_local(store) as pond:
        version = pond._components.log.version
        (found,) = (s for s in pond.streams() if s.name == stream)
        segments = sorted(version.segments(found.id), key=lambda segment: segment.min_ts)
        if kind == "segments":
            return [store / segment.path for segment in segments]
        return [store / match.path for s in segments for match in version.matches(s.id)]


def refused(ask: Callable[[], object]) -> MillpondError:
    with pytest.raises(MillpondError) as caught:
        ask()
    return caught.value


@pytest.mark.parametrize("how", DAMAGE)
def test_a_segment(store, how):
    first, _ = files(store, "segments", "old")
    DAMAGE[how](first)
    for first_time in (True, False):
        with open_local(store) as pond:
            listed = [problem["message"] for problem in pond.status()["problems"]]
            # A flipped byte is found when the file is first read; reading all of them at every
            # start would take as long as the store is large.
            assert [first.name in line for line in listed] == [True] * (how != "flipped")
            error = refused(pond.query("everything").invoke)
            assert error.code == "STORE-602"
            assert first.name in error.primary
            assert refused(lambda p=pond: p.ask("SELECT max(n + 1) FROM old")).code == "STORE-602"
            recent = {n for (n,) in pond.query("recent").invoke().rows()}
            assert recent == ({2} if first_time else {2, 3})
            assert (1,) in pond.query("beside").invoke().rows()
            # The stream goes on, and so does what is done behind everyone's back.
            pond.ingest("old", [{"ts": "2024-01-02 00:30:00", "n": 3}])
            pond.ingest("other", [{"ts": "2024-01-02 00:30:00", "n": 4}])
            pond.register("SELECT n FROM other WHERE n > 3", "registered_after")
            pond.wait_until_matched(timeout=60)
            assert (3,) in pond.query("recent").invoke().rows()
            assert (4,) in pond.query("registered_after").invoke().rows()
            pond.query("registered_after").unregister()
            assert any(first.name in p["message"] for p in pond.status()["problems"])


def test_a_segment_that_is_restored(store, tmp_path):
    first, _ = files(store, "segments", "old")
    first.rename(tmp_path / "copy")
    with open_local(store) as pond:
        assert refused(pond.query("everything").invoke).code == "STORE-602"
    (tmp_path / "copy").rename(first)
    with open_local(store) as pond:
        assert pond.status()["problems"] == []
        assert sorted(pond.query("everything").invoke().rows()) == [(1,), (2,)]


@pytest.mark.parametrize("how", DAMAGE)
def test_matches_are_computed_again(store, how):
    found = files(store, "matches", "old")
    assert found
    for file in found:
        DAMAGE[how](file)
    with open_local(store) as pond:
        assert sorted(pond.query("everything").invoke().rows()) == [(1,), (2,)]
        assert pond.query("recent").invoke().rows() == [(2,)]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_relation(store, how):
    (file,) = (store / "relations").iterdir()
    DAMAGE[how](file)
    with open_local(store) as pond:
        error = refused(pond.query("named").invoke)
        assert (error.code, file.name in error.primary) == ("STORE-602", True)
        assert pond.query("beside").invoke().rows() == [(1,)]
        assert refused(lambda: pond.execute("INSERT INTO names VALUES (2, 'two')")).code
        pond.execute("DROP QUERY named; DROP RELATION names")
        pond.execute("CREATE RELATION names (n BIGINT); INSERT INTO names VALUES (1)")
        assert pond.ask("SELECT n FROM names").rows() == [(1,)]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_push_that_was_not_absorbed_yet(store, how, monkeypatch):
    """An acknowledged push whose file is damaged afterwards is missed, and in nobody's way."""
    pond = open_local(store)
    monkeypatch.setattr(LocalRuntime, "wake_inbox", lambda runtime: None)
    for n in (5, 6, 7):
        pond.ingest("other", [{"ts": "2024-01-03", "n": n}], idempotency_key=f"k{n}")
    monkeypatch.undo()
    pond.close()
    _, file, _ = sorted((store / "inbox").iterdir())
    DAMAGE[how](file)
    for extra in (8, 9):
        with open_local(store) as pond:
            (problem,) = pond.status()["problems"]
            assert problem["code"] == "STORE-602"
            assert file.name in problem["message"]
            pond.ingest("other", [{"ts": "2024-01-04", "n": extra}])
            pond.execute(f"INSERT INTO other VALUES ('2024-01-04', {extra}0)")
            pond.catch_up(timeout=60)
            rows = {n for (n,) in pond.query("beside").invoke().rows()}
            assert rows >= {1, 5, 7, extra, extra * 10}
            assert 6 not in rows
            pond.wait_until_matched(timeout=60)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.6, 0.9])
def test_a_log_of_the_database_that_lost_its_end(tmp_path, kept):
    """What is left is the store as it was at some moment, and it goes on from there."""
    store = tmp_path / "store"
    pond = open_local(store)
    pond.execute("CREATE STREAM s (n BIGINT); CREATE QUERY q AS SELECT n FROM s WHERE n >= 0")
    pond.wait_until_matched()
    copy = tmp_path / "copy"
    copy.mkdir()
    database = (store / "pond.db").read_bytes()
    for n in range(20):
        pond.ingest("s", [{"n": n}])
    pond.wait_until_matched()
    wal = (store / "pond.db-wal").read_bytes()
    files = {f: f.read_bytes() for f in store.rglob("*") if f.is_file()}
    pond.close()
    for file, data in files.items():
        place = copy / file.relative_to(store)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    (copy / "pond.db").write_bytes(database)
    (copy / "pond.db-shm").unlink(missing_ok=True)
    (copy / "pond.db-wal").write_bytes(wal[: int(len(wal) * kept)])
    with open_local(copy) as again:
        again.wait_until_matched(timeout=60)
        if "segments/" in str(again.status()["problems"]):
            # What was merged or absorbed after that moment is missed, and said to be.
            assert refused(again.query("q").invoke).code == "STORE-602"
        elif again.streams():
            # A push that was absorbed after that moment is missed too, and what came before is not.
            numbers = [n for (n,) in again.query("q").invoke().rows()]
            assert numbers == list(range(len(numbers)))
        again.execute("CREATE STREAM fresh (n BIGINT); INSERT INTO fresh VALUES (1)")
        assert again.ask("SELECT n FROM fresh").rows() == [(1,)]


def test_a_pond_says_of_its_store_what_it_found(store, tmp_path):
    """Everything gone at once: every query says what it misses, and nothing else breaks."""
    for kind in ("segments", "matches", "relations"):
        for file in (store / kind).iterdir():
            file.unlink()
    with open_local(store) as pond:
        assert_all_refused(pond)
        pond.execute("CREATE STREAM fresh (n BIGINT); INSERT INTO fresh VALUES (1)")
        assert pond.ask("SELECT n FROM fresh").rows() == [(1,)]


def assert_all_refused(pond: Pond) -> None:
    for name in ("everything", "recent", "beside", "named"):
        assert refused(pond.query(name).invoke).code == "STORE-602"
