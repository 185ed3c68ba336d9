"""Arrays, structs, JSON and zoned instants from every kind of source."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from millpond.service.pond import Pond

pytestmark = pytest.mark.spark

COLUMNS = "(at TIMESTAMPTZ, p STRUCT(a INTEGER, b VARCHAR[]), l STRUCT(x DOUBLE)[], j JSON)"
ROWS: list[dict[str, Any]] = [
    {"at": "2024-01-01T02:00:01+02:00", "p": {"a": 1, "b": ["x", None]}, "l": [{"x": 1.5}], "j": 1},
    {"at": "2024-01-01T00:00:02Z", "p": None, "l": [], "j": {"k": [1]}},
]
WANTED = [
    (datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC), {"a": 1, "b": ["x", None]}, [{"x": 1.5}], "1"),
    (datetime(2024, 1, 1, 0, 0, 2, tzinfo=UTC), None, [], '{"k":[1]}'),
]


def as_table() -> pa.Table:
    rows = [
        {**row, "at": wanted[0], "j": json.dumps(row["j"], separators=(",", ":"))}
        for row, wanted in zip(ROWS, WANTED, strict=True)
    ]
    return pa.Table.from_pylist(rows)


def write(format_: str, path: Path) -> str:
    """Write the rows; return the options of their source."""
    match format_:
        case "json":
            path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in ROWS))
        case "parquet" | "filtered parquet":
            pq.write_table(as_table(), path)
        case "orc":
            pyarrow.orc.write_table(as_table(), str(path))
        case "csv":
            cells = [
                [row["at"], *(json.dumps(row[n], separators=(",", ":")) for n in "plj")]
                for row in ROWS
            ]
            quoted = [",".join('"' + c.replace('"', '""') + '"' for c in row) for row in cells]
            path.write_text("at,p,l,j\n" + "\n".join(quoted) + "\n")
            return ", header 'true'"
    # An option that the task's own reader has not: Spark reads the file.
    return ", mergeSchema 'true'" if format_ == "filtered parquet" else ""


@pytest.mark.parametrize("format_", ["json", "parquet", "filtered parquet", "orc", "csv"])
def test_files(bounded: Pond, tmp_path: Path, format_: str) -> None:
    path = tmp_path / f"rows.{format_.split()[-1]}"
    more = write(format_, path)
    options = f"(path '{path}'{more})"
    source = f"USING {format_.split()[-1]} OPTIONS {options}"
    bounded.execute(f"CREATE STREAM s {COLUMNS} TIMESTAMP BY at {source}")
    bounded.execute(f"CREATE RELATION r {COLUMNS} {source}")
    assert bounded.ask("SELECT reason FROM s$rejects").rows() == []
    for name in "sr":
        assert bounded.ask(f"SELECT * FROM {name} ORDER BY at").rows() == WANTED
    assert bounded.ask("SELECT p.b[1] FROM s WHERE l[1].x > 1").rows() == [("x",)]


def test_frames(pond: Pond, spark: Any) -> None:
    frame = spark.createDataFrame(
        [(datetime(2024, 1, 1), [1, None], (1, ["x"]))],
        "ts timestamp_ntz, l array<int>, p struct<a: int, b: array<string>>",
    )
    stream = pond.stream("frames", frame, timestamp="ts")
    assert [f.type for f in stream.schema.fields] == [
        "TIMESTAMP",
        "INTEGER[]",
        "STRUCT(a INTEGER, b VARCHAR[])",
    ]
    assert pond.ask("SELECT l, p.b FROM frames").rows() == [([1, None], ["x"])]
