"""The filter of keys: never wrongly no, rarely wrongly yes, bounded, and it forgets."""

from __future__ import annotations

import numpy as np

from millpond.synopses import key_filter
from millpond.synopses.key_filter import KeyFilter

RANDOM = np.random.default_rng(7)


def hashes(count: int) -> np.ndarray:
    return RANDOM.integers(0, 2**64, count, np.uint64)


def test_what_was_put_in_is_found_and_little_else() -> None:
    filter_, keys = KeyFilter(), hashes(100_000)
    assert not filter_.find(keys).any()
    for start in range(0, len(keys), 777):
        part = keys[start : start + 777]
        filter_.put(part, np.full(len(part), start))
    assert filter_.find(keys).all()
    assert filter_.find(hashes(200_000)).sum() <= 5
    assert filter_.bytes() <= 8 * len(keys) + 2**18


def test_it_is_full_at_some_time(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(key_filter, "_MOST_PARTS", 2)
    filter_ = KeyFilter()
    assert filter_.room == 256 + 512
    filter_.put(hashes(300), np.full(300, 5))
    assert filter_.room == 468
    filter_.put(hashes(468), np.full(468, 9))
    assert filter_.room == 0


def test_what_has_expired_is_forgotten() -> None:
    filter_, early, late = KeyFilter(), hashes(256), hashes(256)
    filter_.put(early, np.arange(256))
    filter_.put(late, np.arange(1_000, 1_256))
    filter_.forget(254)
    assert filter_.find(early).all()
    filter_.forget(255)
    assert not filter_.find(early).any()
    assert filter_.find(late).all()
    filter_.forget(2_000)
    assert (len(filter_), filter_.bytes()) == (0, 0)
