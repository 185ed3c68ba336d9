"""History, then pushes: the answers are those of one stream that was pushed all the rows."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.errors import MillpondError
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

NOON = 1_772_366_400_000_000
BEGIN = datetime(2026, 3, 1, 10)
CUT = BEGIN + timedelta(minutes=30)
QUERIES = {
    "counts": "SELECT k, count(*) AS n, sum(v) AS s FROM s [RANGE 7 MINUTES] GROUP BY k",
    "last": "SELECT v FROM s [PARTITION BY k ROWS 2]",
    "large": "ISTREAM (SELECT k, v FROM s [NOW] WHERE v > 40)",
}


def make_rows(chance: random.Random, count: int = 120) -> list[dict[str, Any]]:
    """Rows of an hour, in order, each at an instant of its own."""
    seconds = sorted(chance.sample(range(3600), count))
    return [
        {"at": BEGIN + timedelta(seconds=s), "k": chance.randrange(3), "v": chance.randrange(60)}
        for s in seconds
    ]


def write_files(folder: Path, rows: list[dict[str, Any]], chance: random.Random) -> None:
    """Write rows into files, in no order."""
    folder.mkdir()
    mixed = chance.sample(rows, len(rows))
    for number in range(5):
        pq.write_table(pa.Table.from_pylist(mixed[number::5]), folder / f"{number}.parquet")


def push(pond: Any, rows: list[dict[str, Any]]) -> Any:
    return pond.ingest("s", [{**row, "at": row["at"].isoformat(" ")} for row in rows])


def read(pond: Any) -> dict[str, Any]:
    """The answers at some instants, and the changes, of all queries."""
    found: dict[str, Any] = {"large": pond.query("large").fetch().rows()}
    for name in ("counts", "last"):
        for minutes in (5, 29, 31, 59):
            at = BEGIN + timedelta(minutes=minutes)
            found[f"{name} {minutes}"] = sorted(pond.query(name).invoke(at).rows())
    return found


def define(pond: Any, using: str) -> None:
    pond.execute(f"CREATE STREAM s (at TIMESTAMP, k INT, v INT) TIMESTAMP BY at {using}")
    for name, text in QUERIES.items():
        pond.execute(f"CREATE QUERY {name} WITH (changes = 'from beginning') AS {text}")


def mean(tmp_path: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What one stream has to which all rows are pushed."""
    with open_local(tmp_path / "plain", clock=ManualClock(NOON)) as pond:
        define(pond, "")
        push(pond, rows)
        pond.catch_up()
        return read(pond)


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(20))])
@pytest.mark.parametrize("bounded", [True, False], ids=["read at the end", "read at once"])
def test_answers_are_those_of_one_stream(tmp_path, seed, bounded):
    """Files and pushes overlap around UNTIL; pushes may come before the history is read."""
    chance = random.Random(seed)
    rows = make_rows(chance)
    cut = sum(row["at"] < CUT for row in rows)
    write_files(tmp_path / "files", rows[: cut + 20], chance)
    meant = mean(tmp_path, rows)
    using = f"USING parquet OPTIONS (path '{tmp_path}/files') UNTIL TIMESTAMP '{CUT}' THEN push"
    for life in range(2):
        store, clock = tmp_path / "store", ManualClock(NOON)
        with open_local(store, clock=clock, bounded=bounded, batch_rows=7) as pond:
            if not life:
                define(pond, using)
                receipt = push(pond, rows[cut - 9 : cut + 30])
                assert (receipt.accepted, receipt.rejected) == (30, 9)
            else:
                push(pond, rows[cut + 30 :])
            pond.catch_up()
            if life:
                assert read(pond) == meant
                assert pond.ask("SELECT count(*) FROM s").rows() == [(len(rows),)]


def test_without_until_the_files_say_where_pushes_begin(tmp_path):
    chance = random.Random(3)
    rows = make_rows(chance)
    write_files(tmp_path / "files", rows[:70], chance)
    with open_local(tmp_path / "store", clock=ManualClock(NOON)) as pond:
        define(pond, f"USING parquet OPTIONS (path '{tmp_path}/files') THEN push")
        assert push(pond, rows[60:69]).rejected == 9
        push(pond, rows[70:])
        assert read(pond) == mean(tmp_path, rows)


def test_the_heartbeat_waits_for_the_history(tmp_path):
    """Before the files are read nothing is final, and nobody may say otherwise."""
    write_files(tmp_path / "files", make_rows(random.Random(4)), random.Random(4))
    with open_local(tmp_path / "store", clock=ManualClock(NOON), bounded=True) as pond:
        define(pond, f"USING parquet OPTIONS (path '{tmp_path}/files') THEN push")
        push(pond, [{"at": CUT + timedelta(days=1), "k": 1, "v": 1}])
        (state,) = pond.status()["streams"]
        assert (state["heartbeat"], state["state"]) == (None, "reads its history")
        with pytest.raises(MillpondError) as refused:
            pond.execute("HEARTBEAT s AT TIMESTAMP '2026-03-01 10:00:00'")
        assert refused.value.code == "POND-409"
        pond.catch_up()
        assert pond.ask("SELECT count(*) FROM s").rows() == [(121,)]
        assert pond.status()["streams"][0]["state"] == "running"


def test_files_that_come_later_are_not_read(tmp_path):
    rows = make_rows(random.Random(5))
    write_files(tmp_path / "files", rows[:50], random.Random(5))
    for life in range(2):
        with open_local(tmp_path / "store", clock=ManualClock(NOON)) as pond:
            if not life:
                define(pond, f"USING parquet OPTIONS (path '{tmp_path}/files') THEN push")
            pq.write_table(pa.Table.from_pylist(rows[50:]), tmp_path / "files" / f"x{life}.parquet")
            pond.catch_up()
            assert pond.ask("SELECT count(*) FROM s").rows() == [(50,)]


def test_a_description_says_what_is_read(tmp_path):
    write_files(tmp_path / "files", make_rows(random.Random(6)), random.Random(6))
    until = f"UNTIL TIMESTAMP '{CUT}' THEN push"
    with open_local(tmp_path / "store") as pond:
        define(pond, f"USING parquet OPTIONS (path '{tmp_path}/files') {until}")
        (described,) = pond.execute("DESCRIBE s")
        assert described.facts["source"] == "parquet, then pushes"
        assert described.facts["history until"] == str(CUT)
        (shown,) = pond.execute("SHOW CREATE STREAM s")
        assert until in shown.text
