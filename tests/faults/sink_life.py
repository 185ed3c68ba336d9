"""A pond with one sink, alive until the sink has delivered: `STORE URL CHANGES`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

STEPS = (
    "CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts",
    "CREATE QUERY q WITH (tags = 'fed') AS SELECT v FROM s [RANGE 3 SECONDS]",
    "CREATE SINK k USING http (url '{url}', key_env 'HOOK_KEY', batch 2) FROM QUERIES TAGGED fed",
)


def live(pond: Pond, url: str, changes: int) -> None:
    """Do what a client does that repeats everything, and wait for the sink."""
    for step in STEPS:
        try:
            pond.execute(step.replace("{url}", url))
        except MillpondError as error:
            if error.code != "CQL-208":
                raise
    rows = [{"ts": f"2026-01-01 00:00:{second:02}", "v": second} for second in range(0, 30, 5)]
    pond.ingest("s", rows, idempotency_key="rows")
    pond.catch_up()
    while pond.status()["sinks"][0]["changes"] < changes:
        time.sleep(0.01)


if __name__ == "__main__":
    with open_local(Path(sys.argv[1]), clock=ManualClock(1_772_366_400_000_000)) as opened:
        live(opened, sys.argv[2], int(sys.argv[3]))
