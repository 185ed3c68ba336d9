"""Shedding: which elements are lost when there is more than can be done (STREAM, 5.2.2).

Elements are shed after their timestamps were judged and before all else, so a shed element advances
the heartbeat and NOW as any other. What is shed is a function of the place of an element in the
push or in the split of a source, and of the recorded step; it does not depend on how pushes and
records are cut into batches. Shed elements are counted by the second of their timestamps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from millpond.engine.admission.admit import AdmittedRows
from millpond.engine.admission.wanted_elements import WantedElements
from millpond.synopses.sampling import choose_sample

#: The column of a packed push that makes a row a count of shed elements (see `pack`).
SHED_COUNT = "__shed"

_SECOND = 1_000_000


@dataclass(frozen=True)
class Shedding:
    """What a stream sheds on a step.

    Attributes:
        share: About which share of the elements, or of pushes and splits; above 0. What a smaller
            share sheds, a greater one sheds too.
        by_chunk: Whether whole pushes and splits are shed.
        wanted: Which elements are spared, and all others shed; None: they are shed by chance.
    """

    share: float
    by_chunk: bool = False
    wanted: WantedElements | None = None

    def shed(
        self, admitted: AdmittedRows, seed: int, places: np.ndarray, chunks: np.ndarray
    ) -> AdmittedRows:
        """Shed elements.

        Args:
            admitted: Judged rows.
            seed: Of the chance, with the places.
            places: Of each element, its place (int64).
            chunks: Of each element, the number of its push or part of the split (int64).
        """
        spared = ""
        if self.wanted is not None:
            spared, lost = self.wanted.spared, ~self.wanted.choose(admitted.elements)
        else:
            lost = choose_sample(seed, chunks if self.by_chunk else places, self.share * 100)
        if not lost.any():
            return admitted
        stamps = admitted.elements["__ts"].to_numpy()[lost]
        kept = admitted.elements.filter(pa.array(~lost))
        return replace(admitted, elements=kept, shed=shed_table(stamps, spared))


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
