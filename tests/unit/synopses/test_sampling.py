"""A sample is a function of seed and arrival number, of the right size, and spread evenly."""

from __future__ import annotations

import numpy as np
import pytest

from millpond.synopses.sampling import choose_sample

NUMBERS = np.arange(100_000, dtype=np.int64)


@pytest.mark.parametrize("percent", [0.1, 1, 10, 50, 99])
def test_a_sample_has_its_share_everywhere(percent: float) -> None:
    kept = choose_sample(7, NUMBERS, percent)
    for part in np.split(kept, 10):
        expected = len(part) * percent / 100
        deviation = (expected * (1 - percent / 100)) ** 0.5
        assert abs(part.sum() - expected) < 5 * deviation


def test_whether_an_element_is_kept_does_not_depend_on_the_others() -> None:
    some = NUMBERS[::7][::-1]
    assert (choose_sample(7, some, 20) == choose_sample(7, NUMBERS, 20)[some]).all()


def test_a_larger_sample_holds_the_smaller_one() -> None:
    small, large = (choose_sample(-3, NUMBERS, percent) for percent in (5, 30))
    assert not (small & ~large).any()


def test_other_seeds_choose_other_elements() -> None:
    one, other = (choose_sample(seed, NUMBERS, 50) for seed in (1, 2))
    assert 0.48 < (one == other).mean() < 0.52


def test_all_and_none() -> None:
    assert choose_sample(0, NUMBERS, 100).all()
    assert not choose_sample(0, NUMBERS, 0).any()
