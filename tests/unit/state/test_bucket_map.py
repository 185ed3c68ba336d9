"""A BucketMap is a dict whose copies share: it must behave like one, and never change."""

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.state.bucket_map import BucketMap

KEYS = st.integers(min_value=0, max_value=2_000).map(str)
CHANGES = st.lists(st.tuples(st.dictionaries(KEYS, st.integers(), max_size=20), st.sets(KEYS)))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(CHANGES)
def test_it_is_a_dict_and_every_earlier_map_stays_what_it_was(changes):
    map_, model = BucketMap(), {}
    history = [(map_, {})]
    for put, drop in changes:
        map_ = map_.changed(put, drop)
        for key in drop:
            model.pop(key, None)
        model.update(put)
        history.append((map_, dict(model)))
    for then, expected in history:
        assert dict(then) == expected
        assert list(then) == sorted(expected)
        assert len(then) == len(expected)
        assert all((key in then) == (key in expected) for key in map(str, range(0, 2_000, 97)))


def test_a_change_shares_what_it_does_not_touch():
    large = BucketMap().changed({str(key): key for key in range(10_000)})
    changed = large.changed({"5": -5})
    shared = sum(a is b for a, b in zip(large._buckets, changed._buckets, strict=True))
    assert shared == len(large._buckets) - 1


def test_changing_nothing_gives_the_same_map():
    map_ = BucketMap().changed({"a": 1})
    assert map_.changed({}, drop=["b"]) is map_
    assert map_.get("b") is None
    assert map_.get("b", 3) == 3
