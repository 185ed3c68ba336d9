"""Rows of equal number together: in their order, whether numbers are few or far apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.operators.structures.group_rows import group_rows


@pytest.mark.parametrize("most", [8, 10**9])
@given(numbers=st.lists(st.integers(0, 7), max_size=40))
def test_every_row_is_in_the_group_of_its_number(most: int, numbers: list[int]) -> None:
    order, starts, which = group_rows(np.array(numbers, np.int64), most)
    groups = {
        int(number): order[starts[g] : starts[g + 1]].tolist() for g, number in enumerate(which)
    }
    assert groups == {
        number: [i for i, own in enumerate(numbers) if own == number] for number in numbers
    }
    assert starts[0] == 0
    assert starts[-1] == len(numbers)
