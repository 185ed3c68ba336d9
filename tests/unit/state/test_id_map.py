"""An IdMap is a dict whose copies share: it must behave like one, and never change."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.state.id_map import Digest, IdMap

KEYS = st.integers(min_value=0, max_value=2_000)
CHANGES = st.lists(st.tuples(st.dictionaries(KEYS, st.integers(), max_size=20), st.sets(KEYS)))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(CHANGES)
def test_it_is_a_dict_and_every_earlier_map_stays_what_it_was(changes):
    map_, model = IdMap(), {}
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
        assert then.ordered() == tuple(expected[key] for key in sorted(expected))
        assert all((key in then) == (key in expected) for key in range(0, 2_000, 97))


def test_a_change_shares_what_it_does_not_touch():
    large = IdMap().changed({key: str(key) for key in range(10_000)})
    changed = large.changed({5: "five"})
    shared = sum(page is changed.pages()[number] for number, page in large.pages().items())
    assert shared == len(large.pages()) - 1
    assert list(large.changed({}, drop=range(128)).pages()) == list(large.pages())[1:]


def test_changing_nothing_gives_the_same_map():
    map_ = IdMap().changed({1: "a"})
    assert map_.changed({}, drop=[2, 200]) is map_
    assert map_.get(2) is None
    assert map_.get(200, "b") == "b"
    with pytest.raises(KeyError):
        map_[2]


def test_a_digest_is_made_again_of_changed_pages_only() -> None:
    made: list[list[str]] = []

    def make(values: Iterable[str]) -> list[str]:
        made.append(list(values))
        return made[-1]

    digest = Digest[str, list[str]](make)
    one = IdMap[str]().changed({n: str(n) for n in range(600)})
    assert sorted(int(v) for own in digest.of(one) for v in own) == list(range(600))
    made.clear()
    two = one.changed({7: "seven"}, drop=[8, 8 + 256])
    found = {v for own in digest.of(two) for v in own}
    assert found == ({str(n) for n in range(600)} | {"seven"}) - {"7", "8", "264"}
    assert len(made) == 2
    assert digest.of(two) == digest.of(two)
    assert digest.of(IdMap[str]()) == []


def test_the_greatest_key() -> None:
    entries = IdMap[str]()
    assert entries.greatest() is None
    entries = entries.changed({5: "", 300: "", 44: ""})
    assert entries.greatest() == 300
    assert entries.changed({}, drop=[300]).greatest() == 44
