"""The life of `pond_life.py`, of a client that follows queries with budgets.

    python parts_life.py STORE KILLED...

A first life under STORE/whole is not killed. Of each other it is said how many changes of each
query had been received when it was killed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pond_life

SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, item INTEGER, n BIGINT) TIMESTAMP BY ts;
CREATE STREAM t (ts TIMESTAMP, item INTEGER) TIMESTAMP BY ts;
CREATE SUMMARY si ON s (item) WITH GRANULARITY INTERVAL 8 SECONDS AND COLLAPSE (2, 3);
"""
ITEM = "SUMMARY(si).ESTIMATE.COUNT"
FOLLOWED = {
    "rare": f"SELECT item, n FROM s WITH PREFERENCE ASC {ITEM}(item) BUDGET '0.4 probes'",
    "fair": "SELECT item, n FROM s [RANGE 20 SECONDS] WHERE n % 3 <> 1"
    f" WITH PREFERENCE WEIGHTED {ITEM}(item) BUDGET '0.5 probes'",
    "joined": "SELECT n, t.ts FROM s [RANGE 20 SECONDS], t [RANGE 30 SECONDS] WHERE s.item = t.item"
    f" WITH PREFERENCE DESC {ITEM}(s.item) FADE FACTOR 0.8 BUDGET '0.6 probes'",
    "summed": "SELECT COUNT(*) AS c, SUM(n) AS total FROM s [RANGE 9 SECONDS]"
    f" WITH PREFERENCE DESC {ITEM}(item) BUDGET '0.5 probes'",
}


def steps() -> Iterator[pond_life.Step]:
    """What the client does, one acknowledged step after the other."""
    yield from (f"{text};" for text in SCHEMA.strip().split(";") if text.strip())
    for name, text in FOLLOWED.items():
        yield f"CREATE QUERY {name} WITH (changes = 'from beginning') AS {text};"
    for number in range(10):
        first = number * 3
        for stream in "st":
            rows = [
                {"ts": f"2026-01-01 00:00:{first + n // 7:02}.{n % 7}", "item": n * n % 11}
                for n in range(21)
            ]
            if stream == "s":
                rows = [{**row, "n": number * 100 + n} for n, row in enumerate(rows)]
            yield stream, rows
    for stream in "st":
        yield f"HEARTBEAT {stream} AT TIMESTAMP '2026-01-01 00:01:00';"


def count_received(store: Path) -> list[int]:
    """How many changes of each query a client of this pond has received."""
    records = [pond_life.received(store, name) for name in FOLLOWED]
    return [len(own.read_text().splitlines()) if own.exists() else 0 for own in records]


def main(folder: Path, killed: list[str]) -> None:
    """Live a life for each fail point, and go on with it."""
    pond_life.in_a_process(lambda: None, folder / "whole")
    for setting in killed:
        store = folder / setting
        first = pond_life.in_a_process(lambda s=setting: pond_life.fail_points.arm(s), store)
        print(setting, "killed" if first else "lived", *count_received(store), flush=True)
        if first and pond_life.in_a_process(lambda: None, store):
            sys.exit(f"{setting}: killed again")


if __name__ == "__main__":
    pond_life.steps = steps
    pond_life.FOLLOWED = tuple(FOLLOWED)
    main(Path(sys.argv[1]), sys.argv[2:])
