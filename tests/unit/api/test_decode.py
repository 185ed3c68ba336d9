"""What the server writes as JSON is read in the client as the values it was."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.api.decode import table as read_table
from millpond.service.json_values import json_rows, type_name

COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.list_(pa.int32()), [[1, None], None, []]),
    (pa.list_(pa.binary()), [[b"\xff"], None]),
    (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC), None]),
    (
        pa.struct([("a", pa.timestamp("us", "UTC")), ("b c", pa.list_(pa.decimal128(10, 2)))]),
        [{"a": datetime(2026, 1, 1, tzinfo=UTC), "b c": [Decimal("1.10")]}, None, {"a": None}],
    ),
    (pa.list_(pa.struct([("d", pa.date32()), ("x", pa.float64())])), [[{"d": None, "x": 1.5}], []]),
]


@pytest.mark.parametrize(("type_", "values"), COLUMNS, ids=str)
def test_values_with_parts_and_zoned_instants(type_: pa.DataType, values: list[Any]) -> None:
    given = pa.table({"v": pa.array(values, type_)})
    body = {"columns": ["v"], "types": [type_name(type_)], "rows": json_rows(given)}
    found = read_table(body)
    assert found.schema.types == [type_]
    assert found["v"].to_pylist() == given["v"].to_pylist()


def test_zoned_instants_far_away() -> None:
    ticks = pa.array([2**62, 2**63 - 1, -(2**63) + 1, None], pa.int64())
    given = pa.table({"v": ticks.cast(pa.timestamp("us", "UTC"))})
    (far,), *rest = json_rows(given)
    assert far.endswith("+00:00")
    assert rest == [["infinity"], ["-infinity"], [None]]
    found = read_table({"columns": ["v"], "types": ["TIMESTAMPTZ"], "rows": [[far], *rest]})
    assert found["v"].cast(pa.int64()).to_pylist() == ticks.to_pylist()
