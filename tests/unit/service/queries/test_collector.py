"""Large registrations, and the cycle collector."""

from __future__ import annotations

import gc

import pytest

from millpond.service.queries import collector
from millpond.service.queries.collector import pause_collector
from millpond.testing.local_runtime import open_local


@pytest.mark.parametrize("queries", [1, 101, 10_000])
def test_it_waits_for_many(queries):
    frozen = gc.get_freeze_count()
    try:
        with pause_collector(queries):
            assert gc.isenabled() == (queries == 1)
        assert gc.isenabled()
        assert (gc.get_freeze_count() > frozen) == (queries == 10_000)
        frozen = gc.get_freeze_count()
        with pytest.raises(ValueError, match="bad"), pause_collector(queries):
            raise ValueError("bad")
        assert gc.isenabled()
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()


def test_who_has_no_collector_gets_none():
    gc.disable()
    try:
        with pause_collector(10_000):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_queries_that_are_dropped_leave_nothing_that_only_a_collector_could_free(
    tmp_path, monkeypatch
):
    """What is taken out of collections forms no cycles: it goes with its queries."""
    monkeypatch.setattr(collector, "_VERY_MANY", 200)
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, a INTEGER) TIMESTAMP BY ts")

        def register_and_drop() -> int:
            handles = pond.register_many([f"SELECT ts FROM s WHERE a = {n}" for n in range(500)])
            for handle in handles:
                handle.unregister()
            return gc.get_freeze_count()

        try:
            first = [register_and_drop() for _ in range(5)]  # names that are gone wait to be tidied
            then = [register_and_drop() for _ in range(5)]
            assert max(then) - max(first) < 500  # an object a query
        finally:
            gc.unfreeze()
