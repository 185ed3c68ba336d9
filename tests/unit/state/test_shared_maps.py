"""BucketMaps and IdMaps are dicts whose copies share: they must behave so, and never change."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.state.bucket_map import BucketMap
from millpond.state.id_map import IdMap

NUMBERS = st.integers(min_value=0, max_value=2_000)
CHANGES = st.lists(
    st.tuples(st.dictionaries(NUMBERS, st.integers(), max_size=20), st.sets(NUMBERS))
)


@pytest.mark.parametrize(("new", "key"), [(BucketMap, str), (IdMap, int)])
@given(changes=CHANGES)
def test_it_is_a_dict_and_every_earlier_map_stays_what_it_was(
    new: Callable[[], Any], key: Callable[[int], Any], changes: Any
) -> None:
    map_, model = new(), {}
    history = [(map_, {})]
    for put, drop in changes:
        map_ = map_.with_changes({key(n): value for n, value in put.items()}, map(key, drop))
        for number in drop:
            model.pop(key(number), None)
        model.update({key(n): value for n, value in put.items()})
        history.append((map_, dict(model)))
    for then, expected in history:
        assert dict(then) == expected
        assert list(then) == sorted(expected)
        assert len(then) == len(expected)
        assert list(then.values()) == [expected[k] for k in sorted(expected)]
        assert all((k in then) == (k in expected) for k in map(key, range(0, 2_000, 97)))
