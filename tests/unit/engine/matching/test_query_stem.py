"""Adding and removing standing queries, snapshots, and snapshots as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millpond.engine.matching.grouped_filter import BLOCK
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import QuerySteM, snapshot_queries
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import NEVER, Factors
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.values.value_sets import Domain, interval
from millpond.model.schema import Field, Schema

STREAM = Schema((Field("a", "INTEGER"), Field("b", "INTEGER")))
SCALAR = ScalarEvaluator()
TABLE = pa.table(
    {
        "a": pa.array(np.arange(200) % 50, pa.int32()),
        "b": pa.array(np.arange(200) // 4, pa.int32()),
    }
)


def ranged(low: int, high: int, attribute: str = "a") -> Factors:
    return Factors(sets=((attribute, interval(Domain.INT32, low, high)),))


def matched(snapshot: StemSnapshot) -> dict[int, list[int]]:
    reader = match(TABLE, snapshot, SCALAR).reader()
    return {int(slot): reader.rows(int(slot), 0, 200).tolist() for slot in reader.slots}


class Registrations(RuleBasedStateMachine):
    """Any sequence of registrations matches as a Query SteM built at once does."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = QuerySteM(STREAM)
        self.known: dict[int, Factors] = {}
        self.next_slot = 0

    def _add(self, factors: Factors) -> None:
        self.stem.add(self.next_slot, factors)
        self.known[self.next_slot] = factors
        self.next_slot += 1

    @rule(count=st.integers(1, 400), low=st.integers(0, 40), width=st.integers(1, 9))
    def add_ranges(self, count: int, low: int, width: int) -> None:
        for i in range(count):
            self._add(ranged(low + i % 10, low + i % 10 + width, "ab"[i % 2]))

    @rule(
        factors=st.sampled_from(
            [
                NEVER,
                Factors(),
                Factors(others=('"a" % 7 = 0',)),
                Factors(sets=ranged(3, 30).sets, others=('"b" % 2 = 0', '"a" % 5 = 0')),
                Factors(clauses=((*ranged(3, 5).sets, *ranged(7, 9, "b").sets),)),
            ]
        )
    )
    def add_another_kind(self, factors: Factors) -> None:
        self._add(factors)

    @precondition(lambda self: self.known)
    @rule(share=st.floats(0, 1), seed=st.integers(0, 99))
    def remove_some(self, share: float, seed: int) -> None:
        random = np.random.default_rng(seed)
        for slot in [s for s in self.known if random.random() < share]:
            self.stem.remove(slot)
            del self.known[slot]

    @rule()
    def look(self) -> None:
        snapshot = self.stem.snapshot()
        assert snapshot.slots.tolist() == sorted(self.known)
        assert matched(snapshot) == matched(snapshot_queries(self.known.items(), STREAM))

    @invariant()
    def count(self) -> None:
        assert len(self.stem) == len(self.known)


TestRegistrations = Registrations.TestCase
TestRegistrations.settings = settings(max_examples=12, stateful_step_count=8)


def test_a_slot_is_added_once_and_removed_once() -> None:
    stem = QuerySteM(STREAM)
    stem.add(5, ranged(1, 2))
    with pytest.raises(ValueError, match="slot 5 is taken"):
        stem.add(5, NEVER)
    assert 5 in stem
    stem.remove(5)
    assert 5 not in stem
    with pytest.raises(KeyError):
        stem.remove(5)
    stem.add(5, ranged(3, 4))
    assert matched(stem.snapshot()) == {5: [3, 53, 103, 153]}


def test_upto_never_goes_back() -> None:
    stem = QuerySteM(STREAM)
    assert stem.snapshot().upto == 0
    stem.add(9, ranged(1, 2))
    stem.remove(9)
    assert stem.snapshot().upto == 10
    assert stem.snapshot().slots.tolist() == []


def test_one_more_query_rebuilds_one_block() -> None:
    stem = QuerySteM(STREAM)
    for slot in range(3 * BLOCK + 10):
        stem.add(slot, ranged(slot % 40, slot % 40 + 3))
    before = stem.snapshot()
    assert stem.snapshot() is before
    stem.add(99_999, ranged(1, 2))
    after = stem.snapshot()
    assert [a is b for a, b in zip(before.blocks, after.blocks, strict=True)] == [True] * 3 + [
        False
    ]
    assert 99_999 not in before.slots


def test_room_left_by_removed_queries_is_used() -> None:
    stem = QuerySteM(STREAM)
    for slot in range(2 * BLOCK):
        stem.add(slot, ranged(1, 3))
    for slot in range(0, 2 * BLOCK, 2):
        stem.remove(slot)
    for slot in range(5000, 5000 + BLOCK):
        stem.add(slot, ranged(2, 4))
    assert len(stem.snapshot().blocks) == 2


def test_mostly_empty_blocks_are_merged() -> None:
    stem = QuerySteM(STREAM)
    for slot in range(8 * BLOCK):
        stem.add(slot, ranged(slot % 40, slot % 40 + 1))
    for slot in range(8 * BLOCK):
        if slot % 16:
            stem.remove(slot)
    snapshot = stem.snapshot()
    assert len(snapshot.blocks) == 1
    assert snapshot.slots.tolist() == list(range(0, 8 * BLOCK, 16))
    assert all(rows for rows in matched(snapshot).values())


def test_a_saved_snapshot_matches_the_same(tmp_path: Path) -> None:
    stem = QuerySteM(STREAM)
    for slot in range(BLOCK + 5):
        stem.add(slot, ranged(slot % 40, slot % 40 + 3))
    stem.add(2000, Factors(others=('"a" % 7 = 0',)))
    stem.add(2001, Factors())
    stem.add(2002, NEVER)
    snapshot = stem.snapshot()
    files = snapshot.save(tmp_path / "stem-1")
    loaded = StemSnapshot.load(tmp_path / "stem-1")
    assert set(files) == set(tmp_path.iterdir())
    assert matched(loaded) == matched(snapshot)
    assert loaded.slots.tolist() == snapshot.slots.tolist()
    assert (loaded.upto, loaded.schema) == (2003, STREAM)


def test_unchanged_blocks_are_neither_written_nor_mapped_again(tmp_path: Path) -> None:
    stem = QuerySteM(STREAM)
    for slot in range(BLOCK + 5):
        stem.add(slot, ranged(slot % 40, slot % 40 + 3))
    first = stem.snapshot().save(tmp_path / "stem-1")
    written = first[1].stat().st_mtime_ns
    stem.add(7000, ranged(1, 2))
    second = stem.snapshot().save(tmp_path / "stem-2")
    assert second[1] == first[1]
    assert second[1].stat().st_mtime_ns == written
    assert second[2] != first[2]
    one = StemSnapshot.load(tmp_path / "stem-1")
    two = StemSnapshot.load(tmp_path / "stem-2")
    assert one.blocks[0] is two.blocks[0]


def test_an_idle_query_costs_less_than_a_kilobyte_once_saved(tmp_path: Path) -> None:
    stem = QuerySteM(STREAM)
    random = np.random.default_rng(1)
    for slot in range(2 * BLOCK):
        low, other = (int(x) for x in random.integers(0, 1_000_000, 2))
        sets = (*ranged(low, low + 1000).sets, *ranged(other, other + 1000, "b").sets)
        stem.add(slot, Factors(sets=sets))
    before = matched(stem.snapshot())
    stem.snapshot().save(tmp_path / "stem")
    held = stem.memory()
    stem.release(tmp_path)
    assert stem.memory() < held
    assert stem.memory() / len(stem) < 1024
    assert matched(stem.snapshot()) == before
    stem.add(9999, ranged(1, 2))
    assert 9999 in matched(stem.snapshot())
