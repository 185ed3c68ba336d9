"""What one of Spark's Python workers may have of the machine's memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.errors import MillpondError
from millpond.runtime.spark import worker_memory as module
from millpond.runtime.spark.session import make_settings
from millpond.runtime.spark.worker_memory import WORKER_MEMORY, worker_memory

READ = """
import sys
from millpond.errors import MillpondError
from millpond.runtime.spark.daemon import limit_memory
from millpond.runtime.spark.parquet import open_groups
limit_memory(1 << 30)
try:
    with open_groups(sys.argv[1]) as groups:
        print(sum(rows.num_rows for _, rows in groups.read({"t"})))
except MillpondError as error:
    print(error.code)
"""


def test_the_variable_says_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, expected in (("512m", 512 << 20), (" 3G ", 3 << 30)):
        monkeypatch.setenv(WORKER_MEMORY, given)
        assert worker_memory() == expected
    for wrong in ("", "0g", "-1g", "lots", "4", "4t"):
        monkeypatch.setenv(WORKER_MEMORY, wrong)
        with pytest.raises(MillpondError, match="CQL-214"):
            worker_memory()


def test_unless_it_is_set_a_worker_has_half_of_what_there_is_where_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(WORKER_MEMORY, raising=False)
    for whole, expected in ((64, 32), (8, 4), (6, 4), (4, 4), (1, 1)):
        monkeypatch.setattr(module, "find_memory_limit", lambda whole=whole: whole << 30)
        assert worker_memory() == expected << 30


def test_executors_are_told_only_what_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's machine says nothing of an executor's."""
    told = f"spark.executorEnv.{WORKER_MEMORY}"
    monkeypatch.delenv(WORKER_MEMORY, raising=False)
    assert told not in make_settings("spark://head:7077", {})
    monkeypatch.setenv(WORKER_MEMORY, "512m")
    assert make_settings("spark://head:7077", {})[told] == "512m"
    monkeypatch.setenv(WORKER_MEMORY, "lots")
    with pytest.raises(MillpondError, match="CQL-214"):
        make_settings("spark://head:7077", {})


@pytest.mark.parametrize(("times", "expected"), [(10, "10"), (2_000, "DATA-502")])
def test_a_worker_ends_with_the_reason(tmp_path: Path, times: int, expected: str) -> None:
    """A text of two megabytes that stands many times is four gigabytes; the file has a few KB."""
    texts = pa.array(["x" * (2 << 20)])
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, "int32")), texts)
    file = tmp_path / "bomb.parquet"
    schema = pa.schema([("t", pa.dictionary(pa.int32(), pa.string()))])
    table = pa.Table.from_arrays([column], schema=schema)
    pq.write_table(
        table, file, compression="zstd", dictionary_pagesize_limit=8 << 20, store_schema=False
    )
    assert file.stat().st_size < 100_000
    shown = subprocess.run(
        [sys.executable, "-c", READ, str(file)], capture_output=True, text=True, timeout=120
    )
    assert shown.stdout.strip() == expected, shown.stderr
