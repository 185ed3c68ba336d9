"""Followed queries whose groups are divided among Spark's workers: as one process has them."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

pytestmark = pytest.mark.spark

START = datetime.datetime(2026, 1, 1)
QUERIES = {
    "g": "SELECT k, count(*) AS n, sum(v) AS total FROM s [RANGE 60 SECONDS] GROUP BY k",
    "j": "SELECT a.k, a.v, b.v AS w FROM s [RANGE 1 SECOND] a JOIN s [RANGE 30 SECONDS] b "
    "ON a.k = b.k AND twice(a.v) < b.v",
}


def make_rows(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    at = np.datetime64(START, "us") + numbers * np.timedelta64(100, "ms")
    keys = np.char.add("k", (numbers * numbers % 97).astype(str))
    return pa.table({"ts": at, "k": keys, "v": pa.array(numbers % 1_000, pa.int32())})


def follow(pond: Pond, shards: int | None) -> dict[str, list[tuple[object, ...]]]:
    pond._components.advancer.sharded.always = shards
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k VARCHAR, v INTEGER) TIMESTAMP BY ts")
    pond.function("twice", lambda v: pc.multiply(v, 2), arguments=["BIGINT"], returns="BIGINT")
    for name, text in QUERIES.items():
        pond.execute(
            f"CREATE QUERY {name} WITH (changes = 'from beginning', follow = true) AS {text}"
        )
    for step in range(3):
        pond.ingest("s", make_rows(step * 400, 400))
        pond.catch_up()
    found = {}
    for name in QUERIES:
        rows: list[tuple[object, ...]] = []
        while more := pond.query(name).page(len(rows)).rows():
            rows += more
        found[name] = rows
    return found


def test_changes_are_those_of_one_process(pond: Pond, tmp_path: Path) -> None:
    with open_local(tmp_path / "other") as other:
        wanted = follow(other, None)
    found = follow(pond, 2)
    assert len(wanted["g"]) > 2_000
    assert len(wanted["j"]) > 20
    assert found == wanted
    assert pond._components.advancer.sharded.count() == 1
