"""Two small streams with NULLs, of which queries are followed."""

from __future__ import annotations

import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.oracle.world import World


@pytest.fixture(scope="module")
def world() -> World:
    """Streams `s` and `t` of (ts, k, v), four elements in three and in five seconds."""
    pond = OraclePond()
    for name, count, step in (("s", 28, 3), ("t", 14, 5)):
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k VARCHAR, v INTEGER) TIMESTAMP BY ts")
        rows = [
            {
                "ts": f"1970-01-01 00:00:{i * step // 4:02d}",
                "k": (None, "a", "b", "c")[i * step % 4],
                "v": None if i % 6 == 3 else i * step % 7,
            }
            for i in range(count)
        ]
        pond.ingest(name, rows)
    return pond.world
