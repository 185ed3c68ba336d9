"""RSTREAM: the whole relation at every instant at which input comes (SEMANTICS, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.model.patterns import MONOTONIC
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars, Unary
from millpond.operators.structures.bag import Bag
from millpond.operators.structures.evaluation import net_weights

_TICK = positional_schema([pa.bool_()])


@dataclass(frozen=True, eq=False)
class Instants(Unary):
    """The instants at which elements come or a relation is updated, in its input.

    An update that changes nothing is none: rows of equal values that leave and come at one instant
    make no instant.
    """

    schema = _TICK
    name = "instants"
    edge = MONOTONIC
    is_window = True
    announces = False
    carries_expirations = False
    identity = ()

    def reach(self, at: int) -> int | None:
        return at + 1

    def operator(self) -> Operator:
        return _Instants()


class _Instants:
    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if bool((delta.weight < 0).any()):
            delta = net_weights(delta)
        return _make_ticks(np.unique(delta.at))

    def size(self) -> int:
        return 0


@dataclass(frozen=True, eq=False)
class Boundaries(Unary):
    """The boundaries of a SLIDE window that has rows just before or just after them."""

    slide: int

    schema = _TICK
    name = "boundaries"
    edge = MONOTONIC
    announces = False
    carries_expirations = False

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.slide,)

    def operator(self) -> Operator:
        return _Boundaries(self.slide)


class _Boundaries:
    """Runs `Boundaries`: keeps the last boundary at which a row seen so far is in the window."""

    def __init__(self, slide: int) -> None:
        self._slide = slide
        self._ahead: list[tuple[int, int]] = []

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        spans = {*self._ahead, *zip(delta.at.tolist(), delta.until.tolist(), strict=True)}
        found = [np.arange(lo, min(hi, upto) + 1, self._slide) for lo, hi in spans]
        after = (upto // self._slide + 1) * self._slide
        rest = [hi for _, hi in spans if hi >= after]
        self._ahead = [(after, max(rest))] if rest else []
        return _make_ticks(np.unique(np.concatenate(found)) if found else np.empty(0, np.int64))

    def size(self) -> int:
        return len(self._ahead)


@dataclass(frozen=True, eq=False)
class RStream(Node):
    """All rows of a relation at every instant its ticks name, as elements of a stream.

    Attributes:
        relation: The relation.
        ticks: The node whose rows' instants are the instants of the output.
    """

    relation: Node
    ticks: tuple[Node, ...]

    name = "rstream"
    state = "the relation's rows"
    edge = MONOTONIC
    announces = False
    carries_expirations = False
    identity = ()

    @property
    def schema(self) -> pa.Schema:
        return self.relation.schema

    @property
    def timed_inputs(self) -> tuple[Node, ...]:
        return self.ticks

    def operator(self) -> Operator:
        return _RStream(self.relation.schema)


class _RStream:
    def __init__(self, schema: pa.Schema) -> None:
        self._bag = Bag(schema)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        relation, *ticks = inputs
        self._bag.take_in(relation, upto)
        instants = np.unique(np.concatenate([tick.at for tick in ticks]))
        parts = [relation.slice(0, 0)]
        for instant in instants.tolist():
            rows = self._bag.at(instant)
            if rows.num_rows:
                parts.append(Delta.of(rows, np.full(rows.num_rows, instant, np.int64)))
        self._bag.forget(upto)
        return Delta.together(parts)

    def size(self) -> int:
        return self._bag.size()


def _make_ticks(instants: Ints) -> Delta:
    column = pa.array(np.ones(len(instants), bool))
    return Delta.of(pa.RecordBatch.from_arrays([column], schema=_TICK), instants)
