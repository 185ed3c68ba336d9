"""What a task holds while it builds a batch does not grow with the batch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: Builds a batch of 800 rows of 1 MB in a process of its own, as a task does; tells the kinds of
#: the segments, their rows, and the most memory that the process has had.
_TASK = """
import json, sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
from millpond.model.schema import Field, Schema
from millpond.model.time import BEGINNING
from millpond.runtime.batch_tasks import BatchPlan, StreamPlan, build
from millpond.runtime.chunks import Chunk
from millpond.runtime.spark.parquet import open_groups

given, store = sys.argv[1], Path(sys.argv[2])
file = store / "rows.parquet"

def make(first, count):
    ns = range(first, first + count)
    bodies = pa.array([f"{n:06}" + "x" * 1_000_000 for n in ns])
    return pa.table({"n": [f"no {n}" if given == "rejects" else n for n in ns], "body": bodies})

def chunks():
    for first in range(0, 800, 32):
        yield Chunk(1, ("topic", 0, 0), make(first, 32))

def chunks_of_file():
    with open_groups(str(file)) as groups:
        for group, rows in groups.read({"n", "body"}):
            yield Chunk(1, ("rows.parquet", group), rows)

if given == "write":
    pq.write_table(make(0, 800), file, use_dictionary=False, write_batch_size=8)
    sys.exit()
schema = Schema((Field("n", "INTEGER"), Field("body", "VARCHAR")))
plan = BatchPlan(str(store), {1: StreamPlan(1, schema, None, BEGINNING, 0, None, 0)})
found = build(chunks_of_file() if given == "row group" else chunks(), plan)
built = [(item.kind, item.file.rows) for item in found]
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps([built, int(status["VmHWM"].split()[0]) >> 10]))
"""


def run_task(given: str, store: Path) -> Any:
    command = [sys.executable, "-c", _TASK, given, str(store)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(told) if told else None


@pytest.mark.slow
@pytest.mark.parametrize("given", ["elements", "rejects", "row group"])
def test_a_batch_of_any_size_takes_as_much_memory_as_a_segment(given: str, tmp_path: Path) -> None:
    for name in ("segments", "rejects"):
        (tmp_path / name).mkdir()
    if given == "row group":
        run_task("write", tmp_path)
    built, megabytes = run_task(given, tmp_path)
    assert {kind for kind, _ in built} == {"rejects" if given == "rejects" else "data"}
    assert sum(rows for _, rows in built) == 800
    assert megabytes < 1_500
