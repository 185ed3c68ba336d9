"""How many leaves share each slot: four bytes a slot, where a dict of numbers takes eighty."""

from __future__ import annotations

from array import array

_BITS = 9
_SIZE = 1 << _BITS
_LAST = _SIZE - 1


class SlotUsers:
    """Counts the users of a stream's slots. Slots are numbered as they come, so pages are dense.

    >>> users = SlotUsers()
    >>> users.add(7, 2)
    >>> users.add(7, -1)
    >>> users.count(7), users.count(8)
    (1, 0)
    """

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}

    def count(self, slot: int) -> int:
        """How many users a slot has."""
        page = self._pages.get(slot >> _BITS)
        return 0 if page is None else page[slot & _LAST]

    def add(self, slot: int, many: int) -> None:
        """Count so many more users of a slot, or fewer; there are never less than none."""
        page = self._pages.get(slot >> _BITS)
        if page is None:
            page = self._pages[slot >> _BITS] = array("I", bytes(4 * _SIZE))
        left = max(0, page[slot & _LAST] + many)
        page[slot & _LAST] = left
        if not left and not any(page):
            del self._pages[slot >> _BITS]
