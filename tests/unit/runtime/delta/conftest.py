"""Delta tables of keys and values, written by their own client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the table is; its name has to be escaped in an address."""
    return tmp_path / "a table"


@pytest.fixture
def append(path: Path) -> Callable[..., None]:
    """Append a version with the given values, of one key or (None) of a key each."""
    deltalake = pytest.importorskip("deltalake")

    def append_values(
        *values: int, k: str | None = "a", mode: str = "append", **options: object
    ) -> None:
        keys = [str(value) if k is None else k for value in values]
        rows = pa.table({"k": keys, "v": list(values)})
        deltalake.write_deltalake(str(path), rows, mode=mode, **options)

    return append_values
