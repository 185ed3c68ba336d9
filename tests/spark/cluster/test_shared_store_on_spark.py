"""Streams that follow files, in a store on shared storage: the next driver reads on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millpond.service.pond import Pond


@pytest.mark.timeout(300)
def test_another_driver_reads_on_where_the_last_batch_ended(
    open_store: Callable[..., Pond], tmp_path: Path
) -> None:
    """From a directory of its own, which has nothing of the first driver's checkpoint."""
    given, place = tmp_path / "in", str(tmp_path / "shared")
    given.mkdir()

    def add(n: int) -> None:
        (tmp_path / "new").write_text(f"2026-01-01 00:00:{n:02},{n}\n")
        (tmp_path / "new").rename(given / f"{n:02}.csv")

    n = 0
    for driver in ("a", "b"):
        pond = open_store(driver, shared=place)
        if driver == "a":
            pond.execute(
                "CREATE STREAM s (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts "
                f"USING csv OPTIONS (path '{given}')"
            )
        for _ in range(2):  # batches of their own
            n += 1
            add(n)
            pond.catch_up(timeout=120)
        [answer] = pond.ask("SELECT count(*) AS n, sum(n) AS total FROM s").table.to_pylist()
        assert answer == {"n": n, "total": n * (n + 1) // 2}
        pond.close()
