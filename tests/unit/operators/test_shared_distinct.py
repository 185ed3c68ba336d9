"""DISTINCT over kept rows: what is kept, for how long, and what a store takes over of another."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracle.rows import normalize
from tests.unit.operators.test_conformance import (
    AT_ONCE,
    CONFORMANCE,
    WINDOWS,
    check_window,
    elements,
)

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.model.time import END, LAST
from millpond.model.windows import Range
from millpond.operators.distinct_announcing import DistinctAnnouncing, LastCopies
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.stubs import Origin
from millpond.operators.shared_distinct import (
    KeepingDistinct,
    KeptDistinct,
    SharedDistinct,
    SharedDistincting,
)
from millpond.operators.source import StreamSource
from millpond.operators.structures.lifetimes import find_length
from millpond.operators.windows.time_window import TimeWindow

SOURCE = StreamSource("s", ("k",), (pa.string(),))
KEPT = KeptDistinct(SOURCE)
Changes = list[tuple[int, str, int]]


def feed(stamps: Sequence[int], names: Sequence[str]) -> Delta:
    rows = pa.RecordBatch.from_arrays([pa.array(names, pa.string())], schema=SOURCE.schema)
    return Delta.of(rows, np.array(stamps, np.int64))


def read(delta: Delta) -> Changes:
    """The changes of a delta; their order within an instant is not said."""
    assert delta.is_explicit
    assert (np.diff(delta.at) >= 0).all()
    columns = delta.at.tolist(), delta.rows.column(0).to_pylist(), delta.weight.tolist()
    return sorted(zip(*columns, strict=True))


class Alone:
    """A DISTINCT over a window of its own."""

    def __init__(self, length: int) -> None:
        self.window = TimeWindow(SOURCE, Range(length))
        self._windowing = self.window.operator()
        self.node = DistinctAnnouncing(self.window)
        self.operator = self.node.operator()
        assert isinstance(self.operator, LastCopies)

    def step(self, elements: Delta, upto: int) -> Changes:
        scalars = DuckDBScalars()
        return read(
            self.operator.advance(
                [self._windowing.advance([elements], upto, scalars)], upto, scalars
            )
        )


class Together:
    """A store with the DISTINCTs that read it, as a dataflow runs them."""

    def __init__(self) -> None:
        self.store = KEPT.operator()
        assert isinstance(self.store, KeepingDistinct)
        self.readers: dict[int, SharedDistinct] = {}

    def serve(self) -> None:
        self.store.serve(set(), list(self.readers.values()))
        self.store.purging.set_intervals([0])

    def step(self, elements: Delta, upto: int) -> dict[int, Changes]:
        if not self.readers:  # it is not there yet
            return {}
        delta = self.store.advance([elements], upto, DuckDBScalars())
        return {
            length: read(node.operator().advance([delta], upto, DuckDBScalars()))
            for length, node in self.readers.items()
        }

    def attach(self, alone: Alone, length: int) -> None:
        """Have one more that ran alone."""
        self.readers[length] = SharedDistinct(KEPT, Origin(alone.node), (length,))
        self.store.take_over(alone.operator.hand_over((length,)), (length,))
        self.serve()

    def detach(self, length: int) -> Alone:
        """Have one run alone again."""
        del self.readers[length]
        alone = Alone(length)
        alone.operator.take_over(self.store.hand_over((length,)), (length,))
        if self.readers:
            self.serve()
        else:
            self.store = KeepingDistinct(KEPT.schema)
        return alone


@CONFORMANCE
@given(st.data())
def test_it_means_what_distinct_means(data: st.DataObject) -> None:
    window = data.draw(AT_ONCE)
    distinct = DistinctAnnouncing(TimeWindow(elements(), window))
    node = SharedDistinct(KeptDistinct(elements()), Origin(distinct), (find_length(window) or 0,))

    def hold(feed, now):  # type: ignore[no-untyped-def]
        there = [e.row for e in feed if e.at <= now and WINDOWS[window](e.at, now)]
        return {tuple(map(normalize, row)) for row in there}

    check_window(node, data, hold)


@pytest.mark.parametrize("begins", [0, LAST - 200], ids=["now", "near the end of time"])
@pytest.mark.parametrize("seed", range(8))
def test_whoever_comes_and_goes_has_the_changes_it_has_alone(seed: int, begins: int) -> None:
    random = Random(f"distinct {seed}")
    lengths = (1, 4, 9, 30, END - LAST + 150, END - LAST + 250)
    alone = {length: Alone(length) for length in lengths}
    together, spare, other = Together(), {length: Alone(length) for length in lengths}, Together()
    now = begins
    for _ in range(60):
        upto = now + random.choice((0, 1, 3, 12))
        # A step may begin with the instant with which the step before has ended.
        stamps = sorted(random.choices(range(now, upto + 1), k=random.choice((0, 1, 5))))
        elements = feed(stamps, [random.choice("abcdefgh") for _ in stamps])
        now = upto
        expected = {length: one.step(elements, upto) for length, one in alone.items()}
        found = {length: one.step(elements, upto) for length, one in spare.items()}
        for some in (together, other):
            found |= some.step(elements, upto)
        assert found == expected
        what, some = random.randrange(8), random.choice((together, other))
        if what < 3 and spare:
            length = random.choice(list(spare))
            some.attach(spare.pop(length), length)
        elif what == 3 and some.readers:
            length = random.choice(list(some.readers))
            spare[length] = some.detach(length)
        elif what == 4 and together.readers and other.readers:
            together.store.absorb(other.store)
            together.readers |= other.readers
            together.serve()
            other = Together()


def test_rows_are_kept_for_the_longest_window() -> None:
    together = Together()
    together.attach(Alone(3), 3)
    together.attach(Alone(9), 9)
    together.store.purging.set_intervals([0])
    together.step(feed([1, 2, 3], "abc"), 3)
    assert [together.step(feed([], []), at)[3] for at in (4, 10)] == [
        [(4, "a", -1)],
        [(5, "b", -1), (6, "c", -1)],
    ]
    together.step(feed([], []), 11)
    assert together.store.size() == 2  # the first left at 10
    together.detach(9)
    together.store.purging.set_intervals([0])
    together.step(feed([], []), 12)
    assert together.store.size() == 0


def test_a_stub_keeps_nothing() -> None:
    node = SharedDistinct(KEPT, Origin(Alone(3).node), (3,))
    assert node.key == Alone(3).node.key != SharedDistinct(KEPT, Origin(Alone(4).node), (4,)).key
    assert node.announces
    assert isinstance(node.operator(), SharedDistincting)
    assert node.operator().size() == 0
