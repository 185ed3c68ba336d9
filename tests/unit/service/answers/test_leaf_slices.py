"""What an evaluation is measured by: the rows of its windows, and of them the columns it reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.confined.room import LARGE
from millpond.service.answers import invocation
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

ROWS = 20_000


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pond with wide rows, and a function that says how large a query's evaluation seems."""
    found: list[int] = []
    measure = invocation.measure_rows

    def watched(*given: Any) -> int:
        found.append(measure(*given))
        return found[-1]

    monkeypatch.setattr(invocation, "measure_rows", watched)
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM s (n BIGINT, t STRING); CREATE STREAM u (n BIGINT, t STRING)")
        texts = [f"{n:08}" + "x" * 192 for n in range(ROWS)]
        for stream in ("s", "u"):
            pond.ingest(stream, pa.table({"n": pa.array(range(ROWS)), "t": texts}))
        pond.catch_up(30)

        def of(ask: Callable[[Pond], Any]) -> int:
            found.clear()
            ask(pond)
            return max(found)

        yield of


@pytest.mark.parametrize(
    ("select", "least", "most"),
    [
        ("SELECT t FROM s", 200 * ROWS, 220 * ROWS),
        ("SELECT n + 1 AS n FROM s", 8 * ROWS, 9 * ROWS),
        ("SELECT t FROM s [ROWS 1000]", 200_000, 250_000),
        ("SELECT t FROM s WHERE n < 10", 1, 5_000),
        ("SELECT 1 AS a FROM s [ROWS 3]", 0, 1_000),
    ],
)
def test_a_query_is_as_large_as_what_it_reads(
    measured: Callable[[Callable[[Pond], Any]], int], select: str, least: int, most: int
) -> None:
    assert least <= measured(lambda pond: pond.ask(select)) <= most


def test_joined_rows_count(measured: Callable[[Callable[[Pond], Any]], int]) -> None:
    def ask(pond: Pond) -> None:
        text = "SELECT s.t, u.t AS v FROM s, u WHERE s.n = u.n"
        query = pond.register(text, name="q")
        pond.catch_up(30)
        assert query.invoke().table.num_rows == ROWS

    assert measured(ask) > LARGE
