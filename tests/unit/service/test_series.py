"""Answers at many instants as one table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.service.results import Answer
from millpond.service.series import instants_between, join_answers
from millpond.testing.local_runtime import open_local

SECOND = 1_000_000


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder: Path = tmp_path_factory.mktemp("store")
    with open_local(folder) as opened:
        opened.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
        rows = [(1, "a", 1), (2, "b", 2), (2, "a", 3), (4, "b", None)]
        opened.ingest(
            "s", [{"ts": datetime(1970, 1, 1, 0, 0, n), "k": k, "v": v} for n, k, v in rows]
        )
        opened.catch_up()
        yield opened


def test_a_series_is_the_answers_at_its_instants(pond: Pond) -> None:
    q = pond.register("SELECT k, sum(v) AS total FROM s [RANGE 2 SECONDS] GROUP BY k ORDER BY k")
    told = q.series(0, "1970-01-01 00:00:05", timedelta(seconds=1))
    rows = []
    for n in range(6):
        at = datetime(1970, 1, 1, 0, 0, n)
        rows += [(at, *row) for row in q.invoke(at)]
    assert [tuple(row.values()) for row in told.table.to_pylist()] == rows
    assert told.table.column_names == ["at", "k", "total"]
    assert told.instants == tuple(n * SECOND for n in range(6))
    assert not told.final, "the last instants are not"
    assert q.series(0, SECOND, SECOND).final
    assert told.exact
    assert told.query == q.name
    assert pa.table(told).equals(told.table)
    assert told.to_pandas().shape == (len(rows), 3)
    assert f"{len(rows)} rows at 6 instants" in repr(told)
    assert repr(told).splitlines()[1].split() == ["at", "k", "total"]
    assert "6 instants" in told._repr_html_()
    assert q.series(0, "1970-01-01 00:00:05", "1 second").table == told.table


def test_lines_have_a_value_for_each_instant(pond: Pond) -> None:
    q = pond.register("SELECT k, max(v) AS m FROM s [RANGE 1 SECOND] GROUP BY k")
    lines = q.series(0, 5 * SECOND, SECOND).lines()
    shown = {name: [None if np.isnan(v) else v for v in line] for name, line in lines.items()}
    assert shown == {
        "a": [None, 1, 3, None, None, None],
        "b": [None, None, 2, None, None, None],
    }
    both = pond.register("SELECT count(*) AS n, max(v) AS m FROM s").series(0, SECOND, SECOND)
    assert both.lines().keys() == {"n", "m"}
    texts = pond.register("SELECT k FROM s").series(0, SECOND, SECOND)
    with pytest.raises(MillpondError, match="CQL-103"):
        texts.lines()


def test_a_series_is_drawn(pond: Pond) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    q = pond.register("SELECT k, count(*) AS n FROM s GROUP BY k ORDER BY k", "counts")
    axes = q.series(0, 5 * SECOND, SECOND).plot()
    assert [line.get_label() for line in axes.lines] == ["a", "b"]
    assert axes.get_title() == "counts"
    again = q.series(0, 5 * SECOND, SECOND).plot(axes)
    assert again is axes
    assert len(axes.lines) == 4


STEPS: dict[str, Any] = {
    "timedelta": timedelta(seconds=1),
    "numpy": np.timedelta64(1, "s"),
    "pandas": pd.Timedelta("1s"),
    "microseconds": SECOND,
}


@pytest.mark.parametrize("kind", STEPS)
def test_steps_of_every_kind(kind: str) -> None:
    assert instants_between(0, 2 * SECOND + 1, STEPS[kind]) == [0, SECOND, 2 * SECOND]


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (0, SECOND, 0),
        (0, SECOND, -1),
        (0, SECOND, "1 parsec"),
        (0, SECOND, "0 seconds"),
        (0, SECOND, np.timedelta64("NaT", "us")),
        (0, SECOND, pd.NaT),
        (None, SECOND, 1),
        ("soon", SECOND, 1),
        (0, 10_000, 1),
    ],
)
def test_what_is_no_series(start: Any, end: Any, step: Any) -> None:
    with pytest.raises(MillpondError, match="CQL-103"):
        instants_between(start, end, step)


def test_the_column_of_instants_gives_way_to_the_querys() -> None:
    answer = Answer(pa.table({"at": [1]}), 0, True)
    told = join_answers([0], [answer])
    assert told.table.column_names == ["at_", "at"]
    with pytest.raises(MillpondError, match="CQL-103"):
        join_answers([], [])
