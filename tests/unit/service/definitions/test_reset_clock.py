"""How far the partitions of a source are taken to have come when a clock is set back.

What becomes of elements, changes and cursors is in `tests/integration/service/test_reset_clock.py`.
"""

from __future__ import annotations

import pytest

from millpond.engine.admission.heartbeat import PartitionProgress
from millpond.service.definitions.reset_clock import _set_back_partitions


@pytest.mark.parametrize(
    ("before", "left", "after"),
    [
        ({}, 7, {}),
        ({"0": 5, "1": 8}, 8, {"0": 5, "1": 8}),
        ({"0": 5, "1": 8, "2": 99}, 8, {"0": 5, "1": 8, "2": 5}),
        ({"0": 99, "1": 98}, 8, {"0": 8, "1": 8}),
        ({"0": 99, "1": None}, 8, {"0": 8, "1": None}),
        ({"0": 99}, None, {"0": None}),
    ],
)
def test_a_partition_that_went_too_far_is_with_the_slowest(
    before: dict[str, int | None], left: int | None, after: dict[str, int | None]
) -> None:
    known = {name: PartitionProgress(high, 3) for name, high in before.items()}
    found = _set_back_partitions(known, 10, left)
    assert {name: p.high for name, p in found.items()} == after
    assert all(p.arrived_at == 3 for p in found.values())
