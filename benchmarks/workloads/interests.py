"""The workload of SYSTEM section 4: five integer attributes, range queries on all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ATTRIBUTES = ("a", "b", "c", "d", "e")
SPAN = 1_000_000
#: The share of elements one query matches: 60 of 1,000 queries an element.
SELECTIVITY = 0.06

STREAM = (
    "CREATE STREAM {name} (" + ", ".join(f"{a} INTEGER" for a in ATTRIBUTES) + ")"
    " USING parquet OPTIONS (path '{path}', maxFilesPerTrigger '{files}')"
)


def write_elements(directory: Path, rows: int, files: int, seed: int = 7) -> None:
    """Parquet files of uniform elements, `rows` in all."""
    random = np.random.default_rng(seed)
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        pq.write_table(elements(rows // files, random), directory / f"part-{number:04d}.parquet")


def elements(rows: int, random: np.random.Generator) -> pa.Table:
    """Uniform elements."""
    return pa.table({a: random.integers(0, SPAN, rows).astype(np.int32) for a in ATTRIBUTES})


def ranges(queries: int, seed: int = 11) -> np.ndarray:
    """int64[queries, 5, 2]: each query's closed range on each attribute."""
    random = np.random.default_rng(seed)
    width = int(SPAN * SELECTIVITY ** (1 / len(ATTRIBUTES)))
    low = random.integers(0, SPAN - width, (queries, len(ATTRIBUTES)))
    return np.stack([low, low + width], axis=2)


def texts(queries: int, stream: str, seed: int = 11) -> list[str]:
    """The queries as CQL."""
    return [
        f"SELECT * FROM {stream} WHERE "
        + " AND ".join(
            f"{a} BETWEEN {ends[0]} AND {ends[1]}"
            for a, ends in zip(ATTRIBUTES, bounds, strict=True)
        )
        for bounds in ranges(queries, seed).tolist()
    ]
