"""An immutable mapping from ids; a changed copy shares all but a few pages with the original.

A `Version` holds a definition, a slot and its leaves for each of tens of thousands of queries, and
every registration makes a new Version. Copying one dict would make a registration cost as much as
there are queries. Ids are given one after the other, so the entries lie in pages of 128 neighbours,
a word each; a changed copy copies the few pages that change and the dict of pages, which is
microseconds up to a million entries. (A dict of the entries would take six words each.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from typing import Any, Generic, TypeVar

V = TypeVar("V")
D = TypeVar("D")

_BITS = 7
_SIZE = 1 << _BITS
_LAST = _SIZE - 1


class IdMap(Mapping[int, V], Generic[V]):
    """A persistent mapping of ids to anything but None; iterates in ascending order of its keys.

    >>> one = IdMap[str]().with_changes({3: "c", 1: "a"})
    >>> two = one.with_changes({2: "b"}, drop=[3])
    >>> dict(one), dict(two)
    ({1: 'a', 3: 'c'}, {1: 'a', 2: 'b'})
    """

    __slots__ = ("_length", "_ordered", "_pages")

    def __init__(self) -> None:
        self._pages: dict[int, list[V | None]] = {}
        self._length = 0
        self._ordered: tuple[V, ...] | None = None

    def with_changes(self, put: Mapping[int, V], drop: Iterable[int] = ()) -> IdMap[V]:
        """Copy the map without the keys of `drop` (some may be absent), with those of `put`."""
        touched: dict[int, list[V | None]] = {}
        thinned: set[int] = set()
        length = self._length
        for key in drop:
            page = touched.get(key >> _BITS, self._pages.get(key >> _BITS))
            if page is None or page[key & _LAST] is None:
                continue
            self._touch(key, touched)[key & _LAST] = None
            thinned.add(key >> _BITS)
            length -= 1
        for key, value in put.items():
            page = self._touch(key, touched)
            length += page[key & _LAST] is None
            page[key & _LAST] = value
        if not touched:
            return self
        copy: IdMap[V] = IdMap()
        copy._pages = {**self._pages, **touched}
        for number in thinned:
            if all(value is None for value in touched[number]):
                del copy._pages[number]
        copy._length = length
        return copy

    def _touch(self, key: int, touched: dict[int, list[V | None]]) -> list[V | None]:
        """Return the page of a key, copied if it is still shared with the original."""
        number = key >> _BITS
        page = touched.get(number)
        if page is None:
            own = self._pages.get(number)
            page = touched[number] = [None] * _SIZE if own is None else own.copy()
        return page

    def __getitem__(self, key: int) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and self.get(key) is not None

    def get(self, key: int, default: Any = None) -> Any:
        page = self._pages.get(key >> _BITS)
        value = None if page is None else page[key & _LAST]
        return default if value is None else value

    def __iter__(self) -> Iterator[int]:
        for number in sorted(self._pages):
            for place, value in enumerate(self._pages[number]):
                if value is not None:
                    yield (number << _BITS) + place

    def __len__(self) -> int:
        return self._length

    def values(self) -> ValuesView[V]:
        return _OrderedValues(self)

    def sort_values(self) -> tuple[V, ...]:
        """The values in ascending order of their keys; computed once."""
        if self._ordered is None:
            pages = (self._pages[number] for number in sorted(self._pages))
            self._ordered = tuple(value for page in pages for value in page if value is not None)
        return self._ordered

    def greatest(self) -> int | None:
        """The greatest key; None if there is none."""
        if not self._pages:
            return None
        number = max(self._pages)
        page = self._pages[number]
        return (number << _BITS) + max(p for p, value in enumerate(page) if value is not None)

    def compare(self, before: IdMap[V]) -> tuple[list[int], list[int]]:
        """Compare the keys of two maps; only pages that are not the same object are looked at.

        Returns:
            The keys that `before` does not have, and those that only `before` has, each ascending.

        >>> one = IdMap[str]().with_changes({1: "a", 2: "b"})
        >>> one.with_changes({3: "c"}, drop=[1]).compare(one)
        ([3], [1])
        """
        fresh: list[int] = []
        gone: list[int] = []
        for number in sorted(self._pages.keys() | before._pages.keys()):
            own, old = self._pages.get(number), before._pages.get(number)
            if own is old:
                continue
            for place in range(_SIZE):
                is_here = own is not None and own[place] is not None
                was_there = old is not None and old[place] is not None
                if is_here != was_there:
                    (fresh if is_here else gone).append((number << _BITS) + place)
        return fresh, gone

    def pages(self) -> Mapping[int, list[V | None]]:
        """The entries in pages; a page that is the same object in two maps has equal entries."""
        return self._pages


class _OrderedValues(ValuesView[V]):
    """The values in order, without a look-up each."""

    _mapping: IdMap[V]

    def __iter__(self) -> Iterator[V]:
        return iter(self._mapping.sort_values())


class PageSummaries(Generic[V, D]):
    """A summary of each page of a map, kept from version to version; for use by one thread.

    `of` computes summaries again only for the pages that changed. So a summary of tens of thousands
    of entries costs, after each change, the work of one page.

    >>> sums = PageSummaries[str, int](lambda values: sum(map(len, values)))
    >>> one = IdMap[str]().with_changes({1: "a", 2: "bb"})
    >>> sum(sums.of(one)), sum(sums.of(one.with_changes({1: "aaa"})))
    (3, 5)
    """

    def __init__(self, make: Callable[[Iterable[V]], D]) -> None:
        self._make = make
        self._made: dict[int, tuple[list[V | None], D]] = {}

    def of(self, entries: IdMap[V]) -> list[D]:
        """Return the summary of each page."""
        pages, before = entries.pages(), self._made
        self._made = {}
        for number, page in pages.items():
            known = before.get(number)
            if known is None or known[0] is not page:
                known = page, self._make([value for value in page if value is not None])
            self._made[number] = known
        return [made for _, made in self._made.values()]
