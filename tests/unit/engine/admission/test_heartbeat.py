"""The heartbeat of a source with partitions: the least of theirs, without the idle ones."""

from __future__ import annotations

import pytest

from millpond.catalog.objects import StreamDef
from millpond.engine.admission.heartbeat import (
    PartitionProgress,
    StreamProgress,
    after_arrivals,
    after_partitions,
    current_heartbeat,
)
from millpond.model.schema import Schema
from millpond.model.time import BEGINNING

STREAM = StreamDef(1, "s", Schema(()), "at", delay=10, idle_after=100)


def progress(heartbeat: int = BEGINNING, **partitions: tuple[int | None, int]) -> StreamProgress:
    known = {name: PartitionProgress(*facts) for name, facts in partitions.items()}
    return StreamProgress(None, heartbeat, max(p.arrived_at for p in known.values()), False, known)


@pytest.mark.parametrize(
    ("known", "clock", "expected"),
    [
        (progress(a=(500, 0), b=(300, 0)), 50, 290),
        (progress(a=(500, 0), b=(None, 0)), 50, BEGINNING),
        (progress(a=(500, 60), b=(300, 0)), 120, 490),
        (progress(a=(500, 60), b=(None, 0)), 120, 490),
        # None counts: the clock, as far behind the greatest as it was at the last arrival.
        (progress(a=(500, 60), b=(300, 0)), 200, 630),
        # A heartbeat never goes back.
        (progress(400, a=(500, 0), b=(300, 0)), 50, 400),
    ],
)
def test_the_least_of_the_partitions_that_count(known, clock, expected):
    assert current_heartbeat(known, STREAM, clock) == expected


def test_one_partition_is_as_a_stream_without():
    plain = after_arrivals(StreamProgress(), STREAM, 500, 60)
    parts = after_partitions(StreamProgress(), {"a": 500}, ["a"], 60)
    one = after_arrivals(StreamProgress(), STREAM, 500, 60, parts)
    for clock in (60, 100, 160, 200, 1_000):
        assert current_heartbeat(one, STREAM, clock) == current_heartbeat(plain, STREAM, clock)


def test_a_partition_that_is_found_holds_the_heartbeat():
    before = progress(290, a=(500, 0), b=(300, 0))
    found = after_partitions(before, {"a": 600}, ["a", "b", "c"], 20)
    assert found == {"a": PartitionProgress(600, 20), "c": PartitionProgress(None, 20)}
    after = after_arrivals(before, STREAM, 600, 20, found)
    assert after.heartbeat == 290
    assert after.high == 600
    assert after.partitions["b"] == PartitionProgress(300, 0)


def test_a_partition_of_rejects_alone_counts_as_arrived():
    before = progress(290, a=(500, 0), b=(300, 0))
    found = after_partitions(before, {"b": None}, ["a", "b"], 20)
    assert found == {"b": PartitionProgress(300, 20)}
