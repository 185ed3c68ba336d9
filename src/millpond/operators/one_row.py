"""The relation of one row that a SELECT without FROM reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.model.patterns import MONOTONIC
from millpond.model.time import BEGINNING
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars

_SCHEMA = positional_schema([pa.bool_()])


@dataclass(frozen=True, eq=False)
class OneRow(Node):
    """One row, from the beginning of time for ever."""

    schema = _SCHEMA
    name = "one row"
    edge = MONOTONIC
    identity = ()

    def operator(self) -> Operator:
        return _OneRow()


class _OneRow:
    def __init__(self) -> None:
        self._given = False

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        if self._given:
            return Delta.empty(_SCHEMA)
        self._given = True
        row = pa.RecordBatch.from_arrays([pa.array([True])], schema=_SCHEMA)
        return Delta.of(row, np.full(1, BEGINNING, np.int64))

    def size(self) -> int:
        return 0
