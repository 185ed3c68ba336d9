"""The scheduler is a setting of the running pond; no scheduler alters a change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: More than are taken whole.
ROWS = 5_000
QUERY = (
    "CREATE QUERY q{} WITH (changes = 'from beginning') AS SELECT s.k, count(*) AS n FROM s"
    " [RANGE 9 SECONDS], t [RANGE 5 SECONDS] WHERE s.k = t.k AND s.v % 5 = 0 GROUP BY s.k"
)


def push(pond: Pond, first: int) -> None:
    places = np.arange(ROWS)
    stamps = pa.array((first + places // 10) * 1_000_000, pa.timestamp("us"))
    table = pa.table({"ts": stamps, "k": places * 7 % 400, "v": places})
    for stream in "st":
        pond.ingest(stream, table)
    pond.catch_up()


def test_each_scheduler_gives_the_same_changes_and_is_switched_while_running(
    tmp_path: Path,
) -> None:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        for stream in "st":
            pond.execute(
                f"CREATE STREAM {stream} (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts"
            )
        pond.alter_system(memory="2 GB", queue_memory="256 MB", scheduler="fifo")
        push(pond, 1)
        pond.execute(QUERY.format("fifo"))
        expected = pond.query("qfifo").fetch(limit=100_000).rows()
        assert expected
        ids = [entity.id for entity in pond.entities.every()]
        assert "queues:qfifo" not in ids  # the step was not long
        pond.alter_system(queue_memory="400 KB")
        for number, name in enumerate(("chain", "greedy")):
            pond.execute(f"ALTER SYSTEM SET (scheduler = '{name}', latency = '1 hour')")
            entity = pond.entities.one("scheduler:all")
            assert entity.settings == {"scheduler": name, "latency": "1 HOUR", "replanning": "auto"}
            pond.execute(QUERY.format(number))
            assert pond.query(f"q{number}").fetch(limit=100_000).rows() == expected
            waited = pond.entities.one(f"queues:q{number}")
            assert waited.kind == "queue"
            assert waited.figures["slices"] > 10
            assert 0 < waited.figures["bytes"] < 800_000
            assert waited.figures["count"] > 0
        runtime = pond.explain("q0", "runtime")
        assert "grouping" in runtime
        assert "; ran " in runtime
        assert "4,990 rows in" in runtime  # the last instant is not final
        with pytest.raises(MillpondError, match="CQL-214"):
            pond.alter_system(scheduler="best")
    with open_local(tmp_path / "store", ManualClock()) as pond:
        assert pond.entities.one("scheduler:all").settings["scheduler"] == "greedy"
        changed = pond.entities.set("scheduler:all", {"scheduler": "fifo"})
        assert changed.settings == {"scheduler": "fifo", "latency": "1 HOUR", "replanning": "auto"}
        push(pond, 600)
        with pytest.raises(MillpondError, match="Nothing of it can be set"):
            pond.entities.set("queues:q0", {"scheduler": "chain"})
