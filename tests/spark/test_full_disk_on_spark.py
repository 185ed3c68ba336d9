"""A full disk under Spark: the source stops with the reason, and goes on once there is room."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))

from small_disk import small_disk

pytestmark = pytest.mark.spark


def test_a_source_and_pushes(spark: Any, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    from millpond.runtime.spark.runtime import SparkRuntime

    folder = tmp_path / "in"
    folder.mkdir()

    def write(number: int) -> None:
        (folder / f".{number}").write_text(f"{number},{'x' * 300_000}\n")
        (folder / f".{number}").rename(folder / f"{number}.csv")

    with (
        small_disk(tmp_path / "disk", 24) as disk,
        Pond(disk.path / "store", SparkRuntime(spark=spark)) as pond,
    ):
        pond.execute(
            f"CREATE STREAM filed (n BIGINT, pad STRING) USING csv OPTIONS (path '{folder}');"
            "CREATE STREAM pushed (n BIGINT, pad STRING);"
            "CREATE QUERY sums AS SELECT sum(n) FROM filed WHERE n > 0"
        )
        write(1)
        pond.ingest("pushed", [{"n": 1}])
        pond.catch_up(timeout=120)
        pond.wait_until_matched(timeout=120)
        assert pond.query("sums").invoke().rows() == [(1,)]

        disk.fill()
        write(2)
        stopped = eventually(
            lambda: next(s for s in pond.status()["streams"] if s["state"] == "stopped")
        )
        assert stopped["name"] == "filed"
        assert "space" in stopped["reason"]
        with pytest.raises(MillpondError, match="STORE-603"):
            pond.ingest("pushed", [{"n": 2, "pad": "x" * 300_000}], idempotency_key="two")
        assert pond.query("sums").invoke().rows() == [(1,)]
        assert pond.ask("SELECT count(*) FROM pushed").rows() == [(1,)]

        disk.empty()
        assert not pond.ingest("pushed", [{"n": 2, "pad": "x"}], idempotency_key="two").duplicate
        eventually(lambda: pond.query("sums").invoke().rows() == [(3,)])
        eventually(lambda: pond.ask("SELECT sum(n) FROM pushed").rows() == [(3,)])
        eventually(lambda: {s["state"] for s in pond.status()["streams"]} == {"running"})
