"""Which probes a budget allows: held to a naive choice, one probe at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.promising.waiting import ORDERS, REGION, choose

_REGIONS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 9), st.integers(0, 3), st.integers(1, 4),
        st.sampled_from([0.5, 1.0, 2.0, 8.0]), st.booleans(),
    ),
    max_size=25,
    unique_by=lambda region: region[:3],
)  # fmt: skip


def make(regions: list[tuple[int, int, int, int, float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    waiting = np.zeros(len(regions), REGION)
    for row, (query, key, since, _, priority, expected) in zip(waiting, regions, strict=True):
        row["query"], row["key"], row["since"], row["upto"] = query, key, since, since + 1
        row["priority"], row["results"] = priority * expected, expected
    return waiting, np.array([region[3] for region in regions], np.int64)


@given(_REGIONS, st.lists(st.integers(0, 12), min_size=3, max_size=3))
def test_desc_and_asc_take_region_after_region(regions: list, budgets: list[int]) -> None:
    waiting, left = make(regions)
    orders = np.array([0, 1, 0])
    chosen = choose(
        waiting, left, waiting["priority"], orders, np.array(budgets), np.zeros(3)
    )  # fmt: skip
    wanted = []
    for query, budget in enumerate(budgets):
        own = [n for n in range(len(waiting)) if waiting["query"][n] == query]
        sign = 1 if ORDERS[orders[query]] == "asc" else -1
        own.sort(
            key=lambda n, sign=sign: (
                waiting["results"][n] <= 0,
                sign * waiting["priority"][n],
                -waiting["since"][n],
                waiting["key"][n],
            )
        )
        for number in own:
            probes = min(int(left[number]), budget)
            budget -= probes
            wanted += [(number, probes)] * (probes > 0)
    assert list(zip(chosen.places.tolist(), chosen.probes.tolist(), strict=True)) == wanted


@given(_REGIONS, st.integers(1, 40), st.integers(1, 5))
def test_weighted_gives_the_same_probes_however_the_budget_is_cut(
    regions: list, budget: int, cuts: int
) -> None:
    waiting, left = make([(0, *region[1:]) for region in regions])
    waiting, first = np.unique(waiting, return_index=True)
    left = left[first]
    listed: list[tuple[int, int, int]] = []
    orders, clocks = np.array([2]), np.zeros(1)
    whole = choose(waiting, left, waiting["priority"], orders, np.array([budget]), clocks)
    taken = np.zeros(len(waiting), np.int64)
    for n in range(cuts):
        own = np.array([budget * (n + 1) // cuts - budget * n // cuts])
        part = choose(waiting, left - taken, waiting["priority"], orders, own, clocks)
        clocks = part.clocks
        at = (taken[part.places] + part.offset).tolist()
        listed += zip(part.places.tolist(), at, part.probes.tolist(), strict=True)
        np.add.at(taken, part.places, part.probes)
        waiting["done"] = taken
    once = np.zeros(len(waiting), np.int64)
    np.add.at(once, whole.places, whole.probes)
    assert taken.sum() == once.sum() == min(budget, left.sum())
    assert (taken == once).all()
    fair = [entry for entry in listed if entry[2] == 1 and waiting["results"][entry[0]]]
    assert fair == [
        entry
        for entry in zip(
            whole.places.tolist(), whole.offset.tolist(), whole.probes.tolist(), strict=True
        )
        if waiting["results"][entry[0]]
    ]


def test_weighted_divides_by_the_weights() -> None:
    waiting = np.zeros(2, REGION)
    waiting["key"], waiting["results"] = (7, 9), 1.0
    weights, left = np.array([3.0, 1.0]), np.array([1_000, 1_000])
    chosen = choose(waiting, left, weights, np.array([2]), np.array([400]), np.zeros(1))
    assert np.bincount(chosen.places, chosen.probes).tolist() == [300, 100]
    # Not one region after the other: any beginning is in proportion, too.
    assert np.bincount(chosen.places[:40]).tolist() == [30, 10]
