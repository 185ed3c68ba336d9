"""Slots are divided by the weights of the queries that share them."""

from __future__ import annotations

from tests.unit.service.conftest import components_of

from millpond.service.pond import Pond
from millpond.service.queries.deferral import Deferral


def test_a_slot_is_matched_if_some_query_of_it_is_heavy_enough(pond: Pond) -> None:
    pond.execute(
        """
        CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
        CREATE QUERY a WITH (weight = 9) AS SELECT v FROM s WHERE v = 0;
        CREATE QUERY b AS SELECT v FROM s WHERE v = 1;
        CREATE QUERY c WITH (weight = 2) AS SELECT v FROM s WHERE v = 2;
        CREATE QUERY d AS SELECT v FROM s WHERE v = 3;
        CREATE QUERY e WITH (weight = 9) AS SELECT count(*) FROM s WHERE v = 3;
        CREATE QUERY f WITH (weight = 9, active = false) AS SELECT v FROM s WHERE v = 1;
        """
    )
    version = components_of(pond).log.version
    stream = version.find("s").id  # type: ignore[union-attr]
    deferral = Deferral()

    def divide(weight: float) -> tuple[list[int], int, tuple[int, ...]]:
        found = deferral.divide(components_of(pond).log.version, stream, weight)
        return [slot.slot for slot in found.matched], found.low, found.waiting

    # The first slot always waits, so that backfill matches these segments whole.
    assert divide(1) == ([2, 3], 2, ())
    assert divide(2) == ([3], 3, ())
    assert divide(9) == ([], 1, (1, 2, 3))
    pond.register("SELECT v FROM s WHERE v = 7", weight=2)
    assert divide(2) == ([3], 3, (4,))
    pond.query("e").alter(weight=1)
    assert divide(2) == ([], 1, (1, 2, 3, 4))
    # The same tuple for the same slots, so that the snapshot is not written again.
    same = deferral.divide(components_of(pond).log.version, stream, 1)
    assert deferral.divide(components_of(pond).log.version, stream, 1) is same
