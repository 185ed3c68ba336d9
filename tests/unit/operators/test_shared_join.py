"""Joins over kept rows: what is kept, for how long, and what a store takes over of another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from copy import deepcopy
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.check_operator import GivenInput
from tests.unit.operators.test_conformance import (
    AT_ONCE,
    CONFORMANCE,
    TYPES,
    WINDOWS,
    check_window,
    elements,
    known,
)

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.model.patterns import MONOTONIC
from millpond.model.windows import Now, Range, Unbounded, Window
from millpond.operators.join import Join
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.stubs import Origin
from millpond.operators.shared_join import KeptSides, SharedJoin
from millpond.operators.source import StreamSource
from millpond.operators.structures.lifetimes import find_length
from millpond.operators.windows.time_window import TimeWindow

LEFT, RIGHT = (StreamSource(name, ("k", "v"), (pa.int64(), pa.string())) for name in "st")
KEPT = KeptSides(LEFT, RIGHT, (0,), (0,))
Windows = tuple[Window, Window]


def make_node(windows: Windows) -> SharedJoin:
    sides = TimeWindow(LEFT, windows[0]), TimeWindow(RIGHT, windows[1])
    lengths = tuple(find_length(window) or 0 for window in windows)
    return SharedJoin(KEPT, Origin(Join(*sides, (0,), (0,), keep=(0, 1, 3))), lengths)


def feed(stamps: Sequence[int], name: str) -> Delta:
    """Elements of few keys, whose text tells their timestamps."""
    keys = pa.array([t % 3 if t % 7 else None for t in stamps], pa.int64())
    texts = pa.array([f"{name}{t}" for t in stamps], pa.string())
    rows = pa.RecordBatch.from_arrays([keys, texts], schema=LEFT.schema)
    return Delta.of(rows, np.array(stamps, np.int64))


class Play:
    """A store with the joins that read it, as a dataflow runs them."""

    def __init__(self, *windows: Windows) -> None:
        self.store = KEPT.operator()
        self.nodes = [make_node(one) for one in windows]
        self.store.serve(set(), self.nodes)
        self.purge()

    def purge(self) -> None:
        self.store.purging.set_intervals([0])

    def step(self, stamps: Sequence[int], upto: int) -> list[list[tuple[object, ...]]]:
        inputs = [feed(stamps, "s"), feed(stamps, "t")]
        delta = self.store.advance(inputs, upto, DuckDBScalars())
        found = []
        for node in self.nodes:
            out = node.operator().advance([delta], upto, DuckDBScalars())
            columns = [out.at.tolist(), out.until.tolist(), *(c.to_pylist() for c in out.rows)]
            found.append(sorted(zip(*columns, strict=True)))
        return found

    def attach(self, other: Play) -> None:
        self.store.absorb(other.store)
        self.nodes += other.nodes
        self.store.serve(set(), self.nodes)
        self.purge()

    def detach(self, node: SharedJoin) -> None:
        self.nodes.remove(node)
        self.store.serve(set(), self.nodes)


@CONFORMANCE
@given(st.data())
def test_joins_of_windows_over_kept_rows(data: st.DataObject) -> None:
    one, other = data.draw(AT_ONCE), data.draw(AT_ONCE)
    left, right = elements(), GivenInput("other", TYPES, MONOTONIC)
    keys = data.draw(st.sampled_from(((0,), ())))
    windows = TimeWindow(left, one), TimeWindow(right, other)
    join = Join(*windows, keys, keys, keep=(0, 1, 2, 3))
    lengths = find_length(one) or 0, find_length(other) or 0
    node = SharedJoin(KeptSides(left, right, keys, keys), Origin(join), lengths)

    def joined(ours, theirs, now):  # type: ignore[no-untyped-def]
        sides = (
            [e.row for e in feed if e.at <= now and WINDOWS[window](e.at, now)]
            for feed, window in ((ours, one), (theirs, other))
        )
        pairs = itertools.product(*sides)
        return [a + b for a, b in pairs if not keys or (known(a) and a[0] == b[0])]

    check_window(node, data, joined, ("stream", "other"))


LENGTHS = (Range(1), Range(4), Range(9), Now(), Unbounded())


@pytest.mark.parametrize("seed", range(12))
def test_whoever_comes_and_goes_joins_as_if_it_were_alone(seed: int) -> None:
    random = Random(f"join {seed}")
    windows = [(random.choice(LENGTHS), random.choice(LENGTHS)) for _ in range(4)]
    alone, spare = ([Play(one) for one in windows] for _ in "ab")
    together = spare[0]
    known = {0: together.nodes[0]}
    for second in range(20):
        upto = 4 * second + 3
        stamps = sorted(random.choices(range(4 * second, upto + 1), k=random.randrange(5)))
        expected = [play.step(stamps, upto)[0] for play in alone]
        for place, play in enumerate(spare):
            if play is together or place not in known:
                found = play.step(stamps, upto)
                if play is together:
                    for one, node in known.items():
                        assert found[together.nodes.index(node)] == expected[one]
        waiting = [place for place in range(1, len(windows)) if place not in known]
        if waiting and random.random() < 0.3:
            place = random.choice(waiting)
            known[place] = spare[place].nodes[0]
            together.attach(spare[place])
        elif len(known) > 1 and random.random() < 0.2:
            gone = max(known)
            together.detach(known.pop(gone))
            spare[gone] = deepcopy(alone[gone])


def test_rows_are_kept_for_the_longest_window_of_each_side() -> None:
    play = Play((Range(2), Range(9)), (Range(5), Range(3)))
    play.step([1, 2, 3], 3)
    play.step([], 6)
    assert [len(side) for side in play.store.rows.sides] == [2, 3]
    play.detach(play.nodes[0])
    play.step([], 7)
    assert [len(side) for side in play.store.rows.sides] == [1, 0]
    play.step([], 8)
    assert play.store.size() == 0


@pytest.mark.parametrize("window", [Range(10, slide=2)])
def test_other_windows_have_no_length(window: Window) -> None:
    assert find_length(window) is None
