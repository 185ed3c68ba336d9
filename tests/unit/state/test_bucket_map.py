"""What a BucketMap shares with the map it was made from."""

from millpond.state.bucket_map import BucketMap


def test_a_change_shares_what_it_does_not_touch():
    large = BucketMap().with_changes({str(key): key for key in range(10_000)})
    changed = large.with_changes({"5": -5})
    shared = sum(a is b for a, b in zip(large._buckets, changed._buckets, strict=True))
    assert shared == len(large._buckets) - 1


def test_changing_nothing_gives_the_same_map():
    map_ = BucketMap().with_changes({"a": 1})
    assert map_.with_changes({}, drop=["b"]) is map_
    assert map_.get("b") is None
    assert map_.get("b", 3) == 3
