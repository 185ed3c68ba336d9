"""Which elements are of a shard: each of one, equal values of the same."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from millpond.runtime.shards.shard import Shard

COLUMNS = {
    "whole numbers": pa.array([*range(-50, 50), None, 2**62], pa.int64()),
    "short ones": pa.array([*range(-50, 50), None], pa.int16()),
    "texts": pa.array([*(f"k{n}" for n in range(100)), None, ""]),
    "dates": pa.array([dt.date(1970, 1, 1) + dt.timedelta(n) for n in range(100)]),
    "instants": pa.array(range(100), pa.timestamp("us")),
    "booleans": pa.array([True, False, None] * 30),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_each_element_is_of_one_shard_and_equal_values_of_the_same(name: str) -> None:
    column = COLUMNS[name]
    table = pa.table({"k": pa.chunked_array([column, column]), "n": range(2 * len(column))})
    parts = [Shard({"s": "k"}, number, 3).select("s", table) for number in range(3)]
    assert sorted(n for part in parts for n in part["n"].to_pylist()) == table["n"].to_pylist()
    for part in parts:
        assert part["n"].to_pylist() == sorted(part["n"].to_pylist())
    values = [set(part["k"].to_pylist()) for part in parts]
    assert sum(map(len, values)) == len(set().union(*values))
    if name != "booleans":
        assert min(part.num_rows for part in parts) > table.num_rows // 5


def test_nulls_are_of_one_shard_whatever_lies_below_them() -> None:
    column = pa.array(np.arange(100), mask=np.ones(100, bool))
    table = pa.table({"k": column})
    rows = [Shard({"s": "k"}, number, 4).select("s", table).num_rows for number in range(4)]
    assert sorted(rows) == [0, 0, 0, 100]


def test_numbers_of_all_widths_are_hashed_alike() -> None:
    for number in range(4):
        found = []
        for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64()):
            table = pa.table({"k": pa.array(range(-100, 100), type_)})
            found.append(Shard({"s": "k"}, number, 4).select("s", table)["k"].to_pylist())
        assert found == [found[0]] * 4 != [[]] * 4
