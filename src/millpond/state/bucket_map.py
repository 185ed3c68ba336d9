"""An immutable mapping from names; a changed copy shares all but a few buckets with the original.

`BucketMap` is for names what `IdMap` is for ids. The entries lie in 256 small dicts, by the hash of
their keys. A changed copy copies the list of buckets and the buckets that change. A hash trie would
share more still and is not worth its indirections at these sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K", str, bytes)
V = TypeVar("V")

_BUCKETS = 256


class BucketMap(Mapping[K, V], Generic[K, V]):
    """A persistent mapping of str or bytes keys; iterates in ascending order of its keys.

    >>> one = BucketMap[str, int]().with_changes({"c": 3, "a": 1})
    >>> two = one.with_changes({"b": 2}, drop=["c"])
    >>> dict(one), dict(two)
    ({'a': 1, 'c': 3}, {'a': 1, 'b': 2})
    """

    __slots__ = ("_buckets", "_length")

    def __init__(self) -> None:
        self._buckets: list[dict[K, V]] = [{}] * _BUCKETS
        self._length = 0

    def with_changes(self, put: Mapping[K, V], drop: Iterable[K] = ()) -> BucketMap[K, V]:
        """Copy the map without the keys of `drop` (some may be absent), with those of `put`."""
        touched: dict[int, dict[K, V]] = {}
        length = self._length
        for key in drop:
            number = hash(key) % _BUCKETS
            bucket = touched.get(number)
            if bucket is None:
                if key not in self._buckets[number]:
                    continue
                bucket = touched[number] = self._buckets[number].copy()
            if key in bucket:
                del bucket[key]
                length -= 1
        for key, value in put.items():
            number = hash(key) % _BUCKETS
            bucket = touched.get(number)
            if bucket is None:
                bucket = touched[number] = self._buckets[number].copy()
            length += key not in bucket
            bucket[key] = value
        if not touched:
            return self
        copy: BucketMap[K, V] = BucketMap()
        copy._buckets = self._buckets.copy()
        for number, bucket in touched.items():
            copy._buckets[number] = bucket
        copy._length = length
        return copy

    def find_added(self, before: BucketMap[K, V]) -> set[K]:
        """Find the keys that an earlier map does not have; shared buckets are not looked at.

        >>> one = BucketMap[str, int]().with_changes({"a": 1, "b": 2})
        >>> one.with_changes({"c": 3}, drop=["a"]).find_added(one)
        {'c'}
        """
        found: set[K] = set()
        for own, old in zip(self._buckets, before._buckets, strict=True):
            if own is not old:
                found |= own.keys() - old.keys()
        return found

    def __getitem__(self, key: K) -> V:
        return self._buckets[hash(key) % _BUCKETS][key]

    def __contains__(self, key: object) -> bool:
        return key in self._buckets[hash(key) % _BUCKETS]

    def get(self, key: K, default: Any = None) -> Any:
        return self._buckets[hash(key) % _BUCKETS].get(key, default)

    def __iter__(self) -> Iterator[K]:
        return iter(sorted(key for bucket in self._buckets for key in bucket))

    def __len__(self) -> int:
        return self._length
