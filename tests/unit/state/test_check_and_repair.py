"""Checking and repairing: what is damaged is named, and what is whole is saved."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.errors import MillpondError
from millpond.state.check_and_repair.check import check_store
from millpond.state.check_and_repair.repair import repair_store
from millpond.testing.local_runtime import open_local

SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts;
CREATE RELATION names (n BIGINT, name STRING);
INSERT INTO names VALUES (1, 'one');
CREATE QUERY q AS SELECT n FROM s WHERE n > 0;
CREATE SUMMARY sn ON s (n) WITH GRANULARITY INTERVAL 1 SECOND AND COLLAPSE (2, 3) MEMORY '64 KB';
CREATE QUERY twice AS SELECT a.n FROM s [RANGE 1 DAY] a, s [RANGE 1 DAY] b WHERE a.n = b.n;
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, str]:
    """A store, and a cursor of its query `q`."""
    store = tmp_path_factory.mktemp("check_and_repair") / "store"
    with open_local(store) as pond:
        pond.execute(SCHEMA)
        pond.query("q").fetch()
        for n in range(1, 4):
            pond.ingest("s", [{"ts": f"2024-01-01 00:00:0{n}", "n": n}])
            pond.wait_until_matched()
        return store, pond.query("q").fetch().cursor


@pytest.fixture
def store(made, tmp_path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "store"))


def contents(store: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}


def damaged(store: Path) -> dict[str, int]:
    return {part.name: len(part.damage) for part in check_store(store).parts if part.damage}


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_a_whole_store_is_whole_and_checking_changes_nothing(store):
    before = contents(store)
    report = check_store(store)
    assert report.is_whole
    checked = {part.name: part.checked for part in report.parts}
    assert checked["segments"] >= 3
    assert checked["relations"] == 1
    assert checked["journal"] > 5
    assert contents(store) == before


@pytest.mark.parametrize(
    "place", ["segments", "relations", "matches", "runs", "pairs", "summaries"]
)
def test_a_changed_file_is_found_by_its_checksum(store, place):
    flip(sorted((store / place).iterdir())[0])
    assert damaged(store) == {place: 1}


def test_a_database_is_compared_with_what_the_journal_makes(store):
    database = store / "pond.db"
    database.write_bytes(database.read_bytes().replace(b'"name":"twice"', b'"name":"thrice"'[:14]))
    assert damaged(store) == {"database": 1}
    database.unlink()
    assert damaged(store) == {"database": 1}


@pytest.mark.parametrize("tail", [b"hello", b"\x00" * 99 + b"x", b"\x89MPX", b"x"])
def test_bytes_that_were_appended_to_the_journal_are_damage(store, tail):
    last = max((store / "journal").glob("*.log"))
    last.write_bytes(last.read_bytes() + tail)
    (part,) = [part for part in check_store(store).parts if part.damage]
    assert part.name == "journal"
    assert f"{len(tail)} bytes at its end are no record" in part.damage[0]


@pytest.mark.parametrize("tail", [b"\x89MPJ\x07", b"\x89", bytes(4096)])
def test_an_unfinished_record_is_no_damage(store, tail):
    last = max((store / "journal").glob("*.log"))
    last.write_bytes(last.read_bytes() + tail)
    report = check_store(store)
    assert report.is_whole
    says = next(part.says for part in report.parts if part.name == "journal")
    assert f"an unfinished record of {len(tail):,} bytes" in says


@pytest.mark.parametrize(
    ("format", "said"),
    [
        ("millpond store 1\n", "an older"),
        ("millpond store 2\n", "an older"),
        ("millpond store 3\n", "an older"),
        ("millpond store 99\n", "another"),
    ],
)
def test_a_store_of_another_format_is_not_called_damaged(store, tmp_path, format, said):
    (store / "FORMAT").write_text(format)
    for call in (lambda: check_store(store), lambda: repair_store(store, tmp_path / "new")):
        with pytest.raises(MillpondError, match=f"STORE-604.*{said} format") as raised:
            call()
        assert raised.value.hint
    assert not (tmp_path / "new").exists()


def test_a_format_that_cannot_be_read_is_damage(store):
    (store / "FORMAT").write_text("millpond stor")
    assert damaged(store) == {"FORMAT": 1}


def test_a_store_that_is_open_is_not_checked(store):
    with open_local(store), pytest.raises(MillpondError, match="STORE-601"):
        check_store(store)


def answers(store: Path) -> dict[str, list]:
    with open_local(store) as pond:
        assert pond.status()["problems"] == []
        pond.wait_until_matched()
        return {name: sorted(pond.query(name).invoke().rows()) for name in ("q", "twice")}


WHOLE = {"q": [(1,), (2,), (3,)], "twice": [(1,), (2,), (3,)]}


def test_a_database_that_is_gone_is_made_again(store, made, tmp_path):
    for file in store.glob("pond.db*"):
        file.unlink()
    before = contents(store)
    done = repair_store(store, tmp_path / "new")
    assert (done.lost, done.damage, done.source) == ([], [], "the journal")
    assert contents(store) == before
    assert check_store(tmp_path / "new").is_whole
    assert answers(tmp_path / "new") == WHOLE
    with open_local(tmp_path / "new") as pond:
        assert len(pond.query("q").fetch(after=made[1])) == 0


def test_where_the_journal_is_damaged_the_database_serves_and_cursors_do_not(store, made, tmp_path):
    flip(next((store / "journal").glob("*.log")))
    done = repair_store(store, tmp_path / "new")
    assert (done.lost, len(done.damage)) == ([], 1)
    assert answers(tmp_path / "new") == WHOLE
    with open_local(tmp_path / "new") as pond:
        with pytest.raises(MillpondError, match=r"(?s)POND-412.*repaired.*AFTER 'oldest'"):
            pond.query("q").fetch(after=made[1])
        pond.ingest("s", [{"ts": "2024-01-01 00:00:09", "n": 9}])
        pond.wait_until_matched()
        assert (9,) in pond.query("q").invoke().rows()


def test_where_both_are_damaged_the_journal_serves_up_to_there(store, tmp_path):
    flip(next((store / "journal").glob("*.log")))
    (store / "pond.db").write_bytes(b"not a database" * 100)
    done = repair_store(store, tmp_path / "new")
    assert len(done.lost) == 1
    assert "behind record" in done.lost[0]
    assert check_store(tmp_path / "new").is_whole


def test_a_segment_that_is_lost_is_said_to_be(store, tmp_path):
    lost = sorted((store / "segments").iterdir())
    for file in lost:
        file.unlink()
    done = repair_store(store, tmp_path / "new")
    assert len(done.lost) >= len(lost) - 1
    with (
        open_local(tmp_path / "new") as pond,
        pytest.raises(MillpondError, match="STORE-602"),
    ):
        pond.query("q").invoke()


def test_a_repair_never_writes_over_anything(store, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    for to in (tmp_path / "full", store / "new", store):
        with pytest.raises(MillpondError, match="STORE-604"):
            repair_store(store, to)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millpond.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_commands(store, tmp_path):
    shown = run("check", store)
    assert (shown.returncode, "The store is whole." in shown.stdout) == (0, True)
    flip(next((store / "journal").glob("*.log")))
    shown = run("check", store, "--format", "json")
    body = json.loads(shown.stdout)
    assert (shown.returncode, body["whole"]) == (1, False)
    assert [p["part"] for p in body["parts"] if p["damage"]] == ["journal", "database"]
    shown = run("repair", store, "--to", tmp_path / "new")
    assert (shown.returncode, "Damaged: journal/" in shown.stdout) == (0, True)
    assert run("check", tmp_path / "new").returncode == 0


def test_set_aside_is_cleaned_on_request(store):
    (store / "segments" / f"{0:032x}.arrow").touch()
    open_local(store).close()
    assert "removes what is not needed" in run("check", store).stdout
    assert run("check", store, "--clean").returncode == 0
    assert not [file for file in (store / "set_aside").rglob("*") if file.is_file()]


def test_a_damaged_summary_is_made_again_by_a_repair(store, tmp_path):
    flip(sorted((store / "summaries").iterdir())[0])
    done = repair_store(store, tmp_path / "new")
    assert not done.lost
    with open_local(tmp_path / "new") as pond:
        found = pond.execute("SELECT SUMMARY(sn).ESTIMATE.TOTAL() AS total FROM s LIMIT 1")
        assert found[0].answer.rows() == [(2.0,)]
    assert check_store(tmp_path / "new").is_whole
