"""Windows over one synopsis: what is kept, for how long, and what a store takes over of another."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.model.windows import Bound, Now, Period, Range, Window
from millpond.operators.expire import Expire
from millpond.operators.protocol.delta import Delta
from millpond.operators.source import StreamSource
from millpond.operators.windows.shared_window import KeepingElements, KeptElements, SharedWindow
from millpond.operators.windows.time_window import TimeWindow

ELEMENTS = StreamSource("s", ("k", "v"), (pa.int64(), pa.string()))
KEPT = KeptElements(ELEMENTS)
WINDOWS = (
    Range(5),
    Range(13),
    Range(6, 2),
    Range(4, 7),
    Now(),
    Period(Bound(offset=-8), Bound(offset=-3)),
)


def feed(stamps: list[int]) -> Delta:
    """Elements whose columns tell their timestamps."""
    columns = [pa.array(stamps, pa.int64()), pa.array([f"v{t}" for t in stamps], pa.string())]
    rows = pa.RecordBatch.from_arrays(columns, schema=ELEMENTS.schema)
    return Delta.of(rows, np.array(stamps, np.int64))


class Play:
    """A store with the windows that read it, as a dataflow runs them."""

    def __init__(self, windows: tuple[Window, ...], needed: set[int]) -> None:
        self.store = KEPT.operator()
        self.nodes = [SharedWindow(KEPT, window) for window in windows]
        self.running = {node.key: node.operator() for node in self.nodes}
        self.needed = dict.fromkeys(self.running, needed)
        self.tell()

    def tell(self) -> None:
        for key, operator in self.running.items():
            operator.needed = self.needed[key]
        self.store.serve(set().union(*self.needed.values()), self.nodes)

    def step(self, stamps: list[int], upto: int) -> list[list[tuple[object, ...]]]:
        delta = self.store.advance([feed(stamps)], upto, DuckDBScalars())
        outputs = [self.running[n.key].advance([delta], upto, DuckDBScalars()) for n in self.nodes]
        return [lines(output) for output in outputs]

    def attach(self, other: Play) -> None:
        self.store.absorb(other.store)
        for node in other.nodes:
            if node.key not in self.running:
                self.nodes.append(node)
                self.running[node.key] = other.running[node.key]
                self.needed[node.key] = other.needed[node.key]
            else:
                self.needed[node.key] = self.needed[node.key] | other.needed[node.key]
        self.tell()

    def detach(self, number: int) -> None:
        node = self.nodes.pop(number)
        del self.running[node.key], self.needed[node.key]
        self.tell()


def lines(delta: Delta) -> list[tuple[object, ...]]:
    columns = [column.to_pylist() for column in delta.rows.columns]
    return list(zip(delta.at.tolist(), delta.weight.tolist(), *columns, strict=True))


STEPS = st.lists(st.tuples(st.lists(st.integers(1, 9), max_size=6), st.integers(1, 9)), max_size=9)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.lists(st.sampled_from(WINDOWS), min_size=1, unique=True))
def test_windows_over_one_store_say_what_windows_with_queues_say(steps, windows) -> None:  # type: ignore[no-untyped-def]
    play = Play(tuple(windows), {0, 1})
    alone = [TimeWindow(ELEMENTS, window) for window in windows]
    before = [(node.operator(), Expire(node).operator()) for node in alone]
    upto = 0
    for stamps, more in steps:
        arrived = sorted(upto + t for t in stamps if t <= more)
        upto += more
        expected = []
        for window, expire in before:
            rows = window.advance([feed(arrived)], upto, DuckDBScalars())
            expected.append(lines(expire.advance([rows], upto, DuckDBScalars())))
        assert play.step(arrived, upto) == expected
    play.step([], upto + 100)
    assert play.store.size() == 0


def test_elements_are_kept_for_the_longest_window_only() -> None:
    play = Play((Range(5), Range(50)), {0})
    for number in range(1_000):
        play.step([number], number)
    assert play.store.size() == 50
    assert set(play.store._runs[0].columns) == {0}
    play.detach(1)
    assert play.store.size() == 5
    # Small steps do not leave long lists.
    assert len(play.store._runs) == 1


@pytest.mark.parametrize("needed", [*itertools.product(({0}, {1}, {0, 1}), repeat=3)], ids=str)
@pytest.mark.parametrize("lengths", [*itertools.permutations((4, 9, 20))], ids=str)
def test_a_store_takes_over_what_only_another_keeps(needed, lengths) -> None:  # type: ignore[no-untyped-def]
    """Three dataflows run side by side, and become one, one after the other, in every way."""
    plays = [
        Play((Range(length),), columns) for length, columns in zip(lengths, needed, strict=True)
    ]
    alone = [
        Play((Range(length),), columns) for length, columns in zip(lengths, needed, strict=True)
    ]
    together = plays.pop(0)
    for now in range(60):
        found = together.step([now, now], now)
        for play in plays:
            found += play.step([now, now], now)
        expected = [play.step([now, now], now)[0] for play in alone]
        assert [[row[:2] for row in rows] for rows in found] == [
            [row[:2] for row in rows] for rows in expected
        ]
        for columns, rows, others in zip(needed, found, expected, strict=True):
            for place in columns:
                assert [row[2 + place] for row in rows] == [row[2 + place] for row in others]
        if now in (10, 31):
            together.attach(plays.pop(0))
            assert together.store.size() == 2 * min(
                max(n.window.size for n in together.nodes), now + 1
            )


def test_a_store_takes_over_the_columns_of_one_that_is_empty() -> None:
    one, other = Play((Range(9),), {0}), Play((Now(),), {1})
    for play in (one, other):
        play.step([3, 4], 5)
    one.attach(other)
    assert one.store.size() == 2
    assert one.step([6], 6) == [[(6, 1, 6, None)], [(6, 1, None, "v6")]]


def test_a_store_that_took_over_another_frees_what_it_drops() -> None:
    one, other = Play((Range(1 << 18),), {0}), Play((Range(9),), {1})
    for start in range(0, 1 << 18, 1 << 16):
        for play in (one, other):
            play.step(list(range(start, start + (1 << 16))), start + (1 << 16) - 1)
    one.attach(other)
    assert len(one.store._runs) == 4
    assert [len(run) for run in one.store._runs] == [1 << 16] * 4
    for run in one.store._runs:
        (buffer,) = (b for b in run.columns[0].buffers() if b is not None)
        assert buffer.size <= (1 << 16) * 8 + 64


def test_a_store_of_other_elements_is_not_taken_over() -> None:
    one, other = Play((Range(9),), {0}), Play((Range(4),), {1})
    one.step([3, 4], 5)
    other.step([4, 5], 5)
    with pytest.raises(ValueError, match="differ"):
        one.store.absorb(other.store)
    assert isinstance(one.store, KeepingElements)
