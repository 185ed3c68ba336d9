"""State that outgrows its memory lies in files; no change differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

ROWS = 4_000
QUERIES = {
    "joined": "SELECT s.name, t.v FROM s [RANGE 60 SECONDS], t [RANGE 60 SECONDS] WHERE s.k = t.k"
    " AND t.v % 50 = 0",
    "grouped": "SELECT name, count(*) AS n, sum(v) AS total, median(v) AS middle FROM s"
    " [RANGE 60 SECONDS] GROUP BY name",
    "recent": "SELECT k, v FROM s [PARTITION BY k ROWS 3] WHERE v % 100 = 0",
    "lacking": "SELECT k, v FROM s [RANGE 60 SECONDS] WHERE v % 9 = 0 AND k NOT IN"
    " (SELECT k FROM t [RANGE 20 SECONDS] WHERE v % 7 = 0)",
}


def push(pond: Pond, first: int) -> None:
    places = np.arange(first, first + ROWS)
    rows = {
        "ts": pa.array(places // 50 * 1_000_000, pa.timestamp("us")),
        "k": places * 7 % 400,
        "v": places,
        "name": [f"number {place % 37}" for place in places.tolist()],
    }
    for stream in "st":
        pond.ingest(stream, pa.table(rows))
    pond.catch_up()


def open_with(folder: Path, memory: str) -> Pond:
    pond = open_local(folder, ManualClock())
    pond.execute(f"ALTER SYSTEM SET (memory = '{memory}')")
    for stream in "st":
        pond.execute(
            f"CREATE STREAM {stream} (ts TIMESTAMP, k BIGINT, v BIGINT, name STRING)"
            " TIMESTAMP BY ts"
        )
    for name, text in QUERIES.items():
        pond.execute(f"CREATE QUERY {name} WITH (changes = 'from beginning') AS {text}")
    return pond


def fetch_all(pond: Pond) -> dict[str, list[object]]:
    return {name: pond.query(name).fetch(limit=100_000).rows() for name in QUERIES}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[object]]]:
    """The changes of two steps, with memory for all state."""
    with open_with(tmp_path_factory.mktemp("wide") / "store", "1 GB") as pond:
        found = []
        for first in (0, ROWS):
            push(pond, first)
            found.append(fetch_all(pond))
        held = pond.entities.one("memory:all").figures
        assert held["bytes"] > 500_000
        assert held["bytes in files"] == 0
        return found


def test_state_without_memory_lies_in_files_and_gives_the_same_changes(
    tmp_path: Path, expected: list[dict[str, list[object]]]
) -> None:
    with open_with(tmp_path / "store", "1 KB") as pond:
        push(pond, 0)
        assert fetch_all(pond) == expected[0]
        assert all(expected[0].values())
        held = pond.entities.one("memory:all").figures
        assert held["bytes in files"] > 500_000
        assert held["bytes"] < 200_000
        # The files have no names: they end with the process.
        assert list((tmp_path / "store" / "scratch").iterdir()) == []
        pond.entities.set("memory:all", {"memory": "1 GB"})
        push(pond, ROWS)
        assert fetch_all(pond) == expected[1]
        assert pond.entities.one("memory:all").figures["bytes in files"] == 0
        asked = "SELECT before, after, measured > 100 AS much FROM system$actions"
        assert pond.ask(f"{asked} WHERE action = 'spill'").rows() == [
            (0.0, 1.0, True),
            (1.0, 0.0, False),
        ]
        # One operator may have little memory of its own.
        (join,) = [e for e in pond.entities.every() if e.id.startswith("operator:join.")]
        assert join.figures["bytes in files"] == 0
        assert join.figures["rows"] > ROWS // 2
        pond.entities.set(join.id, {"memory": "1 KB"})
        push(pond, 2 * ROWS)
        pond.query("joined").fetch()
        held = pond.entities.one(join.id).figures
        assert held["bytes in files"] > 100_000 > held["bytes"]
        everything = pond.entities.one("memory:all").figures
        assert everything["bytes in files"] == held["bytes in files"]


def test_beyond_the_limit_the_lightest_queries_are_suspended_and_catch_up(
    tmp_path: Path, expected: list[dict[str, list[object]]]
) -> None:
    with open_with(tmp_path / "store", "1 KB") as pond:
        for name in ("grouped", "recent"):  # one dataflow; the others are another
            pond.execute(f"ALTER QUERY {name} SET (weight = 3)")
        pond.execute("ALTER QUERY lacking SET (weight = 2)")
        push(pond, 0)
        assert fetch_all(pond) == expected[0]
        size = pond.entities.one("memory:all").figures
        needed = size["bytes"] + size["bytes in files"]
        pond.execute(f"ALTER SYSTEM SET (state_limit = '{needed // 1250} KB')")
        push(pond, ROWS)
        with pytest.raises(MillpondError) as caught:
            pond.query("joined").fetch()
        assert "state_limit" in str(caught.value)
        for name in ("grouped", "recent", "lacking"):
            assert pond.query(name).fetch(limit=100_000).rows() == expected[1][name]
        steps = "SELECT name, before, after FROM system$actions WHERE action = 'suspend'"
        assert pond.ask(steps).rows() == [("joined", 0.0, 1.0)]
        pond.execute("ALTER SYSTEM SET (state_limit = 'unbounded')")
        assert pond.query("joined").fetch(limit=100_000).rows() == expected[1]["joined"]
        assert pond.ask(steps).rows() == [("joined", 0.0, 1.0), ("joined", 1.0, 0.0)]


def test_texts_in_files_are_made_again_when_a_pond_is_opened_again(tmp_path: Path) -> None:
    queries = {
        "extremes": "SELECT k, min(t) AS low, max(t) AS high FROM u [RANGE 60 SECONDS] GROUP BY k",
        "first": "SELECT t FROM u [RANGE 60 SECONDS] ORDER BY t LIMIT 5",
    }

    def play(folder: Path, memory: str) -> tuple[list[object], dict[str, Any]]:
        """Push twice, and open the pond again in between; return all changes."""
        found: list[object] = []
        for first in (0, ROWS):
            with open_local(folder, ManualClock()) as pond:
                if not first:
                    pond.execute(f"ALTER SYSTEM SET (memory = '{memory}')")
                    pond.execute(
                        "CREATE STREAM u (ts TIMESTAMP, k BIGINT, t STRING) TIMESTAMP BY ts"
                    )
                    for name, text in queries.items():
                        pond.execute(
                            f"CREATE QUERY {name} WITH (changes = 'from beginning') AS {text}"
                        )
                places = np.arange(first, first + ROWS)
                rows = {
                    "ts": pa.array(places // 50 * 1_000_000, pa.timestamp("us")),
                    "k": places * 7 % 400,
                    "t": [f"{place * 7919 % 100_003} is a text" for place in places.tolist()],
                }
                pond.ingest("u", pa.table(rows))
                pond.catch_up()
                found += [pond.query(name).fetch(limit=100_000).rows() for name in queries]
                held = pond.entities.one("memory:all").figures
        return found, held

    expected, plain = play(tmp_path / "wide", "1 GB")
    found, little = play(tmp_path / "narrow", "1 KB")
    assert found == expected
    assert all(found)
    assert plain["bytes in files"] == 0
    assert little["bytes in files"] > 500_000 > 4 * little["bytes"]
