"""What an IdMap shares with the map it was made from, and what is made of its pages."""

from collections.abc import Iterable

import pytest

from millpond.state.id_map import IdMap, PageSummaries


def test_a_change_shares_what_it_does_not_touch():
    large = IdMap().with_changes({key: str(key) for key in range(10_000)})
    changed = large.with_changes({5: "five"})
    shared = sum(page is changed.pages()[number] for number, page in large.pages().items())
    assert shared == len(large.pages()) - 1
    assert list(large.with_changes({}, drop=range(128)).pages()) == list(large.pages())[1:]


def test_changing_nothing_gives_the_same_map():
    map_ = IdMap().with_changes({1: "a"})
    assert map_.with_changes({}, drop=[2, 200]) is map_
    assert map_.get(2) is None
    assert map_.get(200, "b") == "b"
    with pytest.raises(KeyError):
        map_[2]


def test_a_digest_is_made_again_of_changed_pages_only() -> None:
    made: list[list[str]] = []

    def make(values: Iterable[str]) -> list[str]:
        made.append(list(values))
        return made[-1]

    digest = PageSummaries[str, list[str]](make)
    one = IdMap[str]().with_changes({n: str(n) for n in range(600)})
    assert sorted(int(v) for own in digest.of(one) for v in own) == list(range(600))
    made.clear()
    two = one.with_changes({7: "seven"}, drop=[8, 8 + 256])
    found = {v for own in digest.of(two) for v in own}
    assert found == ({str(n) for n in range(600)} | {"seven"}) - {"7", "8", "264"}
    assert len(made) == 2
    assert digest.of(two) == digest.of(two)
    assert digest.of(IdMap[str]()) == []


def test_the_greatest_key() -> None:
    entries = IdMap[str]()
    assert entries.greatest() is None
    entries = entries.with_changes({5: "", 300: "", 44: ""})
    assert entries.greatest() == 300
    assert entries.with_changes({}, drop=[300]).greatest() == 44
