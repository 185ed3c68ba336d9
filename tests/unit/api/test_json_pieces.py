"""Rows written piece by piece are the JSON that they are as a whole, and need little memory."""

from __future__ import annotations

import base64
import json
import tracemalloc
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.api import json_pieces
from millpond.api.json_pieces import write_objects, write_rows
from millpond.service.json_values import dumps, json_rows

_FAR = pa.array([2**62, 0, None], pa.timestamp("us"))

#: A column of each shape of value, three rows each.
COLUMNS: dict[str, pa.Array] = {
    "texts": pa.array(["a", None, "ä€😀\"\\\n" * 40]),
    "whole numbers": pa.array([1, None, -(2**63)]),
    "huge": pa.array([Decimal(2**100), None, Decimal(1)], pa.decimal128(38, 0)),
    "floats": pa.array([0.1, float("nan"), None], pa.float32()),
    "instants": pa.array([datetime(2026, 1, 2), None, datetime(1900, 1, 1)], pa.timestamp("us")),
    "far instants": _FAR,
    "dates": pa.array([date(2026, 1, 2), None, None]),
    "binary": pa.array([b"", None, bytes(range(256)) * 3]),
    "truths": pa.array([True, None, False]),
    "lists of texts": pa.array([["ä", None, "b" * 50] * 30, [], None]),
    "lists of floats": pa.array([[0.1, float("inf"), None] * 30, [], None], pa.list_(pa.float32())),
    "lists of lists": pa.array([[[1, 2], [], None, [3] * 100], [], None]),
    "lists of structs": pa.array([[{"x": "a", "y": [1.5]}, None] * 30, [], None]),
    "lists of far instants": pa.ListArray.from_arrays([0, 3, 3, 3], _FAR),
    "lists of decimals": pa.array([[Decimal("1.50")] * 50, None, []]),
    "large lists": pa.array([list(range(100)), None, []], pa.large_list(pa.int64())),
    "arrays": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2)),
    "structs": pa.array([{"a": ["x"] * 60, "b": None}, None, {"a": None, "b": {"c": "y" * 90}}]),
    "maps": pa.array(
        [[(n, ["v"] * (n % 5)) for n in range(60)], None, []],
        pa.map_(pa.int64(), pa.list_(pa.string())),
    ),
    "maps of far instants": pa.MapArray.from_arrays([0, 3, 3, 3], ["a", "b", "c"], _FAR),
}  # fmt: skip


def written(write_all: Any, table: pa.Table) -> bytes:
    parts: list[bytes] = []
    write_all(table, parts.append)
    return b"".join(parts)


@pytest.mark.parametrize("size", [1, 40, 300])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_piece_of_any_size_changes_nothing(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({name: COLUMNS[name], "n": [1, 2, 3], "again": COLUMNS[name]})
    for part in (table, table.slice(1), table.slice(2), table.slice(0, 0)):
        whole = dumps(json_rows(part))[1:-1]
        objects = b"".join(
            dumps(dict(zip(part.column_names, row, strict=True))) + b"\n" for row in json_rows(part)
        )
        with monkeypatch.context() as smaller:
            smaller.setattr(json_pieces, "_PIECE_BYTES", size)
            smaller.setattr(json_pieces, "_PIECE_VALUES", size)
            smaller.setattr(json_pieces, "_TEXT_BYTES", 6)
            assert written(write_rows, part) == whole
            assert written(write_objects, part) == objects


def test_of_two_columns_of_one_name_an_object_has_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.Table.from_arrays([pa.array(["a" * 99]), pa.array(["b" * 99])], names=["x", "x"])
    whole = written(write_objects, table)
    monkeypatch.setattr(json_pieces, "_PIECE_BYTES", 10)
    assert written(write_objects, table) == whole == dumps({"x": "b" * 99}) + b"\n"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([["some text"] * 500_000], id="a list of texts"),
        pytest.param([list(range(500_000))], id="a list of whole numbers"),
        pytest.param([[{"x": "some text", "y": 1}] * 100_000], id="a list of structs"),
        pytest.param([[["a"] * 300_000, ["b"] * 300_000]], id="lists in a list"),
        pytest.param(["x" * 20_000_000], id="a text"),
        pytest.param(["x" * 20_000_000] + ["y"] * 9_999, id="one wide row of many"),
    ],
)
def test_a_wide_row_is_no_object_of_python(value: list[Any]) -> None:
    table = pa.table({"v": value})
    size = 0

    def count(data: bytes) -> None:
        nonlocal size
        size += len(data)

    tracemalloc.start()
    try:
        write_rows(table, count)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size >= len(json.dumps(value, separators=(",", ":"))) - 2
    assert most < 24 << 20


def test_binary_in_pieces_is_one_base64(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(200))
    monkeypatch.setattr(json_pieces, "_PIECE_BYTES", 10)
    monkeypatch.setattr(json_pieces, "_TEXT_BYTES", 9)
    (row,) = json.loads(b"[" + written(write_rows, pa.table({"v": [data]})) + b"]")
    assert base64.b64decode(row[0]) == data
