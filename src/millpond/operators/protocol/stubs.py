"""Stores and stubs: what equal operators over windows of other lengths keep, once (Bulletin 2.2).

STREAM gives each operator a synopsis, and keeps of synopses with equal rows the store once, with a
stub for each reader. Here a store is a node that no plan has: it keeps for all of its readers what
the operator of each would keep for itself. A `Stub` stands in a dataflow for a node of a plan,
under the same key. It keeps nothing, and finds in the store what its own windows hold.

A node of a plan that runs alone has its own operator. What that operator keeps goes to the store
when others come, and back when they have gone (`engine/dataflow/arrangement.py`). So both, the
operator and the store, are `Keeper`s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from millpond.model.patterns import Edge
from millpond.operators.protocol.node import Node, Operator, Unary


@dataclass(frozen=True)
class Origin:
    """The node of a plan in whose place a stub is; it is not an input of the stub."""

    node: Node


@dataclass(frozen=True, eq=False)
class Stub(Unary):
    """A node over a store that stands for a node of a plan.

    Attributes:
        input: The store.
        origin: The node of the plan.
        lengths: How long elements are in its windows, of each input of the store.
        several: What EXPLAIN calls more than one of them.
    """

    origin: Origin
    lengths: tuple[int, ...]

    several = ""

    @property
    def key(self) -> str:
        return self.origin.node.key

    @property
    def name(self) -> str:
        return self.origin.node.name

    @property
    def schema(self) -> pa.Schema:
        return self.origin.node.schema

    @property
    def edge(self) -> Edge:
        return self.origin.node.edge

    @property
    def carries_expirations(self) -> bool:
        return self.origin.node.carries_expirations

    @property
    def announces(self) -> bool:
        return self.origin.node.announces

    @property
    def timed_inputs(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def identity(self) -> tuple[Any, ...]:
        return self.lengths


class StubOperator:
    """Runs a stub.

    Attributes:
        store: The key of the node whose operator keeps the rows.
        lengths: How long elements are in its windows.
    """

    def __init__(self, node: Stub) -> None:
        self.store, self.lengths = node.input.key, node.lengths

    def size(self) -> int:
        return 0


@runtime_checkable
class Keeper(Operator, Protocol):
    """An operator that others may take rows over from, or hand rows over to."""

    def hand_over(self, lengths: tuple[int, ...]) -> Any:
        """Give what it keeps for windows of these lengths; nobody else keeps it then."""
        ...

    def take_over(self, rows: Any, lengths: tuple[int, ...]) -> None:
        """Keep from now on, too, what was kept for windows of these lengths."""
        ...
