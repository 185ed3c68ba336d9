"""Scheduling policies on a simulated clock: the paper's table, the optimum, the latency bound."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tools.simulated_queues import (
    SimulatedRun,
    Stage,
    find_least_sizes,
    simulate,
    to_rates,
)

from millpond.engine.dataflow.scheduling.chain import Chain
from millpond.engine.dataflow.scheduling.fifo import Fifo
from millpond.engine.dataflow.scheduling.policies import NAMES, make_policy
from millpond.engine.dataflow.scheduling.progress_chart import find_chains, find_steepness
from millpond.engine.dataflow.scheduling.protocol import OperatorRates

#: The example of CIDR 2003, section 4.2: O1 keeps a fifth, and what O2 puts out is the result.
PAPER = [Stage(1, Fraction(1, 5)), Stage(1, Fraction(0))]
BURST = range(1, 8)
#: When batches arrive: at once, one a unit, in two bursts, now and then, with a long pause.
BURSTS: Sequence[Sequence[int]] = (
    (0, 0, 0, 0),
    (0, 1, 2, 3, 4),
    (0, 0, 5, 5),
    (0, 3, 4, 9),
    (0, 0, 0, 12),
)
STAGES = st.builds(
    Stage,
    st.integers(1, 2),
    st.sampled_from([Fraction(n, 10) for n in (1, 2, 5, 9, 10, 15, 20)]),
)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("fifo", "1 1.2 2 2.2 3 3.2 4"),
        ("greedy", "1 1.2 1.4 1.6 1.8 2.0 2.2"),
        ("chain", "1 1.2 1.4 1.6 1.8 2.0 2.2"),
    ],
)
def test_queues_are_as_large_as_in_the_papers_table(name: str, sizes: str) -> None:
    run = simulate(make_policy(name), PAPER, BURST, 20)
    assert run.sizes[1:8] == [Fraction(size) for size in sizes.split()]
    # After the burst queues decline until they are empty at time 15.
    assert all(later <= before for before, later in itertools.pairwise(run.sizes[8:16]))
    assert run.sizes[14] > 0
    assert run.sizes[15:] == [0] * 6


def test_round_robin_takes_turns() -> None:
    run = simulate(make_policy("round robin"), PAPER, BURST, 20)
    assert run.sizes[15:] == [0] * 6
    three = [OperatorRates((1,), 1, 1), OperatorRates((2,), 1, 1), OperatorRates((), 1, 0)]
    assert find_steepness(three) == [pytest.approx(1 / 3)] * 3


def test_greedy_leaves_a_steep_operator_behind_a_flat_one_and_chain_does_not() -> None:
    """The paper's reason for chains: the operator that feeds a great one is itself of no use."""
    stages = [Stage(1, Fraction(1)), Stage(1, Fraction(1, 10)), Stage(1, Fraction(1, 20))]
    stages += [Stage(3, Fraction(1, 2)), Stage(1, Fraction(0))]
    chain, greedy = (
        max(simulate(make_policy(name), stages, (0, 0, 0, 0), 30).sizes[6:])
        for name in ("chain", "greedy")
    )
    assert chain <= greedy
    assert find_chains(to_rates(stages))[0][0] == range(2)


def test_an_operator_of_two_paths_has_the_steeper_chain() -> None:
    left, right = OperatorRates((2,), 1.0, 1.0), OperatorRates((2,), 9.0, 1.0)
    steepness = find_steepness([left, right, OperatorRates((), 1.0, 0.0)])
    assert steepness == [0.5, 0.1, 0.5]


def test_a_path_ends_where_several_read_one_output() -> None:
    steepness = find_steepness(
        [OperatorRates((1, 2), 1.0, 1.0), OperatorRates((), 1.0, 0.0), OperatorRates((), 2.0, 0.0)]
    )
    assert steepness == [0.0, 1.0, 0.5]


def check_optimum(stages: Sequence[Stage], arrivals: Sequence[int]) -> None:
    until = arrivals[-1] + len(arrivals) * sum(stage.time for stage in stages)
    run = simulate(Chain(), stages, arrivals, until)
    least = find_least_sizes(stages, arrivals, until)
    # A batch is largest where it waits: a chain that grows first counts as large as it gets.
    chains = len(find_chains(to_rates(stages)))
    largest = max(itertools.accumulate((s.selectivity for s in stages), lambda a, b: a * b))
    slack = chains * max(Fraction(1), largest)
    for at, (size, possible) in enumerate(zip(run.sizes, least, strict=True)):
        assert size <= possible + slack, (stages, arrivals, at)


@given(st.lists(STAGES, min_size=1, max_size=4), st.sampled_from(BURSTS))
@settings(max_examples=25, deadline=None)
def test_chain_holds_at_most_a_batch_per_chain_more_than_any_schedule(
    stages: list[Stage], arrivals: Sequence[int]
) -> None:
    check_optimum(stages, arrivals)


@pytest.mark.slow
@given(st.lists(STAGES, min_size=1, max_size=5), st.sampled_from(BURSTS))
@settings(max_examples=1_000, deadline=None)
def test_chain_holds_at_most_a_batch_per_chain_more_than_any_schedule_of_many(
    stages: list[Stage], arrivals: Sequence[int]
) -> None:
    check_optimum(stages, arrivals)


@pytest.mark.slow
@pytest.mark.parametrize("count", range(1, 6))
def test_chain_is_held_to_the_optimum_on_every_plan_of_a_grid(count: int) -> None:
    shares = [Fraction(1, 5), Fraction(1, 2), Fraction(1)]
    for selectivities in itertools.product(shares, repeat=count):
        times = itertools.product((1, 2), repeat=count) if count < 4 else [(1,) * count]
        for some in times:
            stages = [Stage(t, s) for t, s in zip(some, selectivities, strict=True)]
            for arrivals in BURSTS:
                check_optimum(stages, arrivals)


@given(
    st.lists(STAGES, min_size=1, max_size=4),
    st.lists(st.integers(0, 20), min_size=1, max_size=8).map(sorted),
    st.integers(0, 30),
)
@settings(max_examples=60, deadline=None)
def test_a_slice_is_late_only_if_it_would_be_late_by_fifo_too(
    stages: list[Stage], arrivals: list[int], bound: int
) -> None:
    until = arrivals[-1] + len(arrivals) * sum(stage.time for stage in stages)
    plain = simulate(Fifo(), stages, arrivals, until)
    bounded = simulate(make_policy("chain", bound), stages, arrivals, until)
    assert len(plain.latencies) == len(bounded.latencies) == len(arrivals)
    # A decision holds for a unit of time.
    assert max(bounded.latencies) <= max(bound + 1, *plain.latencies)


def test_without_a_near_bound_chain_decides() -> None:
    def run(bound: float | None) -> SimulatedRun:
        return simulate(make_policy("chain", bound), PAPER, BURST, 20)

    assert run(1_000).sizes == run(None).sizes
    assert run(0).sizes == simulate(Fifo(), PAPER, BURST, 20).sizes
    assert sum(run(6).latencies) < sum(run(None).latencies)


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_finishes_at_the_same_time(name: str) -> None:
    stages = [Stage(2, Fraction(1, 2)), Stage(1, Fraction(2)), Stage(1, Fraction(1, 10))]
    run = simulate(make_policy(name), stages, BURSTS[2], 16)
    assert (run.sizes[15] > 0, run.sizes[16]) == (True, 0)
