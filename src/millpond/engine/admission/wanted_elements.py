"""Which elements are spared when a stream sheds what nobody of weight wants (STREAM, 5.2.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engine.matching.match import match
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.scalars.evaluator import ScalarEvaluator


@dataclass(frozen=True)
class WantedElements:
    """What is spared on one step.

    Attributes:
        stem: The predicates of those who are spared; None: they want every element.
        spared: The slots of these predicates as runs, for `name$shed`.
    """

    stem: StemSnapshot | None
    slots: tuple[int, ...] = ()
    spared: str = ""

    def choose(self, elements: pa.Table) -> np.ndarray:
        """Choose the elements that somebody wants: a mask of their number."""
        count = elements.num_rows
        if self.stem is None:
            return np.ones(count, dtype=np.bool_)
        found = match(elements, self.stem, ScalarEvaluator.of_this_thread())
        if found.failed:
            return np.ones(count, dtype=np.bool_)
        mask = np.zeros(count, dtype=np.bool_)
        reader = found.reader()
        for slot in self.slots:
            rows = reader.rows(slot, 0, count)
            mask[rows] = True
        return mask
