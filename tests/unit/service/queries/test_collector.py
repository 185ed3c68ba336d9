"""Large registrations, and the cycle collector."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import SimpleNamespace

import pytest

from millpond.service.queries import collector
from millpond.service.queries.collector import pause_collector


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
        assert gc.get_freeze_count() <= frozen  # nothing more, and what goes does not count
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


@pytest.mark.parametrize("queries", [101, 10_000])
def test_memory_is_given_back_behind_very_many(queries, monkeypatch):
    given = []
    monkeypatch.setattr(collector, "_give_back_memory", lambda: given.append(gc.isenabled()))
    try:
        with pause_collector(queries):
            assert not given
        assert given == [True] * (queries == 10_000)
    finally:
        gc.unfreeze()


def test_the_c_library_gives_all_free_memory_back_if_it_has_a_call_for_that(monkeypatch):
    kept: list[int] = []
    libraries = iter([SimpleNamespace(malloc_trim=kept.append), SimpleNamespace()])
    monkeypatch.setattr(collector.ctypes, "CDLL", lambda name: next(libraries))
    collector._give_back_memory()
    assert kept == [0]
    collector._give_back_memory()
    assert kept == [0]
    assert next(libraries, None) is None


_DROPPING = """
import gc, sys
from millpond.service.queries import collector
from millpond.testing.local_runtime import open_local

collector._VERY_MANY = 200
with open_local(sys.argv[1]) as pond:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, a INTEGER) TIMESTAMP BY ts")
    for _ in range(10):
        texts = [f"SELECT ts FROM s WHERE a = {n}" for n in range(500)]
        for handle in pond.register_many(texts):
            handle.unregister()
        print(gc.get_freeze_count())
"""


def test_queries_that_are_dropped_leave_nothing_that_only_a_collector_could_free(tmp_path):
    """What is taken out of collections forms no cycles: it goes with its queries."""
    command = [sys.executable, "-c", _DROPPING, str(tmp_path / "store")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    counts = [int(line) for line in said.split()]
    assert len(counts) == 10
    # Names that are gone wait to be tidied for some rounds.
    assert max(counts[5:]) - max(counts[:5]) < 500  # an object a query
