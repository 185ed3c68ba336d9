"""What an IdMap shares with the map it was made from, and what is made of its pages."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


_KEYS = st.sets(st.integers(0, 700))


@given(_KEYS, _KEYS, _KEYS)
def test_comparing_finds_the_keys_that_one_of_two_maps_has(
    held: set[int], put: set[int], drop: set[int]
) -> None:
    before = IdMap[str]().with_changes({key: str(key) for key in held})
    after = before.with_changes(dict.fromkeys(put, "another"), drop=drop)
    assert after.compare(before) == (sorted({*after} - {*before}), sorted({*before} - {*after}))


def test_comparing_looks_at_changed_pages_alone() -> None:
    before = IdMap[str]().with_changes({key: str(key) for key in range(100_000)})
    after = before.with_changes({100_000: ""}, drop=[7])

    class Unread(list[str | None]):
        def __getitem__(self, place: object) -> str | None:
            raise AssertionError("a page that did not change is looked at")

    for number, page in before.pages().items():
        if after.pages()[number] is page:
            unread = Unread(page)
            before.pages()[number] = after.pages()[number] = unread  # type: ignore[index]
    assert after.compare(before) == ([100_000], [7])
