"""Aggregates merged from segments equal those computed from rows, whatever happens in between."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.service.conftest import components_of

from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.service.answers import segment_aggregates
from millpond.service.handles import Handle
from millpond.service.maintenance import aggregate_maintenance
from millpond.service.pond import Pond
from millpond.state.aggregate_file import list_files
from millpond.state.arrow_file import forget
from millpond.state.check_and_repair.check import check_store
from millpond.synopses import blocked_totals
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
STREAM = (
    "CREATE STREAM s (ts TIMESTAMP, a BIGINT, i TINYINT, x DOUBLE, f FLOAT, d DECIMAL(18,3),"
    " n DATE, b BOOLEAN, w STRING) TIMESTAMP BY ts DELAY INTERVAL 20 SECONDS"
)
CALLS = (
    "count(*) AS c, count(1), count(w), count(a), sum(a), avg(a), min(a), max(a), sum(i), avg(i),"
    " min(i), sum(x), avg(x), min(x), max(x), sum(f), max(f), sum(d), avg(d), min(d), max(d),"
    " min(n), max(n), count(n), sum(b), min(b), max(b), min(ts), max(ts)"
)
WINDOWS = (
    "[RANGE 7 SECONDS]",
    "[RANGE 60 SECONDS]",
    "[RANGE UNBOUNDED]",
    "[NOW]",
    "[RANGE 20 SECONDS SLIDE 8 SECONDS]",
    "[RANGE 30 SECONDS WHERE a > 0]",
)
PREDICATES = ("true", "i < 3", "i = 1", "w LIKE 'a%'", "i > 100")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four matches; every segment of two rows has files."""
    monkeypatch.setattr(blocked_totals, "BLOCK", 4)
    monkeypatch.setattr(segment_aggregates, "_FEW_ROWS", 3)
    monkeypatch.setattr(aggregate_maintenance, "STORED_ROWS", 2)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "store"
    shutil.rmtree(tmp_path / "store", ignore_errors=True)


def element(at: int, number: int) -> dict[str, Any]:
    """An element; sums of its doubles are exact however they are added up."""
    nothing = number % 5 == 0
    return {
        "ts": to_datetime(at * SECOND),
        "a": None if nothing else (number - 50) * (2**56 if number % 3 else 1),
        "i": number % 7,
        "x": None if number % 4 == 0 else (number - 40) * 0.25,
        "f": number * 0.5,
        "d": None if nothing else Decimal(number - 30) / 8,
        "n": None if nothing else date(2000, 1, 1 + number % 28),
        "b": number % 2 == 0,
        "w": None if number % 6 == 0 else f"{'ab'[number % 2]}{number}",
    }


def compare(pond: Pond, handle: Handle, at: int | None = None) -> None:
    """Compare an answer with that of the same query computed by DuckDB over the window's rows."""
    text = pond.query(handle.name).definition.text
    other = pond.register(f"{text} HAVING true")
    try:
        found, expected = handle.invoke(at), other.invoke(at)
    finally:
        other.unregister()
    assert found.table.schema == expected.table.schema
    assert found.table.equals(expected.table), text
    assert found.rows()[0] == pond.ask(text).rows()[0] or at is not None


def damage(file: Path) -> None:
    """Damage a file that another process will open."""
    forget(file)
    file.unlink()
    file.write_bytes(b"damaged")


STEP = st.one_of(
    st.tuples(st.just("push"), st.integers(1, 25), st.integers(0, 25)),
    st.tuples(st.just("maintain"), st.just(0), st.just(0)),
    st.tuples(st.just("reopen"), st.just(0), st.just(0)),
    st.tuples(st.just("compare"), st.integers(-5, 60), st.just(0)),
    st.tuples(st.just("drop"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("damage"), st.integers(0, 9), st.just(0)),
)


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.lists(STEP, min_size=3, max_size=12),
    st.lists(
        st.tuples(st.sampled_from(WINDOWS), st.sampled_from(PREDICATES)), min_size=1, max_size=4
    ),
)
def test_answers_are_those_computed_from_rows(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], queries: list[tuple[str, str]]
) -> None:
    directory = tmp_path_factory.mktemp("pond") / "store"
    pond = open_local(directory, clock=ManualClock(SECOND))
    pond.execute(STREAM)
    handles = [
        pond.register(f"SELECT {CALLS} FROM s {window} WHERE {predicate}").name
        for window, predicate in queries
    ]
    number, latest = 0, 20
    for kind, size, back in [*steps, ("maintain", 0, 0), ("compare", 3, 0)]:
        match kind:
            case "push":
                instants = [latest - back + i % (back + 3) for i in range(size)]
                pond.ingest("s", [element(t, number + i) for i, t in enumerate(instants)])
                number, latest = number + size, latest + 2
            case "maintain":
                pond.wait_until_matched()
            case "reopen":
                pond.close()
                pond = open_local(directory, clock=ManualClock(SECOND))
            case "drop" if len(handles) > 1:
                pond.query(handles.pop(size % len(handles))).unregister()
            case "damage":
                files = list(list_files(directory))
                if files:
                    pond.close()
                    damage(files[size % len(files)])
                    pond = open_local(directory, clock=ManualClock(SECOND))
            case "compare":
                for name in handles:
                    compare(pond, pond.query(name))
                    compare(pond, pond.query(name), (latest - size) * SECOND)
    pond.close()
    shutil.rmtree(directory)


@pytest.fixture
def pond(directory: Path) -> Iterator[Pond]:
    pond = open_local(directory, clock=ManualClock(SECOND))
    pond.execute(STREAM)
    for start in range(0, 60, 6):
        pond.ingest("s", [element(start + i // 4, start + i) for i in range(40)])
    yield pond
    pond.close()


def files(pond: Pond) -> list[Path]:
    return list(list_files(components_of(pond)._store.directory))


def test_maintenance_writes_totals_and_the_last_query_takes_them_along(pond: Pond) -> None:
    one = pond.register("SELECT sum(a) AS n FROM s [RANGE 1 HOUR] WHERE i < 3")
    other = pond.register("SELECT avg(a) AS n FROM s [RANGE 5 SECONDS] WHERE i < 3")
    pond.wait_until_matched()
    segments = components_of(pond).log.version.segments(one_stream(pond))
    assert len(files(pond)) == len(segments)
    one.unregister()
    pond.wait_until_matched()
    assert len(files(pond)) == len(segments)
    compare(pond, other)
    other.unregister()
    pond.wait_until_matched()
    assert files(pond) == []
    kept = components_of(pond).invoker.totals
    assert not any(kept._opened.values())
    assert not any(node.totals for forest in kept._forests.values() for node in forest.nodes())


def one_stream(pond: Pond) -> int:
    (stream,) = components_of(pond).log.version.named_streams()
    return stream.id


def test_a_query_asked_once_leaves_nothing_behind(pond: Pond) -> None:
    text = "SELECT count(*) AS n, sum(i) AS s FROM s WHERE i < 3"
    assert pond.ask(text).rows() == pond.ask(f"{text} HAVING true").rows()
    pond.wait_until_matched()
    kept = components_of(pond).invoker.totals
    assert files(pond) == []
    assert not any(kept._opened.values())


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("calls", ["count(*) AS n", "count(*) AS n, max(x)"])
def test_a_predicate_without_a_slot_is_applied(pond: Pond, window: str, calls: str) -> None:
    for predicate in PREDICATES:
        text = f"SELECT {calls} FROM s {window} WHERE {predicate}"
        expected = pond.ask(f"{text} HAVING true").rows()
        assert pond.ask(text).rows() == expected
        assert pond.register(text, materialize="none").invoke().rows() == expected


def test_rejects_are_counted(pond: Pond) -> None:
    pond.ingest("s", [{"ts": to_datetime(99 * SECOND), "a": "x"}, {"a": 1}, {"i": 1}])
    for where in ("", "WHERE reason LIKE '%a%'"):
        text = f"SELECT count(*) AS n, max(rejected_at) AS last FROM s$rejects {where}"
        assert pond.ask(text).rows() == pond.ask(f"{text} HAVING true").rows()
        assert pond.register(text).invoke().rows() == pond.ask(text).rows()


def test_stored_totals_are_used(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = pond.register("SELECT sum(a) AS n FROM s WHERE i < 3")
    pond.wait_until_matched()

    def fail(*_: Any) -> None:
        raise AssertionError("totals are computed again")

    monkeypatch.setattr(segment_aggregates, "compute_blocks", fail)
    monkeypatch.setattr(segment_aggregates, "compute_totals", fail)
    compare(pond, handle)


def test_files_that_are_gone_are_held_open_by_no_answer(
    pond: Pond, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_aggregates, "_FEW_ROWS", 0)
    handle = pond.register("SELECT sum(a) AS n FROM s [RANGE 5 SECONDS] WHERE i < 3")
    for at in range(60):  # while maintenance merges
        pond.ingest("s", [element(70 + at + back, at) for back in (0, -3, -6)])
        compare(pond, handle)
    pond.wait_until_matched()
    maps = Path("/proc/self/maps").read_text().splitlines()
    folders = [f"{directory}/{folder}/" for folder in ("segments", "matches", "aggregates")]
    held = [line for line in maps if any(folder in line for folder in folders)]
    assert held
    assert not [line for line in held if "(deleted)" in line]


@pytest.mark.parametrize("ends", ["min(x) AS n", "max(x) AS n, count(*) AS c", "min(f) AS n"])
def test_a_sum_is_asked_behind_the_ends_of_its_column(pond: Pond, ends: str) -> None:
    column = ends[4]
    calls = (ends, f"sum({column}) AS n", f"avg({column}) AS n", ends)
    handles = [
        pond.register(f"SELECT {call} FROM s [RANGE 9 SECONDS] WHERE i < 5") for call in calls
    ]
    pond.wait_until_matched()
    for at in range(0, 60, 7):
        for handle in handles:
            compare(pond, handle, at * SECOND)


def test_check_says_which_file_is_damaged_and_it_is_made_again(pond: Pond, directory: Path) -> None:
    pond.register("SELECT sum(a) AS n FROM s WHERE i < 3", name="q")
    pond.wait_until_matched()
    file = files(pond)[0]
    pond.close()
    damage(file)
    (part,) = [p for p in check_store(directory).parts if p.name == "aggregates"]
    assert part.damage == [f"aggregates/{file.name}: Its bytes are not those that were written."]
    again = open_local(directory, clock=ManualClock(SECOND))
    again.wait_until_matched()
    compare(again, again.query("q"))
    again.close()
    assert check_store(directory).is_whole
    assert file.exists()


def test_a_predicate_that_fails_outside_the_window_does_no_harm(pond: Pond) -> None:
    pond.ingest("s", [{**element(70, 1), "w": "x"}])
    pond.ingest("s", [{**element(71 + i, 1), "w": "7"} for i in range(12)])
    text = "SELECT sum(a) AS n FROM s [RANGE 5 SECONDS] WHERE CAST(w AS INTEGER) = 7"
    assert pond.ask(text).rows() == pond.ask(f"{text} HAVING true").rows()
    with pytest.raises(MillpondError, match="POND-404"):
        pond.ask(text.replace("[RANGE 5 SECONDS]", ""))


def test_retention_takes_the_totals_along(directory: Path) -> None:
    pond = open_local(directory, clock=ManualClock(SECOND))
    pond.execute(f"{STREAM} RETAIN INTERVAL 30 SECONDS")
    handle = pond.register("SELECT sum(a) AS n, count(*) FROM s [RANGE 10 SECONDS] WHERE i < 3")
    for start in range(0, 200, 20):
        pond.ingest("s", [element(start + i // 2, start + i) for i in range(40)])
        pond.wait_until_matched()
        compare(pond, handle)
    segments = components_of(pond).log.version.segments(one_stream(pond))
    assert len(segments) < 10
    stems = {Path(segment.path).stem for segment in segments}
    assert {file.name.split(".")[0] for file in files(pond)} <= stems
    with pytest.raises(MillpondError, match="POND-403"):
        handle.invoke(5 * SECOND)
    pond.close()


def test_explain_says_what_is_kept_and_opened(pond: Pond) -> None:
    handle = pond.register("SELECT sum(a) AS n FROM s [RANGE 5 SECONDS] WHERE i < 3")
    pond.register("SELECT max(a) AS n FROM s WHERE i < 3")
    pond.wait_until_matched()
    handle.invoke()
    text = pond.explain(handle.name, "runtime")
    for expected in (
        "aggregates sum(a) (merged from the segments' totals, at invocation)",
        "shared by: 2",
        "segments at the window's edges:",
        "bytes on disk:",
        "bytes in memory:",
    ):
        assert expected in text
