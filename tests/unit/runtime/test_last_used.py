"""What a process keeps from job to job is bounded by number and by bytes."""

from __future__ import annotations

from millpond.runtime.last_used import LastUsed


def test_the_least_recently_used_goes_first() -> None:
    kept: LastUsed[str] = LastUsed(2)
    for key in "abac":
        kept.get(key, key.upper)
    assert [kept.find(key) for key in "abc"] == ["A", None, "C"]
    assert kept.get("a", lambda: "made again") == "A"


def test_bytes_are_bounded_however_the_values_grow() -> None:
    kept: LastUsed[list[int]] = LastUsed(100, 10, len)
    for key in range(4):
        kept.put(key, [])
    for key, size in ((0, 4), (1, 5), (3, 4)):
        kept.get(key, list).extend(range(size))
    kept.trim()
    assert [kept.find(key) is not None for key in range(4)] == [False, True, True, True]
    kept.put(4, [0] * 11)  # alone it is more than all may take
    kept.trim()
    assert [kept.find(key) is not None for key in range(5)] == [False, False, True, False, False]
