"""Measures that add up: counts, sums, and the numerators of variances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millpond.errors import MillpondError
from millpond.model.patterns import Pattern
from millpond.operators.aggregation.measures import (
    Argument,
    Batch,
    Measure,
    MeasureState,
    move_rows,
)
from millpond.operators.protocol.delta import Ints
from millpond.synopses.double_walks import walk_doubles, walk_moments
from millpond.synopses.exact_doubles import ExactSums
from millpond.synopses.mapped_memory import grow_array
from millpond.synopses.order_keys import is_whole, to_doubles, to_two_words, to_whole_numbers
from millpond.synopses.running_totals import walk_counts, walk_integers, walk_wide_integers

Doubles = npt.NDArray[np.float64]


class _RowPerGroup(MeasureState):
    """Keeps a row of numbers for each group.

    Attributes:
        nothing: The array for no groups; it sets the shape and type of a row.
    """

    nothing: np.ndarray

    def __init__(self, argument: Argument) -> None:
        self._argument = argument
        self._kept = self.nothing

    def renumber(self, moved: Ints, groups: int) -> None:
        self._kept = move_rows(self._kept, moved, groups)

    def size(self) -> int:
        return self._kept.nbytes


@dataclass(frozen=True)
class Counted(Measure):
    """The number of rows that take part: an int64 trace."""

    argument: Argument

    def start(self, leaving: Pattern) -> MeasureState:
        return CountedState(self.argument)


class CountedState(_RowPerGroup):
    """The state of `Counted`: each group's number of values."""

    nothing = np.zeros(0, np.int64)

    def advance(self, batch: Batch) -> Ints:
        self._kept = grow_array(self._kept, batch.groups)
        cells = batch.cells
        trace = np.empty(cells.places, np.int64)
        weights = batch.weights(self._argument)
        walk_counts(cells.bounds, cells.starts, cells.groups, weights, self._kept, trace)
        return trace


@dataclass(frozen=True)
class WholeSum(Measure):
    """The sum of whole numbers or of unscaled decimals: an int64[., 2] trace of low, high words."""

    argument: Argument

    def start(self, leaving: Pattern) -> MeasureState:
        is_narrow = is_whole(self.argument.type)
        return WholeSumState(self.argument) if is_narrow else WideSumState(self.argument)


class WholeSumState(_RowPerGroup):
    """The state of `WholeSum`: each group's sum of 64-bit numbers."""

    nothing = np.zeros((0, 2), np.int64)

    def advance(self, batch: Batch) -> Ints:
        self._kept = grow_array(self._kept, batch.groups)
        cells = batch.cells
        trace = np.empty((cells.places, 2), np.int64)
        walk_integers(
            *cells.walked,
            batch.weights(self._argument),
            batch.numeric(self._argument.column, to_whole_numbers),
            self._kept,
            trace,
        )
        return trace


class WideSumState(_RowPerGroup):
    """The state of `WholeSum`: each group's sum of 128-bit numbers."""

    nothing = np.zeros((0, 3), np.uint64)

    def advance(self, batch: Batch) -> Ints:
        self._kept = grow_array(self._kept, batch.groups)
        cells = batch.cells
        trace = np.empty((cells.places, 2), np.int64)
        fits = walk_wide_integers(
            *cells.walked,
            batch.weights(self._argument),
            batch.numeric(self._argument.column, to_two_words),
            self._kept,
            trace,
        )
        if not fits:
            raise MillpondError(
                "POND-404",
                "the query could not be evaluated",
                detail="A sum is out of the range of HUGEINT.",
                hint="Sum doubles, or smaller numbers.",
            )
        return trace


class _ExactSumState(MeasureState):
    """Keeps for each group an exact sum of doubles, with or without the sum of their squares."""

    def __init__(self, argument: Argument, with_squares: bool = False) -> None:
        self._argument = argument
        self._kept = ExactSums(with_squares=with_squares)

    def _take_values(self, batch: Batch) -> Doubles:
        """Read a batch's values and make room for them."""
        values = batch.numeric(self._argument.column, to_doubles)
        self._kept.reserve(batch.groups)
        self._kept.reach(values, batch.placed_weights(self._argument))
        return values

    def renumber(self, moved: Ints, groups: int) -> None:
        self._kept.renumber(moved, groups)

    def size(self) -> int:
        return self._kept.size()


@dataclass(frozen=True)
class DoubleSum(Measure):
    """The sum of doubles, exact and then rounded once: a float64 trace."""

    argument: Argument

    def start(self, leaving: Pattern) -> MeasureState:
        return DoubleSumState(self.argument)


class DoubleSumState(_ExactSumState):
    """The state of `DoubleSum`: each group's exact sum."""

    def advance(self, batch: Batch) -> Doubles:
        values, cells = self._take_values(batch), batch.cells
        trace = np.empty(cells.places)
        walk_doubles(
            *cells.walked,
            batch.weights(self._argument),
            values,
            self._kept.base,
            self._kept.words,
            self._kept.specials,
            trace,
        )
        return trace


class Moments(NamedTuple):
    """n * sum(x^2) − sum(x)^2 by place, as significand * 2^exponent; NaN where undefined."""

    significand: Doubles
    exponent: Ints


@dataclass(frozen=True)
class VarianceNumerator(Measure):
    """The numerator of the variance of doubles, exact and then rounded once: `Moments`."""

    argument: Argument

    def start(self, leaving: Pattern) -> MeasureState:
        return VarianceNumeratorState(self.argument, with_squares=True)


class VarianceNumeratorState(_ExactSumState):
    """The state of `VarianceNumerator`: each group's exact sums of values and of squares."""

    def advance(self, batch: Batch) -> Moments:
        values, cells = self._take_values(batch), batch.cells
        counts = batch.trace(Counted(self._argument))
        significand, exponent = np.empty(cells.places), np.empty(cells.places, np.int64)
        walk_moments(
            *cells.walked,
            batch.weights(self._argument),
            values,
            self._kept.base,
            self._kept.words,
            self._kept.squares,
            self._kept.specials,
            counts,
            significand,
            exponent,
        )
        return Moments(significand, exponent)
