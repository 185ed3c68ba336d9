"""Texts that operators tell apart and order lie in files like all state; no change differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import BEFORE, plan_query

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.engine.dataflow.state_limit import Memory
from millpond.planner.dataflow.plan import Plan
from millpond.state.scratch_folder import ScratchFolder

SECOND = 1_000_000
#: Elements of a step, steps, seconds of a step; rows leave after three steps.
STEP, STEPS, SECONDS = 1_500, 6, 30
LIMIT = 32 << 10
WINDOW = f"s [RANGE {3 * SECONDS} SECONDS]"
QUERIES = {
    "extremes": f"SELECT k, min(t) AS low, max(t) AS high FROM {WINDOW} GROUP BY k",
    "quantile": f"SELECT k, quantile_disc(t, 0.4) AS some FROM {WINDOW} GROUP BY k",
    "wide decimals": f"SELECT k, max(d) AS high, median(u) AS middle FROM {WINDOW} GROUP BY k",
    "distinct": f"SELECT k, count(DISTINCT t) AS n, sum(DISTINCT k) AS m FROM {WINDOW} GROUP BY k",
    "first": f"SELECT t, k FROM {WINDOW} ORDER BY t LIMIT 7 OFFSET 3",
    "last": f"SELECT t, k FROM {WINDOW} ORDER BY k DESC, t DESC LIMIT 40",
    "any": f"SELECT t FROM {WINDOW} LIMIT 20",
    "groups": f"SELECT t, count(*) AS n FROM {WINDOW} GROUP BY t HAVING count(*) > 1",
    "joined": f"SELECT a.k, b.k AS other FROM {WINDOW} a, {WINDOW} b WHERE a.t = b.t AND a.k < b.k",
    "different": f"SELECT DISTINCT t FROM {WINDOW} WHERE k % 7 = 0",
}


def make_step(number: int) -> pa.Table:
    """Make a step's elements: most texts are new, long, and begin alike."""
    random = np.random.default_rng(number)
    places = np.arange(STEP) + number * STEP
    texts = np.where(random.random(STEP) < 0.8, places, random.integers(0, places[-1] + 1, STEP))
    keys = random.integers(0, 300, STEP)
    return pa.table(
        {
            "__ts": places * (SECONDS * SECOND // STEP),
            "__seq": places,
            "k": keys,
            "t": [f"{text * 7919 % 10_007} of the texts {'ü' * (text % 40)}" for text in texts],
            "d": pa.array(texts * 7919 % 10_007 - 5_000).cast(pa.decimal128(38, 2)),
            "u": texts.astype(np.uint64) * 7919 % 10_007 + (1 << 63) - 5_000,
        }
    )


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    pond = OraclePond()
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, k BIGINT, t STRING, d DECIMAL(38, 2), u UBIGINT)"
        " TIMESTAMP BY ts"
    )
    return {name: plan_query(pond.world, text) for name, text in QUERIES.items()}


def advance(flow: Dataflow, plan: Plan, number: int) -> pa.Table:
    feeds = dict.fromkeys(flow.needs, make_step(number))
    return flow.advance(feeds, (number + 1) * SECONDS * SECOND - 1)[plan.key]


@pytest.mark.parametrize("name", list(QUERIES))
def test_texts_beyond_the_memory_lie_in_files(
    name: str, plans: dict[str, Plan], tmp_path: Path
) -> None:
    plan = plans[name]
    plain, little = Dataflow(plan, since=BEFORE), Dataflow(plan, since=BEFORE)
    little.limit_memory(Memory(LIMIT, ScratchFolder(tmp_path)))
    for number in range(STEPS):
        assert advance(little, plan, number).equals(advance(plain, plan, number))
        assert little.size.memory < 3 * LIMIT, number
    # Much is kept, none of it twice; it comes back when there is room, and goes on.
    assert little.size.files > 4 * LIMIT
    little.limit_memory(Memory(1 << 30, ScratchFolder(tmp_path)))
    for number in range(STEPS, STEPS + 2):
        assert advance(little, plan, number).equals(advance(plain, plan, number))
    assert little.size.files == 0
