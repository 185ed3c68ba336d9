"""What a change means for the version it meets: numbered, left out, or refused."""

from dataclasses import replace

import pytest

from millpond.errors import MillpondError
from millpond.state.epoch.epoch_change import EpochChange, StaleChange, new_segment_id
from millpond.state.epoch.next_version import next_version
from millpond.state.epoch.resolve_change import ResolvedChange, resolve_change
from millpond.state.version import LeafRef, MatchRef, SlotRef, StreamClock, Version


def resolve(version: Version, **parts: object) -> ResolvedChange:
    first = 100 * (version.epoch + 1)
    return resolve_change(EpochChange(kind="test", **parts), version, first, first + 50)


def commit(version: Version, **parts: object) -> Version:
    return next_version(version, resolve(version, **parts))


def match(segment_id: int, path: str = "matches/m") -> MatchRef:
    return MatchRef(0, segment_id, 0, 1, path, "c0ffee", 10)


@pytest.fixture
def version(a) -> Version:
    """A stream 1 with segment 100 and its matches 150, a relation 2, a query 3 with a slot."""
    return commit(
        Version(),
        add=[a.stream(1), a.relation(2), a.query(3)],
        segments=[a.segment(1)],
        matches=[match(new_segment_id(0))],
        add_slots=[SlotRef(1, 0, b"k", b"f")],
        add_leaves=[LeafRef(3, 0, 1, 0)],
        add_deltas=[a.delta(2, "relations/d")],
    )


def test_new_things_get_numbers_and_the_epoch(version, a):
    assert version.epoch == 1
    assert version.queries[3].registered_epoch == 1
    (segment,) = version.segments(1)
    assert (segment.id, segment.epoch) == (100, 1)
    assert [(m.id, m.segment_id) for m in version.matches(100)] == [(150, 100)]
    assert version.relation_deltas(2)[0].epoch == 1
    resolved = resolve(version, segments=[a.segment(1, "segments/b"), a.segment(1, epoch=1)])
    assert [(s.id, s.epoch) for s in resolved.segments] == [(200, 2), (201, 1)]


def test_a_batch_of_a_dropped_stream_is_left_out(version, a):
    dropped = commit(version, drop=[1])
    resolved = resolve(
        dropped,
        segments=[a.segment(1, "segments/late")],
        matches=[match(new_segment_id(0), "matches/late")],
        clocks={1: StreamClock(high=9)},
    )
    assert (resolved.segments, resolved.matches, resolved.clocks) == ((), (), {})
    assert set(resolved.unreferenced) == {"segments/late", "matches/late"}


def test_a_stream_takes_what_is_its_own_with_it(version):
    resolved = resolve(version, drop=[1])
    assert [s.id for s in resolved.drop_segments] == [100]
    assert [m.id for m in resolved.drop_matches] == [150]
    assert [s.slot for s in resolved.drop_slots] == [0]
    assert set(resolved.unreferenced) == {"segments/a", "matches/m"}
    assert next_version(version, resolved).find("flights") is None


def test_a_query_leaves_its_slots_to_those_that_share_them(version):
    resolved = resolve(version, drop=[3])
    assert resolved.drop_leaves == {3}
    assert resolved.drop_slots == ()
    after = next_version(version, resolved)
    assert after.leaves(3) == ()
    assert after.slot(1, 0) is not None


def test_matches_of_a_segment_that_was_merged_away_are_left_out(version, a):
    resolved = resolve(
        version,
        segments=[a.segment(1, "segments/merged")],
        replaced=[100],
        matches=[match(100, "matches/old"), match(new_segment_id(0), "matches/new")],
    )
    assert [m.path for m in resolved.matches] == ["matches/new"]
    assert resolved.matches[0].segment_id == 200
    assert [m.path for m in resolved.drop_matches] == ["matches/m"]
    assert "matches/old" in resolved.unreferenced


@pytest.mark.parametrize(
    "stale",
    [
        {"drop": [77]},
        {"replaced": [77]},
        {"add_slots": [SlotRef(77, 0, b"k", b"f")]},
        {"add_slots": [SlotRef(1, 0, b"other", b"f")]},
        {"add_leaves": [LeafRef(77, 0, 1, None)]},
        {"add_leaves": [LeafRef(3, 0, 77, None)]},
    ],
)
def test_a_change_that_no_longer_fits_is_refused(version, stale):
    with pytest.raises(StaleChange):
        resolve(version, **stale)


def test_a_definition_is_replaced_by_one_of_its_name_and_kind_only(version, a):
    assert resolve(version, replace=[replace(a.query(3), suspended="why")]).replace
    for other in (a.query(3, "renamed"), a.stream(3, "late"), a.query(77)):
        with pytest.raises(StaleChange):
            resolve(version, replace=[other])
    with pytest.raises(StaleChange):
        resolve(version, replace=[a.query(3)], drop=[3])


def test_a_name_is_free_again_in_the_epoch_that_drops_it(version, a):
    with pytest.raises(MillpondError, match="CQL-208"):
        resolve(version, add=[a.query(9, "FLIGHTS")])
    after = commit(version, add=[a.query(9, "FLIGHTS")], drop=[1])
    assert after.find("flights").id == 9
    with pytest.raises(MillpondError, match="CQL-208"):
        resolve(version, add=[a.query(9, "twice"), a.query(10, "Twice")])


def test_what_is_absent_may_be_evicted_and_forgotten(version):
    resolved = resolve(version, expired=[100, 77], drop_slots=[(1, 0), (1, 77)])
    assert [s.id for s in resolved.drop_segments] == [100]
    assert [s.slot for s in resolved.drop_slots] == [0]
    assert next_version(version, resolved).segments(1) == ()


def test_a_folded_delta_must_still_be_there(version, a):
    (delta,) = version.relation_deltas(2)
    resolved = resolve(version, drop_deltas=[delta], add_deltas=[a.delta(2, "relations/folded")])
    assert [d.path for d in resolved.drop_deltas] == ["relations/d"]
    with pytest.raises(StaleChange):
        resolve(next_version(version, resolved), drop_deltas=[delta])


def test_a_file_of_several_segments_goes_with_the_last_of_them(version, a):
    path = "segments/shared"
    both = commit(
        version,
        add=[a.stream(4, "other")],
        segments=[a.segment(1, path, rows=3), a.segment(4, path, rows=7)],
    )
    assert dict(both.shared_files) == {path: (2, 10)}
    own = [next(s for s in both.segments(n) if s.path == path) for n in (1, 4)]
    assert [both.bytes_of(segment) for segment in own] == [30, 70]
    first = resolve(both, expired=[own[0].id])
    assert first.unreferenced == ()
    left = next_version(both, first)
    assert dict(left.shared_files) == {}
    assert left.bytes_of(own[1]) == 100
    assert resolve(left, drop=[4]).unreferenced == (path,)
    assert resolve(both, replaced=[s.id for s in own]).unreferenced == (path,)


def test_a_file_stays_if_one_of_its_streams_was_dropped_meanwhile(version, a):
    path = "segments/shared"
    resolved = resolve(version, segments=[a.segment(1, path), a.segment(9, path)])
    assert resolved.unreferenced == ()
    assert dict(resolved.shared_files) == {}
    assert resolve(version, segments=[a.segment(9, path)]).unreferenced == (path,)


def test_a_segment_of_a_shared_file_may_go_over_to_another_stream(version, a):
    path = "segments/shared"
    both = commit(
        version,
        add=[a.stream(4, "other")],
        segments=[a.segment(1, path), a.segment(1, path)],
    )
    own = [s for s in both.segments(1) if s.path == path]
    moved = resolve(both, segments=[replace(own[0], stream_id=4)], replaced=[own[0].id])
    assert moved.unreferenced == ()
    assert dict(moved.shared_files) == {path: (2, 20)}
