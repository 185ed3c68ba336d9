"""What of a query may be reduced, and the reduced query."""

from __future__ import annotations

import pytest
from tests.unit.planner.refusing import Binding

from millpond.catalog.tolerance import Reduction
from millpond.model.windows import Range, Rows
from millpond.planner.approximate.reductions import reduce_query, shorten, stream_seed, survey

MINUTE = 60_000_000


def test_a_window_of_time_is_shortened_and_a_stream_is_sampled(binding: Binding) -> None:
    bound = binding("SELECT delay FROM flights [RANGE 1 HOUR]")
    reduced = reduce_query(bound, survey(bound), Reduction(5 * MINUTE, 10.0))
    assert reduced is not None
    (leaf,) = reduced.bound.streams
    assert (leaf.window, leaf.sample) == (Range(5 * MINUTE), 10.0)
    assert leaf.seed == stream_seed("flights", 0)
    assert reduced.reduction == Reduction(5 * MINUTE, 10.0)
    assert reduced.estimates == ()


def test_an_aggregate_is_estimated_from_a_sample_and_no_window_is_shortened(
    binding: Binding,
) -> None:
    bound = binding("SELECT count(*) AS n FROM flights [RANGE 1 HOUR]")
    found = survey(bound)
    assert found.clip(Reduction(5 * MINUTE, 10.0)) == Reduction(None, 10.0)
    reduced = reduce_query(bound, found, Reduction(5 * MINUTE, 10.0))
    assert reduced is not None
    assert [estimate.function for estimate in reduced.estimates] == ["count"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT delay FROM flights [ROWS 10]",
        "SELECT max(delay) AS m FROM flights [RANGE 1 HOUR]",
        "SELECT delay FROM flights f FULL JOIN weather w ON f.origin = w.origin",
    ],
)
def test_what_may_not_be_reduced_stays_as_it_is(binding: Binding, text: str) -> None:
    bound = binding(text)
    found = survey(bound)
    assert all(leaf.against_window and leaf.against_sample for leaf in found.leaves), found
    assert reduce_query(bound, found, Reduction(5 * MINUTE, 10.0)) is None


def test_a_shorter_window_is_not_made_longer() -> None:
    assert shorten(Range(3), 5) == Range(3)
    assert shorten(Rows(3), 5) == Rows(3)
