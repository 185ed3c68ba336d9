"""Labels for distinct texts: whole numbers in the texts' order, given as texts appear.

A new text's label lies between those of its neighbours in order; if there is no room between two
labels, all texts get new labels. Texts are numbered (`text_numbers`), and the numbers lie in order
in **runs** of falling size, as rows do in a row store: new numbers become a run, which is merged
with the run before when it has grown as large. So a number is copied once a doubling, a search
looks into few runs, and everything is arrays, which can lie in files.

INV-LABEL-1: labels ascend with the texts, so where a text lies among the labels of one run says
where it lies among all: its neighbours are the nearest of its neighbours in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import types

from millpond.model.compiled import I64, READ_I64, READ_U8, called, compiled
from millpond.synopses.mapped_memory import allocate_like, choose_like, grow_array
from millpond.synopses.text_numbers import TextNumbers

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Labels lie between these. At either end of the order they are `_STRIDE` apart.
_LOWEST, _HIGHEST = -(2**61), 2**61
_STRIDE = 2**40
#: Texts that come one by one beside the text that came last leave such a part of the room there.
_SHARE = 64


@called
def _is_less(heap, one, end, other, last):  # type: ignore[no-untyped-def]
    length = min(end - one, last - other)
    for i in range(length):
        if heap[one + i] != heap[other + i]:
            return heap[one + i] < heap[other + i]
    return end - one < last - other


@compiled(types.void(READ_I64, READ_U8, READ_I64, READ_I64, READ_I64, I64, I64))
def _find_neighbours(new, heap, ends, run, labels, low, high):  # type: ignore[no-untyped-def]
    """Raise `low` and lower `high` to the labels around each new text, which ascend, in a run."""
    first = 0
    for i in range(len(new)):
        start, end = ends[new[i]], ends[new[i] + 1]
        last = len(run)
        while first < last:
            middle = (first + last) // 2
            held = run[middle]
            if _is_less(heap, ends[held], ends[held + 1], start, end):
                first = middle + 1
            else:
                last = middle
        if first > 0:
            low[i] = max(low[i], labels[run[first - 1]])
        if first < len(run):
            high[i] = min(high[i], labels[run[first]])


@compiled(types.void(READ_I64, READ_I64, READ_I64, I64))
def _merge(one, other, labels, out):  # type: ignore[no-untyped-def]
    """Merge two runs by their labels."""
    i = 0
    j = 0
    for place in range(len(out)):
        if j == len(other) or (i < len(one) and labels[one[i]] < labels[other[j]]):
            out[place] = one[i]
            i += 1
        else:
            out[place] = other[j]
            j += 1


@compiled(types.void(READ_I64, READ_I64, READ_I64, I64))
def _find(sought, run, labels, out):  # type: ignore[no-untyped-def]
    """Find the numbers of the labels that are in a run; leave `out` as it is for others."""
    for i in range(len(sought)):
        first = 0
        last = len(run)
        while first < last:
            middle = (first + last) // 2
            if labels[run[middle]] < sought[i]:
                first = middle + 1
            else:
                last = middle
        if first < len(run) and labels[run[first]] == sought[i]:
            out[i] = run[first]


class OrderedTexts:
    """Numbers and labels of the texts that were seen and not forgotten.

    Attributes:
        labels: int64: the label of each number; longer than there are numbers.
        on_relabel: Called when labels change, with all old labels ascending and the new labels.
    """

    def __init__(self) -> None:
        self.labels: Ints = np.zeros(0, np.int64)
        self.on_relabel: Callable[[Ints, Ints], None] = _ignore
        self._texts = TextNumbers()
        #: The numbers in the order of their texts.
        self._runs: list[Ints] = []

    def __len__(self) -> int:
        """The number of distinct texts."""
        return len(self._texts)

    def number(self, texts: pa.Array, chosen: Bools | None = None) -> Ints:
        """Number texts, and label those not seen before.

        Args:
            texts: Strings or bytes.
            chosen: Whether each takes part; None: all do.

        Returns:
            int64: the numbers, in the order of first appearance; −1 for NULL and what is not
            chosen.
        """
        known = len(self._texts)
        numbers = self._texts.number(texts, chosen)
        if len(self._texts) > known:
            self._label(known)
        return numbers

    def find(self, labels: Ints) -> Ints:
        """Find the numbers of labels; −1 for what is no label."""
        out = np.full(len(labels), -1, np.int64)
        for run in self._runs:
            _find(labels, run, self.labels, out)
        return out

    def take(self, numbers: Ints, head: Sequence[int] = ()) -> pa.Array:
        """Return the texts of numbers, as `TextNumbers.take`."""
        return self._texts.take(numbers, head)

    def forget(self, alive: Bools) -> Ints:
        """Forget the texts where `alive` is false; return each one's new number, −1 if gone.

        Labels stay as they are.
        """
        moved = self._texts.compact(alive)
        self.labels = choose_like(self.labels[: len(alive)], alive)
        runs = [choose_like(run, alive[run]) for run in self._runs]
        self._runs = []
        for run in runs:
            np.take(moved, run, out=run, mode="clip")
            self._add_run(run)
        return moved

    def size(self) -> int:
        """Bytes kept."""
        return self._texts.size() + self.labels.nbytes + sum(run.nbytes for run in self._runs)

    def _label(self, known: int) -> None:
        """Label the texts from a number on."""
        count = len(self._texts)
        new = np.arange(known, count)
        new = known + pc.sort_indices(self.take(new)).to_numpy().astype(np.int64)
        self.labels = grow_array(self.labels, count)
        low = np.full(len(new), _LOWEST, np.int64)
        high = np.full(len(new), _HIGHEST, np.int64)
        texts = self._texts
        for run in self._runs:
            _find_neighbours(new, texts.heap, texts.ends, run, self.labels, low, high)
        # New texts between the same two neighbours share the room between these.
        starts = np.flatnonzero(np.diff(low, prepend=_LOWEST - 1))
        lengths = np.diff(starts, append=len(new))
        nth = np.arange(len(new)) - np.repeat(starts, lengths)
        last = self.labels[known - 1] if known else 0
        base, step = _share_room(low[starts], high[starts], lengths, int(last))
        self.labels[new] = np.repeat(base, lengths) + nth * np.repeat(step, lengths)
        if (step > 0).all():
            self._add_run(new)
        else:
            self._relabel(known, new, low)

    def _relabel(self, known: int, new: Ints, low: Ints) -> None:
        """Give all texts new labels, evenly spaced."""
        while len(self._runs) > 1:
            self._merge_last()
        (before,) = self._runs
        old = np.take(self.labels, before, out=allocate_like(before, known))
        # Where each new text goes: after what has the label below it.
        after = np.searchsorted(old, low, side="right")
        places = after + np.arange(len(new))
        everything = allocate_like(before, known + len(new))
        is_old = np.ones(len(everything), bool)
        is_old[places] = False
        everything[is_old] = before
        everything[places] = new
        step = (_HIGHEST - _LOWEST) // (len(everything) + 1)
        given = allocate_like(before, len(everything))
        given[:] = np.arange(1, len(everything) + 1)
        given *= step
        given += _LOWEST
        self.labels[everything] = given
        self._runs = [everything]
        self.on_relabel(old, choose_like(given, is_old))

    def _add_run(self, run: Ints) -> None:
        if not len(run):
            return
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            self._merge_last()

    def _merge_last(self) -> None:
        last = self._runs.pop()
        merged = allocate_like(self._runs[-1], len(self._runs[-1]) + len(last))
        _merge(self._runs[-1], last, self.labels, merged)
        self._runs[-1] = merged


def _share_room(low: Ints, high: Ints, count: Ints, last: int) -> tuple[Ints, Ints]:
    """Share the room between neighbours among new labels.

    Args:
        low, high: The labels of the neighbours.
        count: How many labels are needed between them.
        last: The label that was given last.

    Returns:
        The first label and the distance of labels; where that is 0 there is no room.
    """
    step = (high - low) // (count + 1)
    base = low + step
    # Texts often come in order, or in reverse. At the ends of all and beside the text that came
    # last, halving the room each time would use it up after some sixty texts.
    ascends, descends = low == last, high == last
    near = np.where(ascends | descends, np.maximum(step // _SHARE, np.minimum(step, 1)), step)
    at_end = (low == _LOWEST) | (high == _HIGHEST)
    near = np.where(at_end, np.minimum(step, _STRIDE), near)
    base = np.where(ascends | (high == _HIGHEST), low + near, base)
    base = np.where(descends | (low == _LOWEST), high - near * count, base)
    step = np.where(ascends | descends | at_end, near, step)
    alone = (low == _LOWEST) & (high == _HIGHEST)
    return np.where(alone, 0, base), np.where(alone, np.minimum(step, _STRIDE), step)


def _ignore(old: Ints, new: Ints) -> None:
    """Do nothing: for callers that keep no labels."""
