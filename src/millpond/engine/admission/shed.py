"""Shedding: which elements of a push are lost when there is more than can be done (STREAM, 5.2.2).

Elements are shed after their timestamps were judged and before all else, so a shed element advances
the heartbeat and NOW as any other. What is shed is a function of the place of an element in the
push, the push's place at the door, and the recorded step; it does not depend on how pushes are cut
into batches. Shed elements are counted by the second of their timestamps.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.model.sampling import choose_sample

#: The column of a packed push that makes a row a count of shed elements (see `pack`).
SHED_COUNT = "__shed"

_SECOND = 1_000_000


def choose_elements(seed: int, first: int, count: int, share: float) -> np.ndarray:
    """Choose which of `count` elements are shed: about `share` of them, by a hash of their places.

    Args:
        seed: The stream's seed.
        first: How many elements came to the door before: the place of the first of these.
        count: How many there are.
        share: From 0 to 1. What a smaller share sheds, a greater share sheds too.

    Returns:
        A mask of `count` booleans.
    """
    return choose_sample(seed, np.arange(first, first + count, dtype=np.int64), share * 100)


def is_chunk_shed(seed: int, number: int, share: float) -> bool:
    """Whether the push of a number is shed as a whole."""
    return bool(choose_sample(seed, np.array([number], dtype=np.int64), share * 100)[0])


def count_seconds(stamps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count timestamps by their seconds.

    Args:
        stamps: int64 microseconds.

    Returns:
        The beginnings of the seconds, ascending (int64 microseconds), and how many there are in
        each (int64).

    >>> count_seconds(np.array([1_999_999, 1_000_000, -1]))
    (array([-1000000,  1000000]), array([1, 2]))
    """
    seconds, counts = np.unique(stamps // _SECOND * _SECOND, return_counts=True)
    return seconds, counts.astype(np.int64)


def shed_table(stamps: np.ndarray, spared: str) -> pa.Table:
    """The counts of shed elements as they wait in the inbox: second, elements, spared."""
    seconds, counts = count_seconds(stamps)
    return pa.table(
        {
            "second": pa.array(seconds, pa.int64()).cast(pa.timestamp("us")),
            "elements": pa.array(counts, pa.int64()),
            "spared": pa.array([spared] * len(seconds), pa.string()),
        }
    )
