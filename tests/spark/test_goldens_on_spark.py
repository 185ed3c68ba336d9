"""A sample of the goldens on Spark: what the in-process runtime says, Spark says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tools.golden import run_golden
from tests.tools.golden_ways import Variation

from millpond.service.pond import Pond
from millpond.testing.manual_clock import ManualClock

pytestmark = pytest.mark.spark

GOLDENS = Path(__file__).parents[1] / "cql"

#: One of every kind: each crosses another part of the way through Spark.
SAMPLE = [
    ("changes/derivations/reopened", Variation(cut=1)),
    ("changes/operators/joins_and_relations", Variation(order="queries first")),
    ("changes/operators/predicates_over_subqueries", Variation(order="queries first")),
    ("changes/instants/system_time", Variation()),
    ("changes/operators/window_functions", Variation(cut=1)),
    ("derived/streams_of_streams", Variation(cut=1, order="data first")),
    ("joins/outer_joins", Variation()),
    ("joins/three_way_join", Variation(cut=7, order="data first")),
    ("predicates/comparisons_with_null", Variation(order="queries first", decoys=12)),
    ("queries/rejects_are_a_stream", Variation()),
    ("queries/reopened", Variation(cut=7)),
    ("relations/relation_join", Variation(order="queries first")),
    ("time/idle_streams_follow_the_clock", Variation()),
    ("time/system_and_application_time", Variation(cut=1)),
    ("types/doubles_and_nan", Variation(order="data first", decoys=3)),
    ("types/timestamps_and_dates", Variation(options=(("materialize", "none"),))),
    ("windows/rows/rows_ties_by_arrival", Variation(cut=2, reopen_every=5)),
    ("windows/time/slide_moves_at_multiples", Variation(shuffled=True)),
]
#: Those that take longest, or whose way another goes too.
SLOW = {
    "changes/derivations/reopened",
    "changes/instants/system_time",
    "changes/operators/predicates_over_subqueries",
    "changes/operators/window_functions",
    "joins/outer_joins",
    "predicates/comparisons_with_null",
    "time/idle_streams_follow_the_clock",
    "types/doubles_and_nan",
    "types/timestamps_and_dates",
    "windows/time/slide_moves_at_multiples",
}


@pytest.mark.parametrize(
    ("golden", "variation"),
    [
        pytest.param(*each, id=each[0], marks=[pytest.mark.slow] if each[0] in SLOW else [])
        for each in SAMPLE
    ],
)
def test_golden(golden: str, variation: Variation, open_store: Callable[..., Pond]) -> None:
    def make(clock: ManualClock) -> Pond:
        return open_store("store", clock=clock)

    run_golden(GOLDENS / f"{golden}.cqt", make, variation)
