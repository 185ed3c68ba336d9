"""The queues between the operators of one step: which slices wait for whom, and how much waits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from millpond.engine.dataflow.arrangement import Arrangement
from millpond.engine.dataflow.scheduling.protocol import Ready
from millpond.engine.dataflow.work import QueueFigures
from millpond.operators.protocol.delta import Delta


@dataclass
class _Output:
    """What an operator put out for a slice: one piece of data, however many readers wait for it."""

    delta: Delta
    size: int
    readers: int


class Queues:
    """The queues of a step.

    Attributes:
        bytes: How much waits; input that has not been read is not counted.
        figures: What waited at most.
    """

    def __init__(self, flow: Arrangement, measure_input: Callable[[int], int]) -> None:
        """Make empty queues; `measure_input` gives the bytes of all slices from a number on."""
        count = len(flow.nodes)
        self.bytes = 0
        self.figures = QueueFigures()
        self._flow, self._measure_input = flow, measure_input
        #: By place, how many slices its operator has run on.
        self._done = [0] * count
        #: By place and slice, the outputs that some reader has not taken.
        self._outputs: list[dict[int, _Output]] = [{} for _ in range(count)]
        #: By place, the bytes that wait for it.
        self._sizes = [0] * count
        self._alive = set(range(count))
        #: By slice: when it began, and how many operators have not run on it.
        self._began: list[float] = []
        self._left: list[int] = []
        self._is_over = False
        self._ready: dict[int, Ready] = {}
        for place in range(count):
            self._update(place)

    def begin_slice(self, now: float, is_last: bool) -> None:
        """Take note of another slice."""
        self._began.append(now)
        self._left.append(len(self._alive))
        self._is_over = is_last
        for place in self._alive:
            if not self._flow.inputs[place]:
                self._update(place)

    def list_ready(self) -> list[Ready]:
        """List the operators that can run, in the order of their places."""
        return [self._ready[place] for place in sorted(self._ready)]

    def take(self, place: int) -> list[Delta]:
        """Take the oldest slice that waits for an operator out of the queues."""
        number, found = self._done[place], []
        for below in self._flow.inputs[place]:
            found.append(self._outputs[below][number].delta)
        for below in set(self._flow.inputs[place]):
            self._release(below, number, place)
        return found

    def put(self, place: int, delta: Delta, size: int, now: float) -> None:
        """Put what an operator put out for its oldest slice into its readers' queues."""
        number = self._done[place]
        readers = [reader for reader in self._flow.readers[place] if reader in self._alive]
        if readers:
            self._outputs[place][number] = _Output(delta, size, len(readers))
            self.bytes += size
            self.figures.largest = max(self.figures.largest, size)
            self.figures.most_bytes = max(self.figures.most_bytes, self.bytes)
            for reader in readers:
                self._sizes[reader] += size
        self._done[place] += 1
        self._finish(number, now)
        waiting = sum(map(len, self._outputs)) if readers else 0
        self.figures.most_slices = max(self.figures.most_slices, waiting)
        for changed in (place, *readers):
            self._update(changed)

    def fail(self, failed: int) -> None:
        """Have an operator that failed on what it took, and all above it, take part no longer."""
        self._done[failed] += 1
        self._left[self._done[failed] - 1] -= 1
        gone = [place for place in self._flow.list_above(failed) if place in self._alive]
        self._alive.difference_update(gone)
        for place in gone:
            self._ready.pop(place, None)
            for below in set(self._flow.inputs[place]):
                for number in [n for n in self._outputs[below] if n >= self._done[place]]:
                    self._release(below, number, place)
            for number in range(self._done[place], len(self._left)):
                self._left[number] -= 1

    def _release(self, below: int, number: int, reader: int) -> None:
        held = self._outputs[below][number]
        self._sizes[reader] -= held.size
        held.readers -= 1
        if not held.readers:
            del self._outputs[below][number]
            self.bytes -= held.size
            if self._flow.nodes[below].lends:
                self._update(below)

    def _finish(self, number: int, now: float) -> None:
        self._left[number] -= 1
        if not self._left[number]:
            longest = max(self.figures.longest, now - self._began[number])
            self.figures.longest = longest

    def _update(self, place: int) -> None:
        """Find out whether an operator can run."""
        self._ready.pop(place, None)
        if place not in self._alive:
            return
        if self._flow.nodes[place].lends and self._outputs[place]:
            return
        number, inputs = self._done[place], self._flow.inputs[place]
        if not inputs:
            if number < len(self._began):
                began = self._began[number]
            elif not self._is_over:
                began = math.inf
            else:
                return
            self._ready[place] = Ready(place, number, began, self._measure_input(number))
        elif all(self._done[below] > number for below in inputs):
            self._ready[place] = Ready(place, number, self._began[number], self._sizes[place])
