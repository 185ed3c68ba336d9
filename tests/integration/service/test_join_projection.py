"""Which joins are answered straight from their pairs, and what is checked if keys were hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from millpond.engine.joins import projection as join_projection
from millpond.engine.joins.projection import JoinProjection
from millpond.engine.scalars.residual_query import Limits, Residual
from millpond.errors import MillpondError
from millpond.service.pond import Pond

STREAM = "CREATE STREAM {} (ts TIMESTAMP, k INTEGER, v INTEGER, s STRING, h DECIMAL(38, 0))"


@pytest.fixture
def pond(pond: Pond) -> Pond:
    for name in "ab":
        pond.execute(f"{STREAM.format(name)} TIMESTAMP BY ts")
        pond.ingest(name, [{"ts": "2024-01-01", "k": 1, "v": 2, "s": "x", "h": 7}])
    pond.execute("CREATE STREAM c (ts TIMESTAMP, k INTEGER, s STRING) TIMESTAMP BY ts")
    pond.ingest("c", [{"ts": "2024-01-01", "k": 1, "s": "x"}])
    return pond


STRAIGHT = (
    "SELECT a.v, b.v FROM a, b WHERE a.k = b.k",
    "SELECT * FROM c JOIN c d ON c.k = d.k AND c.k < 2 WHERE d.s LIKE '%x'",
    "SELECT c.*, a.v FROM c, a WHERE c.k = a.k",
    "SELECT b.s AS x, a.k FROM a, b WHERE a.s = b.s AND a.k = b.k",
    "SELECT x.v, y.v FROM a [RANGE 1 DAY] x, a y WHERE x.k <= y.k",
    "SELECT a.v FROM a, b WHERE b.ts BETWEEN a.ts - INTERVAL 1 HOUR AND a.ts + INTERVAL 1 HOUR",
    "SELECT a.v FROM a, b BEGIN NOW - INTERVAL 1 DAY END NOW WHERE a.v = b.v",
)
BY_DUCKDB = (
    "SELECT a.v + 1 AS n FROM a, b WHERE a.k = b.k",
    "SELECT a.v FROM a, b WHERE a.k = b.k AND a.v + b.v > 1",
    "SELECT a.v FROM a, b WHERE a.k + 1 = b.k + 1",
    "SELECT a.v FROM a [ROWS 2], b WHERE a.k = b.k AND a.v > 1",
    "SELECT DISTINCT a.v FROM a, b WHERE a.k = b.k",
    "SELECT a.v FROM a, b WHERE a.k = b.k ORDER BY a.v",
    "SELECT a.v FROM a, b WHERE a.k = b.k LIMIT 1",
    "SELECT count(*) AS n FROM a, b WHERE a.k = b.k",
    "SELECT a.h FROM a, b WHERE a.k = b.k",
    "SELECT a.v FROM a, b WHERE upper(a.s) = upper(b.s)",
    "SELECT a.v FROM a, b WHERE a.k = b.k AND a.v IN (SELECT v FROM b)",
    "SELECT a.v FROM a LEFT JOIN b ON a.k = b.k",
)


@pytest.mark.parametrize("text", [*STRAIGHT, *BY_DUCKDB])
@pytest.mark.parametrize("mode", ["lazy", "none"])
def test_what_needs_no_duckdb(
    pond: Pond, monkeypatch: pytest.MonkeyPatch, text: str, mode: str
) -> None:
    query = pond.register(text, materialize=mode)
    pond.wait_until_matched()
    asked: list[str] = []
    evaluate = Residual.evaluate

    def noted(self: Residual, sql: str, *arguments: object) -> pa.Table:
        asked.append(sql)
        return evaluate(self, sql, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Residual, "evaluate", noted)
    assert len(query.invoke().rows()) == 1
    assert bool(asked) == (text in BY_DUCKDB)


@dataclass
class _Rows:
    """Joined rows that were found by hashes, of which the second is no pair."""

    count: int = 3

    def take(
        self, leaf: int, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> pa.Table:
        table = pa.table({"k": [["a", "b", None], ["a", "c", None]][leaf], "v": [1, 2, 3]})
        return table.select(list(columns))[start : min(stop or 3, self.count)]


def test_what_was_found_by_hashes_is_compared() -> None:
    projection = JoinProjection(((1, "v"),), ("v",), (((0, "k"), (1, "k")),))
    assert projection.project(_Rows(), Limits()).to_pydict() == {"v": [1]}
    assert projection.project(_Rows(), Limits(rows=1)).num_rows == 1


@pytest.mark.parametrize("equal", [(), (((0, "v"), (1, "v")),)])
def test_an_answer_has_its_limit(equal: tuple) -> None:
    projection = JoinProjection(((0, "v"), (1, "k")), ("x", "y"), equal)
    assert projection.project(_Rows(), Limits(rows=3)).column_names == ["x", "y"]
    with pytest.raises(MillpondError, match="POND-405"):
        projection.project(_Rows(), Limits(rows=2))
    with pytest.raises(MillpondError, match="larger than 0 MiB"):
        projection.project(_Rows(), Limits(memory=10))


def test_an_answer_is_taken_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_projection, "_FIRST", 2)
    projection = JoinProjection(((0, "v"), (1, "k")), ("x", "y"), ())
    assert projection.project(_Rows(), Limits()).to_pydict() == {
        "x": [1, 2, 3],
        "y": ["a", "c", None],
    }


def test_wide_rows_are_never_taken_all_at_once() -> None:
    """A text of a megabyte in each of ten thousand pairs is ten gigabytes."""

    @dataclass
    class Wide:
        count: int = 10_000
        most: int = 0

        def take(
            self, leaf: int, columns: Sequence[str], start: int = 0, stop: int | None = None
        ) -> pa.Table:
            rows = min(stop or self.count, self.count) - start
            self.most = max(self.most, rows)
            return pa.table({"s": pa.repeat("x" * (1 << 20), 1).take(pa.array([0] * rows))})

    wide = Wide()
    with pytest.raises(MillpondError, match="POND-405"):
        JoinProjection(((0, "s"),), ("s",), ()).project(wide, Limits(memory=300 << 20))
    assert wide.most <= 256


def test_without_pairs_there_are_columns() -> None:
    projection = JoinProjection(((0, "v"),), ("x",), ())
    nothing = projection.project(_Rows(0), Limits())
    assert nothing.column_names == ["x"]
