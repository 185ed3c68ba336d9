"""Aggregates by group merged from segments, against DuckDB over the same rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from millpond.service.answers import grouped_aggregates
from millpond.service.pond import Pond
from millpond.state.aggregate_file import read_totals
from millpond.synopses.group_totals import GroupTotals
from millpond.testing.local_runtime import open_local

_SECOND = 1_000_000
_SIZE = 60_000


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    pond = open_local(tmp_path_factory.mktemp("groups") / "store")
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, name STRING, k INTEGER, v BIGINT, d DECIMAL(9, 2),"
        " x DOUBLE, at DATE) TIMESTAMP BY ts"
    )
    rng = np.random.default_rng(11)
    absent = rng.random(_SIZE) < 0.1
    rows = pa.table(
        {
            "ts": pa.array(np.sort(rng.integers(0, 10_000 * _SECOND, _SIZE)), pa.timestamp("us")),
            "name": pa.array([f"n{i}" for i in rng.integers(0, 9, _SIZE)], mask=absent),
            "k": pa.array(rng.integers(0, 5, _SIZE), pa.int32()),
            "v": pa.array(rng.integers(-(2**62), 2**62, _SIZE), mask=rng.random(_SIZE) < 0.3),
            "d": pa.array(rng.integers(-(10**6), 10**6, _SIZE) / 100).cast(pa.decimal128(9, 2)),
            "x": pa.array(rng.normal(0, 1, _SIZE)),
            "at": pa.array(rng.integers(0, 1_000, _SIZE), pa.int32()).cast(pa.date32()),
        }
    )
    for start in range(0, _SIZE, 20_000):
        pond.ingest("s", rows.slice(start, 20_000))
    yield pond
    pond.close()


_BODIES = (
    "name, count(*), count(v), sum(v), avg(v), min(v), max(v) FROM s {window} {where}"
    " GROUP BY name",
    "k, max(x) AS x, name, avg(d), sum(d), min(at), count(1) FROM s {window} {where}"
    " GROUP BY name, k",
    "max(at), sum(k) FROM s {window} {where} GROUP BY k",
)


@pytest.mark.parametrize("where", ["", "WHERE v > 0 AND k < 4", "WHERE x > 99"])
@pytest.mark.parametrize("body", _BODIES)
def test_merged_values_are_those_of_rows(
    pond: Pond, body: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[object] = []
    finish = grouped_aggregates.finish_groups
    monkeypatch.setattr(
        grouped_aggregates, "finish_groups", lambda *of: finished.append(of) or finish(*of)
    )
    for window in ("[RANGE 7500 SECONDS]", "[RANGE UNBOUNDED]"):
        text = f"SELECT {body.format(window=window, where=where)}"
        merged, rows = pond.register(text), pond.register(f"{text} HAVING true")
        pond.wait_until_matched()
        for at in (0, 1_500, 5_000, 8_000, 10_000):
            answer, expected = merged.invoke(at * _SECOND), rows.invoke(at * _SECOND)
            assert answer.table.schema.types == expected.table.schema.types
            assert sorted(map(repr, answer.rows())) == sorted(map(repr, expected.rows()))
        merged.unregister()
        rows.unregister()
    # Where most rows are at the edges, they are read; of no rows, most are nowhere.
    assert 0 < len(finished) <= (8 if "99" in where else 5)


def test_sums_of_doubles_and_other_clauses_are_computed_from_rows(pond: Pond) -> None:
    for text in (
        "SELECT k, sum(x) FROM s GROUP BY k",
        "SELECT x, count(*) FROM s GROUP BY x",
        "SELECT k, count(*) FROM s GROUP BY k HAVING count(*) > 1",
        "SELECT k + 1, count(*) FROM s GROUP BY k",
        "SELECT k, count(DISTINCT v) FROM s GROUP BY k",
        "SELECT k, count(*) FROM s GROUP BY ROLLUP (k)",
        "SELECT k, count(*) FROM s [ROWS 9] GROUP BY k",
        "SELECT k, count(*) FROM s GROUP BY k LIMIT 1",
        "SELECT DISTINCT k, count(*) FROM s GROUP BY k, name",
    ):
        assert pond._components.registrar.bind(text).grouped is None, text


def test_many_groups_are_answered_from_rows(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    query = pond.register("SELECT v, count(*) FROM s GROUP BY v")
    few = pond.register("SELECT at, count(*) FROM s GROUP BY at")
    pond.wait_until_matched()
    monkeypatch.setattr(
        grouped_aggregates, "finish_groups", lambda *of: pytest.fail("from totals by group")
    )
    assert len(query.invoke().rows()) > 30_000
    monkeypatch.setattr(grouped_aggregates, "MOST_GROUPS", 999)
    assert len(few.invoke().rows()) == 1_000
    query.unregister()
    few.unregister()


def test_totals_by_group_are_kept_in_files_and_explained_and_dropped(pond: Pond) -> None:
    query = pond.register("SELECT name, sum(v) FROM s GROUP BY name", "totals")
    pond.wait_until_matched()
    directory = pond._components._store.directory / "aggregates"
    kept = [value for file in directory.iterdir() for value in read_totals(file).values()]
    assert kept
    assert all(isinstance(value, GroupTotals) and value.table.num_rows == 10 for value in kept)
    text = str(pond.execute("EXPLAIN RUNTIME totals")[0].text)
    assert "segments at the window's edges: 0" in text
    assert f"stored totals: {len(kept)} of {len(kept)} large segments" in text
    query.unregister()
    pond.wait_until_matched()
    assert list(directory.iterdir()) == []
