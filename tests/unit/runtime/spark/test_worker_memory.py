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
    monkeypatch.delenv(WORKER_MEMORY, raising=False)
    assert worker_memory() >= 4 << 30
    for given, expected in (("512m", 512 << 20), (" 3G ", 3 << 30)):
        monkeypatch.setenv(WORKER_MEMORY, given)
        assert worker_memory() == expected
    for wrong in ("", "0g", "-1g", "lots", "4", "4t"):
        monkeypatch.setenv(WORKER_MEMORY, wrong)
        with pytest.raises(MillpondError, match="CQL-214"):
            worker_memory()


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
