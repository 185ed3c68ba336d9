"""Behind a restart, followed groups go on as before, whoever is followed beside them.

A query over a whole stream has everything read again, so the others' rows are brought together
before the instant from which they go on: what leaves a window first has to stay in front.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millpond.model.time import to_datetime
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
SPAN = 5
STREAM = (
    "CREATE STREAM s (ts TIMESTAMP, k VARCHAR, v INTEGER, t VARCHAR) TIMESTAMP BY ts"
    " DELAY INTERVAL 3 SECONDS"
)
CALLS: dict[str, Any] = {
    "max(v)": lambda rows: max((r[2] for r in rows if r[2] is not None), default=None),
    "min(v)": lambda rows: min((r[2] for r in rows if r[2] is not None), default=None),
    "max(t)": lambda rows: max((r[3] for r in rows if r[3] is not None), default=None),
    "count(v)": lambda rows: sum(r[2] is not None for r in rows),
    "first(t)": lambda rows: rows[0][3],
    "last(v)": lambda rows: rows[-1][2],
    "list(v)": lambda rows: [r[2] for r in rows],
}
#: What each query calls, how far it looks back, and the values that it chooses.
QUERIES: dict[str, tuple[list[str], int | None, int | None]] = {
    "extremes": (["max(v)", "min(v)"], SPAN, None),
    "above": (["max(v)"], SPAN, 1),
    "texts": (["max(t)", "count(v)"], SPAN, None),
    "picks": (list(CALLS), SPAN, None),
    "whole": (list(CALLS), None, None),
}
Row = tuple[int, Any, Any, Any]


def write_query(calls: list[str], span: int | None, above: int | None) -> str:
    columns = ", ".join(f"{call} AS c{i}" for i, call in enumerate(calls))
    window = f" [RANGE {span} SECONDS]" if span else ""
    condition = "" if above is None else f" WHERE v > {above}"
    return f"SELECT k, {columns} FROM s{window}{condition} GROUP BY k"


def answer(
    rows: list[Row], at: int, calls: list[str], span: int | None, above: int | None
) -> list[str]:
    groups: dict[Any, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row[0]):
        is_chosen = above is None or (row[2] is not None and row[2] > above)
        if is_chosen and (span is None or at - span < row[0]) and row[0] <= at:
            groups.setdefault(row[1], []).append(row)
    return sorted(repr((k, *(CALLS[call](own) for call in calls))) for k, own in groups.items())


def fold(changes: list[tuple[Any, ...]], at: int) -> list[str]:
    held: Counter[str] = Counter()
    for _, when, sign, *row in changes:
        if when <= at * SECOND:
            held[repr(tuple(row))] += 1 if sign == "+" else -1
    return sorted((+held).elements())


def draw_rows(chance: random.Random, at: int) -> list[Row]:
    rows = []
    for _ in range(chance.randrange(1, 9)):
        at += chance.choice([0, 0, 0, 1, 1, 2])
        late = max(0, at - chance.choice([0, 0, 0, 1, 2, 3]))
        values = chance.choice([None, 1, 2, 3, 4]), chance.choice([None, "x", "y", "zz"])
        rows.append((late, chance.choice(["a", "b", None]), *values))
    return rows


@pytest.mark.parametrize("seed", range(12))
def test_changes_go_on_behind_a_restart(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    pond = open_local(tmp_path / "p", ManualClock(SECOND))
    pond.execute(STREAM)
    for name, query in QUERIES.items():
        pond.register(write_query(*query), name=name, changes="from beginning", follow=True)
    taken: list[Row] = []
    at = 10
    for _ in range(chance.randrange(3, 7)):
        rows = draw_rows(chance, at)
        high = max(row[0] for row in rows)
        at = max(at, high)
        before = max((row[0] for row in taken), default=0)
        # A row that is too late is rejected.
        for row in rows:
            if row[0] >= before - 3:
                taken.append(row)
            before = max(before, row[0])
        elements = [
            {"ts": to_datetime(ts * SECOND), "k": k, "v": v, "t": t} for ts, k, v, t in rows
        ]
        pond.ingest("s", elements)
        pond.catch_up()
        if chance.random() < 0.5:
            pond.close()
            pond = open_local(tmp_path / "p", ManualClock(SECOND))
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:05:00'")
    for name, query in QUERIES.items():
        (result,) = pond.execute(f"FETCH {name}")
        changes = result.changes.rows()
        for instant in range(8, at + SPAN + 1):
            assert fold(changes, instant) == answer(taken, instant, *query), (name, instant)
    pond.close()
