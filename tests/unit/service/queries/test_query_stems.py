"""Query SteMs of the pond: who shares a slot, which snapshots stay, and what eddies learnt."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.service.versions import SCHEMA, stream, version_of

from millpond.catalog.objects import QueryDef
from millpond.cql import parse_query
from millpond.engine.eddy.routing import Account
from millpond.engine.matching.query_stem import QuerySteM
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import factorize
from millpond.service.queries import query_stems
from millpond.service.queries.query_stems import QueryStems, SlotUsers, slot_key
from millpond.state.bucket_map import BucketMap
from millpond.state.id_map import IdMap
from millpond.state.version import LeafRef, SlotRef, StreamState, Version

#: Longer than any of these tests takes: reached only by what is broken.
PATIENCE = 20.0


def slot(number: int, predicate: str) -> SlotRef:
    tree: Any = parse_query(f"SELECT v FROM s WHERE {predicate}").args["where"].this
    factors = factorize(tree, SCHEMA)
    return SlotRef(1, number, slot_key(factors), factors.pack())


def version(*slots: SlotRef, next_slot: int | None = None, **others: Any) -> Version:
    state = StreamState(
        slots=IdMap[SlotRef]().with_changes({s.slot: s for s in slots}),
        slot_keys=BucketMap[bytes, int]().with_changes({s.key: s.slot for s in slots}),
        next_slot=max((s.slot + 1 for s in slots), default=0) if next_slot is None else next_slot,
    )
    return version_of(stream(1, "s"), states={1: state}, **others)


@pytest.fixture
def stems(tmp_path: Path) -> QueryStems:
    (tmp_path / "stems").mkdir()
    return QueryStems(tmp_path)


def files(stems: QueryStems) -> set[Path]:
    return set((stems._store / "stems").iterdir())


def live(snapshot: str | None) -> list[int]:
    assert snapshot is not None
    return sorted(StemSnapshot.load(Path(snapshot)).slots.tolist())


def test_a_slot_goes_with_its_last_user(stems: QueryStems) -> None:
    stems.use([(1, 0), (1, 0), (1, 1)])
    assert stems.find_unused_without([(1, 0), (1, 1)]) == [(1, 1)]
    assert stems.find_unused_without([(1, 0), (1, 0)]) == [(1, 0)]
    stems.disuse([(1, 0)])
    assert (stems.users(1, 0), stems.users(1, 1), stems.users(2, 0)) == (1, 1, 0)
    assert stems.find_unused_without([(1, 0)]) == [(1, 0)]
    stems.disuse([(1, 0), (1, 1)])
    assert (stems.users(1, 0), stems.users(1, 1)) == (0, 0)


def test_users_are_counted_and_old_files_removed_at_the_start(stems: QueryStems) -> None:
    folder = stems._store / "stems"
    (folder / "left").write_text("…")
    (folder / "part").mkdir()
    query = {7: (LeafRef(7, 0, 1, 4), LeafRef(7, 1, 1, 4), LeafRef(7, 2, 1, None))}
    stems.load(version_of(QueryDef(7, "q", "…"), leaves=query))
    assert stems.users(1, 4) == 2
    assert files(stems) == set()


def test_predicates_that_differ_in_order_alone_have_one_key() -> None:
    assert slot(0, "v > 3 AND ts IS NULL").key == slot(1, "ts IS NULL AND v > 3").key
    assert slot(0, "v > 3").key != slot(0, "v > 4").key


def test_a_snapshot_is_written_when_slots_change(stems: QueryStems) -> None:
    assert stems.snapshot(version(), 1) == (None, 0)
    one = version(slot(0, "v > 3"), slot(2, "v < 9"))
    first = stems.snapshot(one, 1)
    assert first[1] == 3
    assert live(first[0]) == [0, 2]
    assert stems.snapshot(one, 1) == first
    # A slot that came and went again is covered all the same.
    covered = stems.snapshot(version(slot(0, "v > 3"), slot(2, "v < 9"), next_slot=5), 1)
    assert covered[1] == 5
    fewer = stems.snapshot(version(slot(2, "v < 9"), slot(6, "v = 1")), 1)
    assert fewer[1] == 7
    assert live(fewer[0]) == [2, 6]
    assert stems.snapshot(version(next_slot=7), 1) == (None, 7)


def test_snapshots_stay_while_somebody_keeps_them(
    stems: QueryStems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_stems, "_SNAPSHOTS_KEPT", 2)

    def write(numbers: Sequence[int]) -> str:
        made = stems.snapshot(version(*(slot(n, f"v > {n}") for n in numbers)), 1)[0]
        assert made is not None
        return made

    kept = write([0])
    with stems.keep_files(kept):
        for upto in range(2, 7):
            write(range(upto))
        assert Path(kept) in files(stems)
        assert live(kept) == [0]
    write(range(8))
    write(range(9))
    assert Path(kept) not in files(stems)


def test_a_part_is_of_the_newer_slots_alone(stems: QueryStems) -> None:
    held = version(slot(0, "v > 3"), slot(2, "v < 9"), slot(3, "v = 1"))
    with stems.part(held, 1, 2) as (part, upto):
        assert upto == 4
        assert live(str(part)) == [2, 3]
    assert files(stems) == set()
    with stems.part(held, 1, 4) as found:
        assert found == (None, 4)


def test_a_part_of_all_slots_is_what_batches_are_matched_with(stems: QueryStems) -> None:
    held = version(slot(0, "v > 3"), slot(2, "v < 9"))
    with stems.part(held, 1, 0) as (part, upto):
        assert live(str(part)) == [0, 2]
    assert stems.snapshot(held, 1) == (str(part), upto)
    with stems.part(version(next_slot=3), 1, 0) as found:
        assert found == (None, 3)


def measured(**learnt: Any) -> Any:
    return SimpleNamespace(learnt={}, stats={}, visits=0, routed=0, **learnt)


def test_what_eddies_measure_fades(stems: QueryStems) -> None:
    assert stems.order(1) is None
    stems.observe(1, measured())  # of a stream without a SteM nothing is kept
    assert stems.filters(1) == {}
    stems.snapshot(version(slot(0, "v > 3")), 1)
    first, second = (
        SimpleNamespace(
            learnt={"v": Account(), "ts": Account()},
            stats={
                "v": SimpleNamespace(tuples_in=100, tuples_out=out, ns=1_000),
                "ts": SimpleNamespace(tuples_in=0, tuples_out=0, ns=0),
            },
            visits=30,
            routed=10,
        )
        for out in (50, 10)
    )
    item: Any = first
    stems.observe(1, item)
    assert stems.filters(1) == {"v": (0.5, 10.0), "ts": (0.0, 0.0)}
    item = second
    stems.observe(1, item)
    share, _ = stems.filters(1)["v"]
    assert share == pytest.approx((0.8 * 50 + 10) / (0.8 * 100 + 100))
    ledger = stems.ledger(1)
    assert ledger is not None
    assert ledger.visited_per_tuple == 3


def test_attributes_are_ordered_by_tickets(stems: QueryStems) -> None:
    stems.snapshot(version(slot(0, "v > 3")), 1)
    few = Account(came=100, left=90, ns=1_000)
    many = Account(came=100, left=10, ns=1_000, predicates=10)
    passage = SimpleNamespace(tuples_in=100, tuples_out=90, ns=1_000)
    item: Any = SimpleNamespace(
        learnt={"ts": few, "v": many, "": many}, stats=dict.fromkeys(("ts", "v", ""), passage)
    )
    item.visits = item.routed = 0
    stems.observe(1, item)
    assert stems.order(1) == ("v", "ts")


def test_who_registers_does_not_wait_until_all_queries_are_laid_out(
    stems: QueryStems, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    build = QuerySteM.snapshot

    def wait(stem: QuerySteM) -> StemSnapshot:
        begun.set()
        assert may_end.wait(PATIENCE)
        return build(stem)

    monkeypatch.setattr(QuerySteM, "snapshot", wait)
    done: list[object] = []
    built: list[object] = []

    def register() -> None:
        stems.use([(1, 0)])
        done.append(stems.find_unused_without([(1, 0)]))
        stems.disuse([(1, 0)])
        done.append(stems.accounts(1))
        stems.observe(1, measured())
        with stems.keep_files(None):
            done.append(stems.filters(1))

    builder = threading.Thread(
        target=lambda: built.append(stems.snapshot(version(slot(0, "v > 3")), 1))
    )
    other = threading.Thread(target=register)
    builder.start()
    try:
        assert begun.wait(PATIENCE)
        other.start()
        other.join(PATIENCE)
        assert (len(done), built) == (3, [])
    finally:
        may_end.set()
        builder.join(PATIENCE)
    assert len(built) == 1


def test_a_snapshot_that_could_not_be_written_is_written_when_it_can_be(
    stems: QueryStems, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[Path]:
        raise OSError("no space left")

    stems.snapshot(version(slot(0, "v > 3"), slot(2, "v < 9")), 1)
    one = version(slot(0, "v > 3"), next_slot=3)
    with monkeypatch.context() as patch:
        patch.setattr(StemSnapshot, "save", fail)
        with pytest.raises(OSError, match="no space left"):
            stems.snapshot(one, 1)
    assert live(stems.snapshot(one, 1)[0]) == [0]


def test_a_batch_does_not_wait_until_very_many_queries_are_laid_out(
    stems: QueryStems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_stems, "_VERY_MANY", 3)
    few = version(slot(0, "v > 3"))
    known = stems.snapshot_at_hand(few, 1)
    assert known == stems.snapshot(few, 1)
    may_end, ended = threading.Event(), threading.Event()
    build = QuerySteM.snapshot

    def wait(stem: QuerySteM) -> StemSnapshot:
        assert may_end.wait(PATIENCE)
        return build(stem)

    write = stems._write_files

    def note(*given: Any) -> None:
        write(*given)
        ended.set()

    monkeypatch.setattr(QuerySteM, "snapshot", wait)
    monkeypatch.setattr(stems, "_write_files", note)
    many = version(*(slot(n, f"v > {n}") for n in range(4)))
    try:
        for _ in range(3):
            assert stems.snapshot_at_hand(many, 1) == known
    finally:
        may_end.set()
    assert ended.wait(PATIENCE)
    file, upto = stems.snapshot(many, 1)
    assert (live(file), upto) == ([0, 1, 2, 3], 4)
    assert stems.snapshot_at_hand(many, 1) == (file, upto)
    # Very many that go are laid out behind, too.
    assert stems.snapshot_at_hand(version(next_slot=4), 1)[0] in (file, None)
    assert stems.snapshot(version(next_slot=4), 1) == (None, 4)


# -- users of slots -----------------------------------------------------------------------------


def test_users_are_counted_slot_by_slot() -> None:
    rng = random.Random(3)
    users, expected = SlotUsers(), Counter[int]()
    for _ in range(5_000):
        slot = rng.choice([0, 1, 511, 512, 513, 70_000])
        many = 1 if rng.random() < 0.6 or not expected[slot] else -1
        users.add(slot, many)
        expected[slot] += many
        assert users.count(slot) == expected[slot]
    for slot in range(2_000):
        assert users.count(slot) == expected[slot]


def test_there_are_never_less_than_none() -> None:
    users = SlotUsers()
    users.add(3, -1)
    assert users.count(3) == 0
    users.add(3, 1)
    assert users.count(3) == 1


def test_slots_that_nobody_uses_take_no_memory() -> None:
    users = SlotUsers()
    for slot in range(2_000):
        users.add(slot, 1)
    assert len(users._pages) == 4
    for slot in range(1_536):
        users.add(slot, -1)
    assert list(users._pages) == [3]
