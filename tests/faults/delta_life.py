"""A pond with a sink to a Delta table, fed until its end: `STORE TABLE ROWS`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

NOW = 1_772_366_400_000_000
STEPS = (
    "CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts",
    "CREATE QUERY q AS ISTREAM (SELECT v FROM s [NOW])",
    "CREATE SINK k USING delta (path '{path}', batch 3) FROM QUERY q",
)


def live(pond: Pond, path: str, rows: int) -> None:
    """Do what a client does that repeats everything, and wait for the sink."""
    for step in STEPS:
        try:
            pond.execute(step.replace("{path}", path))
        except MillpondError as error:
            if error.code != "CQL-208":
                raise
    print("ready", flush=True)
    for v in range(rows):
        at = f"2026-01-01 00:{v // 60:02}:{v % 60:02}"
        pond.ingest("s", [{"ts": at, "v": v}], idempotency_key=str(v))
    pond.catch_up()
    # The last element is not final: another could have its instant.
    while pond.status()["sinks"][0]["changes"] < rows - 1:
        time.sleep(0.01)


if __name__ == "__main__":
    with open_local(Path(sys.argv[1]), clock=ManualClock(NOW)) as opened:
        live(opened, sys.argv[2], int(sys.argv[3]))
