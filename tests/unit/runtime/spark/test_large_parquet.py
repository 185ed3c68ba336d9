"""Parquet files that unpack to much more than they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.errors import MillpondError
from millpond.runtime.spark import parquet
from millpond.runtime.spark.parquet import row_groups


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Eight million bytes of one number, and eight million of another, in some KB."""
    path = tmp_path / "equal.parquet"
    numbers = pa.array(np.zeros(1_000_000, "int64"))
    pq.write_table(pa.table({"n": numbers, "other": numbers}), path)
    assert path.stat().st_size < 20_000
    return path


def test_a_row_group_that_is_too_large_unpacked_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "MOST_UNPACKED", 7_999_999)
    with pytest.raises(MillpondError, match="8,000,000 bytes unpacked"):
        list(row_groups(str(file), {"n"}, [0]))


def test_columns_nobody_wants_do_not_count(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MOST_UNPACKED", 8_000_000)
    ((group, rows),) = row_groups(str(file), {"n"}, [0])
    assert (group, rows.num_rows) == (0, 1_000_000)
