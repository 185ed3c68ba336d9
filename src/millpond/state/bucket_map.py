"""An immutable mapping whose changed copy shares all but a few buckets with the original.

A `Version` holds a definition, a slot and its leaves for each of tens of thousands of queries, and
every registration makes a new Version. Copying one dict would make a registration cost as much as
there are queries. Here the entries lie in 256 small dicts by hash; a changed copy copies the list
of buckets and the buckets that change, which is microseconds up to a million entries. A hash trie
would share more still and is not worth its indirections at these sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView
from typing import Any, Generic, TypeVar

K = TypeVar("K", int, str, bytes)
V = TypeVar("V")
D = TypeVar("D")

_BUCKETS = 256


class BucketMap(Mapping[K, V], Generic[K, V]):
    """A persistent mapping of int, str or bytes keys; iterates in ascending order of its keys.

    >>> one = BucketMap[int, str]().changed({3: "c", 1: "a"})
    >>> two = one.changed({2: "b"}, drop=[3])
    >>> dict(one), dict(two)
    ({1: 'a', 3: 'c'}, {1: 'a', 2: 'b'})
    """

    __slots__ = ("_buckets", "_length", "_ordered")

    def __init__(self) -> None:
        self._buckets: list[dict[K, V]] = [{}] * _BUCKETS
        self._length = 0
        self._ordered: tuple[V, ...] | None = None

    def changed(self, put: Mapping[K, V], drop: Iterable[K] = ()) -> BucketMap[K, V]:
        """A copy without the keys of `drop` (absent ones too) and with the entries of `put`."""
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

    def values(self) -> ValuesView[V]:
        return _Ordered(self)

    def ordered(self) -> tuple[V, ...]:
        """The values in ascending order of their keys; computed once."""
        if self._ordered is None:
            every: dict[K, V] = {}
            for bucket in self._buckets:
                every.update(bucket)
            self._ordered = tuple(map(every.__getitem__, sorted(every)))
        return self._ordered

    def greatest(self) -> K | None:
        """The greatest key; None if there is none."""
        return max((max(bucket) for bucket in self._buckets if bucket), default=None)

    def buckets(self) -> Sequence[Mapping[K, V]]:
        """The entries in pieces; one that is the same object in two maps holds the same."""
        return self._buckets


class _Ordered(ValuesView[V]):
    """The values in order, without a look-up each."""

    _mapping: BucketMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return iter(self._mapping.ordered())


class Digest(Generic[K, V, D]):
    """What is made of each bucket of a map's changing versions; for use by one thread.

    Made again only for the buckets that changed, so what is made of tens of thousands of entries
    after each of their changes costs what a bucket holds.

    >>> digest = Digest(lambda values: sum(map(len, values)))
    >>> one = BucketMap[int, str]().changed({1: "a", 2: "bb"})
    >>> sum(digest.of(one)), sum(digest.of(one.changed({1: "aaa"})))
    (3, 5)
    """

    def __init__(self, make: Callable[[Iterable[V]], D]) -> None:
        self._make = make
        self._buckets: list[Mapping[K, V]] = []
        self._made: list[D] = []

    def of(self, entries: BucketMap[K, V]) -> list[D]:
        """One for each bucket that is not empty."""
        buckets = list(entries.buckets())
        if len(self._buckets) < len(buckets):
            self._buckets, self._made = buckets, [self._make(b.values()) for b in buckets]
        for number, (old, new) in enumerate(zip(self._buckets, buckets, strict=True)):
            if old is not new:
                self._made[number] = self._make(new.values())
        self._buckets = buckets
        return [made for made, bucket in zip(self._made, buckets, strict=True) if bucket]
