"""The `approx_…` functions merged from segments, against DuckDB over the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.waiting import wait_until

from millpond.model.loss import Bounds
from millpond.service.maintenance import aggregate_maintenance
from millpond.service.pond import Pond
from millpond.state import aggregate_file
from millpond.state.aggregate_file import read_totals
from millpond.testing.local_runtime import open_local

_SECOND = 1_000_000
_SIZE = 60_000


def _rows() -> pa.Table:
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "ts": pa.array(np.sort(rng.integers(0, 10_000 * _SECOND, _SIZE)), pa.timestamp("us")),
            "name": pa.array([f"n{i}" for i in rng.integers(0, 30_000, _SIZE)]),
            "v": pa.array(rng.integers(-(2**40), 2**40, _SIZE), mask=rng.random(_SIZE) < 0.1),
            "k": pa.array(rng.integers(-5, 100, _SIZE), pa.int32()),
            "d": pa.array(rng.integers(-(10**6), 10**6, _SIZE) / 100).cast(pa.decimal128(9, 2)),
            "x": pa.array(rng.normal(0, 1, _SIZE) * 10.0 ** rng.integers(-300, 300, _SIZE)),
        }
    )


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    pond = open_local(tmp_path_factory.mktemp("approximate") / "store")
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, name STRING, v BIGINT, k INTEGER, d DECIMAL(9, 2),"
        " x DOUBLE) TIMESTAMP BY ts"
    )
    rows = _rows()
    for start in range(0, _SIZE, 20_000):
        pond.ingest("s", rows.slice(start, 20_000))
    yield pond
    pond.close()


_CALLS = (
    "approx_quantile(v, 0.5), approx_quantile(d, 0.99), approx_quantile(x, 0.01), count(*),"
    " approx_count_distinct(name), approx_count_distinct(v), approx_count_distinct(d),"
    " approx_count_distinct(ts), approx_count_distinct(x), approx_count(name, 'n7'),"
    " approx_count(v, -5), approx_count(k, 3), approx_count(k, -3), sum(v), max(x)"
)


@pytest.mark.parametrize("where", ["", "WHERE v > 0", "WHERE name < 'n2' AND x > 0"])
def test_merged_values_are_those_of_rows(pond: Pond, where: str) -> None:
    for window in ("[RANGE 2000 SECONDS]", "[RANGE UNBOUNDED]"):
        merged = pond.register(f"SELECT {_CALLS} FROM s {window} {where}")
        rows = pond.register(
            f"SELECT {_CALLS} FROM (SELECT * FROM s {window} {where}) t HAVING true"
        )
        pond.wait_until_matched()
        for at in (1_500, 5_000, 9_999):
            instant = at * _SECOND
            assert merged.invoke(instant).rows() == rows.invoke(instant).rows()
        merged.unregister()
        rows.unregister()


def test_an_answer_says_how_far_it_may_be_off(pond: Pond) -> None:
    answer = pond.ask(
        "SELECT approx_count_distinct(name) AS names, approx_quantile(v, 0.5) AS half, count(*) AS"
        " n, approx_quantile(x, 0.5) + 1 AS more, count(DISTINCT name) AS exactly FROM s"
    )
    (names, half, _, _, exactly) = answer.rows()[0]
    assert answer.exact
    assert answer.bounds == Bounds(
        0.95,
        {
            "names": [(names / 1.02, names / 0.98)],
            "half": [tuple(sorted((half / 1.02, half / 0.98)))],  # type: ignore[list-item]
        },
    )
    assert names / 1.02 <= exactly <= names / 0.98
    assert exactly > 10_000


def test_a_value_is_counted_from_the_segments(pond: Pond) -> None:
    text = "SELECT approx_count(k, 3) AS n, approx_count(k, -3) AS m FROM s"
    calls = pond._components.registrar.bind(text).aggregates
    assert calls is not None
    assert [call.value for call in calls] == [3, -3]
    exact = pond.ask("SELECT count(*) FILTER (WHERE k = 3), count(*) FILTER (WHERE k = -3) FROM s")
    assert pond.ask(text).rows() == exact.rows()
    # Elsewhere it is computed from rows: of constants that are of another type than the column.
    for other in ("approx_count(x, 1.5)", "approx_count(k, 3000000000)", "approx_count(d, 1)"):
        assert pond._components.registrar.bind(f"SELECT {other} AS n FROM s").aggregates is None


def test_sketches_are_kept_in_files_and_dropped_with_their_query(
    pond: Pond, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = pond.register("SELECT approx_count_distinct(name), approx_quantile(x, 0.5) FROM s")
    pond.wait_until_matched()
    directory = pond._components._store.directory / "aggregates"
    wanted = {("name", "approx_count_distinct"), ("x", "approx_quantile")}

    def are_kept() -> bool:
        segments = pond._components.log.version.segments_by_id.values()  # they are merged meanwhile
        large = sum(segment.rows >= aggregate_maintenance.STORED_ROWS for segment in segments)
        files = [read_totals(file) for file in directory.iterdir()]
        kept = [{(m.column, m.sketch) for m in measured} for measured in files]
        return kept == [wanted] * large and large > 0

    wait_until(are_kept)  # files that other queries wanted may still be there
    query.unregister()
    pond.wait_until_matched()
    wait_until(lambda: list(directory.iterdir()) == [])


def test_sketches_of_another_version_of_duckdb_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "SELECT approx_count_distinct(name), approx_quantile(v, 0.5) FROM s"
    directory = tmp_path / "store" / "aggregates"
    with monkeypatch.context() as patch:
        older = aggregate_file._SCHEMA.with_metadata({"duckdb": "0.0.1"})
        patch.setattr(aggregate_file, "_SCHEMA", older)
        with open_local(tmp_path / "store") as pond:
            pond.execute("CREATE STREAM s (ts TIMESTAMP, name STRING, v BIGINT) TIMESTAMP BY ts")
            pond.ingest("s", _rows().select(["ts", "name", "v"]))
            wanted = pond.register(text, "q").invoke().rows()
            pond.wait_until_matched()
    before = {file.name for file in directory.iterdir()}
    assert before
    with open_local(tmp_path / "store") as pond:
        assert pond.query("q").invoke().rows() == wanted
        pond.wait_until_matched()
        after = {file.name for file in directory.iterdir()}
        assert after
        assert not after & before
        assert all(read_totals(file) for file in directory.iterdir())
