"""What a process keeps from job to job, to save work: all of it can be made again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class LastUsed(Generic[T]):
    """Keeps values by their keys; the least recently used goes first.

    Args:
        most: How many are kept at most.
        most_bytes: How many bytes they take together at most, between two jobs.
        measure: How many bytes one takes now.
    """

    def __init__(
        self, most: int, most_bytes: int = 0, measure: Callable[[T], int] = lambda _: 0
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._measure = measure
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            found = self._kept.get(key)
        if found is None:
            found = make()
        self.put(key, found)
        return found

    def find(self, key: Hashable) -> T | None:
        with self._lock:
            return self._kept.get(key)

    def put(self, key: Hashable, value: T) -> None:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def trim(self) -> None:
        """Keep the bytes within their bound: what is kept grows as it is used."""
        with self._lock:
            sizes = {key: self._measure(value) for key, value in self._kept.items()}
            over = sum(sizes.values()) - self._most_bytes
            for key, size in sizes.items():
                if over <= 0:
                    return
                if size:
                    del self._kept[key]
                    over -= size
