"""How much JSON holds, counted before it is read."""

from __future__ import annotations

import numpy as np

#: The bytes that are looked through at once.
_STEP = 1 << 20


def has_more(data: bytes, character: bytes, most: int) -> bool:
    """Whether JSON has more than `most` commas, or colons, outside of its strings.

    >>> has_more(b'{"a:": 1, "b": 2}', b":", 1), has_more(b'{"a:": 1, "b": 2}', b":", 2)
    (True, False)
    """
    if data.count(character) <= most:
        return False
    plain = np.frombuffer(data.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    found = quotes_before = 0
    for at in range(0, len(plain), _STEP):
        part = plain[at : at + _STEP]
        quotes = np.cumsum(part == ord('"'), dtype=np.int64) + quotes_before
        found += int(np.count_nonzero((part == ord(character)) & (quotes % 2 == 0)))
        if found > most:
            return True
        quotes_before = int(quotes[-1])
    return False
