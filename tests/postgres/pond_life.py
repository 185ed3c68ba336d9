"""A pond that follows two tables and keeps a third equal to an answer, until it is killed.

It pushes an element a few milliseconds, and prints 'up' once it does.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

ACCOUNTS = "k INTEGER, v INTEGER, PRIMARY KEY (k)"


def declare(pond: Pond, options: str) -> None:
    """Declare everything, unless it is there; a process may have died in the middle of it."""
    version = pond._components.log.version
    for name in ("debit", "credit"):
        if version.find(name) is None:
            pond.execute(
                f"CREATE RELATION {name} ({ACCOUNTS}) USING postgres OPTIONS"
                f" ({options}, table '{name}')"
            )
    if version.find("s") is None:
        pond.execute("CREATE STREAM s (at TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY at")
    if version.find("sums") is None:
        pond.execute(
            "CREATE QUERY sums AS SELECT k, sum(v) AS total FROM s [RANGE 1 MINUTE] GROUP BY k"
        )
    if not version.sinks:
        pond.execute(
            f"CREATE SINK out USING postgres ({options}, table 'sums', batch 20)"
            " FROM QUERY sums KEY (k)"
        )


def push(pond: Pond) -> int:
    """Push the next element; its number."""
    parts = pond._components
    number = parts.log.version.clock(parts.log.version.find("s").id).next_seq
    hour, minute, second = number // 3_600, number // 60 % 60, number % 60
    at = f"2026-03-01 {hour:02}:{minute:02}:{second:02}"
    pond.execute(f"INSERT INTO s VALUES ('{at}', {number % 7}, {number})")
    parts.inputs.wait()
    return int(number)


def live(store: Path, options: str) -> None:
    with open_local(store) as pond:
        declare(pond, options)
        while True:
            if push(pond) % 10 == 0:
                print("up", flush=True)
            time.sleep(0.002)


if __name__ == "__main__":
    live(Path(sys.argv[1]), sys.argv[2])
