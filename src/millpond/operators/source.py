"""Where deltas come from: the elements of a stream, the changes of a relation.

A source's operator does nothing; whoever runs the plan gives it what its feed holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.model.patterns import MONOTONIC, RELATION, Edge
from millpond.operators.delta import Delta, positional
from millpond.operators.node import Node, Operator, Scalars

#: A source's column that holds each element's arrival sequence, and its timestamp.
SEQUENCE, TIMESTAMP = "__seq", "__ts"


@dataclass(frozen=True, eq=False)
class StreamSource(Node):
    """A stream's elements as they come: each begins at its timestamp and never leaves.

    Attributes:
        stream: The stream's name as declared.
        columns: Which of its columns, `__seq` and `__ts` among them where they are asked for.
        types: Their types.
    """

    stream: str
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]

    @property
    def schema(self) -> pa.Schema:
        return positional(self.types)

    @property
    def name(self) -> str:
        return "stream"

    @property
    def detail(self) -> str:
        return self.stream

    @property
    def edge(self) -> Edge:
        return MONOTONIC

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.stream, self.columns)

    @property
    def feed(self) -> tuple[str, str, tuple[str, ...]]:
        return ("stream", self.stream, self.columns)

    def operator(self) -> Operator:
        return _Passing()


@dataclass(frozen=True, eq=False)
class RelationSource(Node):
    """A relation's rows, as its updates change them; attributes as of `StreamSource`."""

    relation: str
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]

    @property
    def schema(self) -> pa.Schema:
        return positional(self.types)

    @property
    def name(self) -> str:
        return "relation"

    @property
    def detail(self) -> str:
        return self.relation

    @property
    def edge(self) -> Edge:
        return RELATION

    @property
    def announces(self) -> bool:
        return True

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.relation, self.columns)

    @property
    def feed(self) -> tuple[str, str, tuple[str, ...]]:
        return ("relation", self.relation, self.columns)

    def operator(self) -> Operator:
        return _Passing()


class _Passing:
    """Gives what it is given."""

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        return delta

    def size(self) -> int:
        return 0
