"""Distinct rows in the order in which each came last."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from millpond.model.time import END
from millpond.operators.structures.distinct_rows import NEVER, RecentRows

SCHEMA = pa.schema([("c0", pa.string())])


def batch(names: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(names, pa.string())], schema=SCHEMA)


def stamps(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def read(rows: RecentRows, after: int, upto: int) -> dict[str, int]:
    numbers, at = rows.find(after, upto)
    assert (np.diff(at) >= 0).all()
    return dict(zip(rows.pick(numbers).column(0).to_pylist(), at.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_done_rows_are_found_by_when_they_came_last(seed: int) -> None:
    random = Random(f"recent {seed}")
    rows, last, now = RecentRows(SCHEMA), dict[str, int](), 0
    for _ in range(60):
        # Instants within which all names come, and some names many times.
        at = sorted(random.choices(range(now, now + 9), k=random.choice((0, 1, 5, 400))))
        names = [f"n{random.randrange(random.choice((3, 300)))}" for _ in at]
        now += 8  # the next may come at the last instant of these
        numbers, previous = rows.add(batch(names), stamps(at))
        assert rows.pick(numbers).column(0).to_pylist() == names
        for name, came, before in zip(names, at, previous.tolist(), strict=True):
            assert before == last.get(name, NEVER)
            last[name] = came
        what = random.randrange(6)
        if what == 0:
            rows.set_since(now - random.choice((1, 5, 20, 200)))
        elif what == 1:
            rows.forget()
            last = {name: came for name, came in last.items() if came > rows.since}
            assert len(rows) == rows.living == len(last)
        elif what == 2:
            some = random.sample([f"n{i}" for i in range(350)], 30)
            came = [random.randrange(max(0, now - 99), now + 1) for _ in some]
            rows.merge(batch(some), stamps(came))
            for name, at_ in zip(some, came, strict=True):
                last[name] = max(at_, last.get(name, at_))
        assert rows.living == sum(came > rows.since for came in last.values())
        low, high = sorted(random.choices(range(now - 60, now + 9), k=2))
        for after, upto in ((NEVER, END), (low, high), (low, low)):
            found = {name: came for name, came in last.items() if after < came <= upto}
            assert read(rows, after, upto) == found


def test_a_log_is_as_long_as_there_are_rows() -> None:
    rows = RecentRows(SCHEMA)
    for now in range(500):
        rows.add(batch([f"n{i % 90}" for i in range(50 * now, 50 * now + 50)]), stamps([now] * 50))
    assert len(rows) == 90
    assert len(rows._at) <= 4 * 90
    rows.set_since(498)
    assert rows.is_worth_forgetting() is (rows.living < 45)
    rows.set_since(END - 1)
    assert rows.is_worth_forgetting()
    rows.forget()
    assert (len(rows), len(rows._at), len(rows._place)) == (0, 64, 64)
