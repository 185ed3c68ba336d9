"""The protocol of operators: what a plan asks a node, and what running it means.

A plan is a tree (shared: a graph) of nodes. Whoever reads one (the planner, EXPLAIN, the runner,
the tests) asks a node and never looks at its kind: its `key` says what it computes, so that equal
parts of different queries are computed once; its `edge` says how its rows leave; `operator()`
makes what computes it. Nodes are immutable and picklable. An operator is a function of its inputs'
deltas and its own state, without clock, files or randomness; its state is picklable too, and can
always be rebuilt by feeding a new operator from the beginning of what still matters.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.model.patterns import Edge, Pattern
from millpond.operators.protocol import cost_model
from millpond.operators.protocol.cost_model import EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.purging import Purging


class Scalars(Protocol):
    """Evaluates scalar expressions as DuckDB means them; given to operators, who hold none.

    Attributes:
        since: Nobody is given what is true before this instant: an operator need not compute it,
            and what only holds then cannot make it fail. What it gives is right from there on.
    """

    since: int

    def compute(self, rows: pa.RecordBatch, sqls: Sequence[str]) -> list[pa.Array]:
        """The value of each expression (over columns `c0`, `c1`, …) for every row, in row order.

        Raises:
            MillpondError: POND-404, an expression failed on a row.
        """
        ...

    def select(self, rows: pa.RecordBatch, predicates: Sequence[str]) -> npt.NDArray[np.bool_]:
        """For which rows every predicate is true; one that fails where another is not, is not.

        Raises:
            MillpondError: POND-404, a predicate failed on a row that no other takes away.
        """
        ...

    def query(self, sql: str, tables: dict[str, pa.Table]) -> pa.Table:
        """The rows of a query over named tables.

        Raises:
            MillpondError: POND-404, or POND-405 beyond a limit.
        """
        ...


class Operator(Protocol):
    """A node at work: the state it keeps and how it is advanced.

    When a dataflow takes over another, it keeps one of two operators of equal nodes. If what an
    operator keeps depends on who reads it, it has a method `absorb(other)`, which takes over what
    the other keeps for its readers.
    """

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        """The node's delta for the instants after the last `upto` up to this one.

        Every call gives all of the inputs' changes between the two, so what comes out is exact at
        each of these instants however long or short the step is. It is called for every step,
        with empty deltas too: time alone may change what the node gives.

        Time begins at BEGINNING. What the node gives over empty inputs (the row of an aggregate
        without groups) it gives in its first delta, with `at` = BEGINNING.
        """
        ...

    def size(self) -> int:
        """Rows of state it keeps, for what EXPLAIN and the control tables show."""
        ...


class Purger(Operator, Protocol):
    """An operator that keeps rows for a while that have expired; readers say how often they go."""

    purging: Purging


class Stateless(Operator, Protocol):
    """An operator that keeps nothing, and so need not give columns that nobody reads.

    Attributes:
        needed: The places of those that somebody does; None for all. In the places of the others
            is nothing that means anything.
    """

    needed: Set[int] | None


class Node(ABC):
    """What a plan knows of one operator.

    Subclasses are frozen dataclasses with `eq=False`: two nodes are the same if their keys are.
    What is the same for all nodes of a class is a plain attribute of the class.

    Attributes:
        schema: Its columns, named by position.
        edge: When its rows leave.
        name: What EXPLAIN calls it.
        text: What it does as the query wrote it.
        detail: What EXPLAIN says behind the name.
        state: The structure it keeps its state in, as EXPLAIN shows it; empty without one.
        takes_expirations: Whether its inputs may carry expirations (`Delta.until`). If not, the
            planner puts an `Expire` node below it, which turns them into negative tuples.
        carries_expirations: Whether its own rows may carry them.
        purges: Whether it keeps rows for a while that have expired: its operator is a `Purger`.
        is_stateless: Whether its operator is `Stateless`.
    """

    text: str = ""
    takes_expirations: bool = True
    purges: bool = False
    is_stateless: bool = False

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose deltas it reads: what fields hold nodes, in the fields' order."""
        found: list[Node] = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Node):
                found.append(value)
            elif isinstance(value, tuple) and value and isinstance(value[0], Node):
                found += value
        return tuple(found)

    @property
    @abstractmethod
    def schema(self) -> pa.Schema: ...

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    def detail(self) -> str:
        return self.text

    @property
    def state(self) -> str:
        return ""

    @property
    @abstractmethod
    def edge(self) -> Edge: ...

    @property
    def pattern(self) -> Pattern:
        return self.edge.pattern

    @property
    def carries_expirations(self) -> bool:
        return self.takes_expirations and any(i.carries_expirations for i in self.inputs)

    @property
    def needs_explicit(self) -> tuple[bool, ...]:
        """Of each input, whether it must not carry expirations."""
        return (not self.takes_expirations,) * len(self.inputs)

    @property
    def refuses_negatives(self) -> tuple[bool, ...]:
        """Of each input, whether its rows must not be taken back by negative tuples."""
        return (False,) * len(self.inputs)

    @property
    def timed_inputs(self) -> tuple[Node, ...]:
        """The inputs of which it asks when their rows came, and not only which rows hold when."""
        return ()

    @property
    def announces(self) -> bool:
        """Whether rows may leave by negative tuples: its readers have to be ready for them."""
        return any(i.announces for i in self.inputs)

    @property
    @abstractmethod
    def identity(self) -> tuple[Any, ...]:
        """What distinguishes it among nodes of its class with the same inputs: plain values."""

    @property
    def feed(self) -> tuple[str, str, tuple[str, ...]] | None:
        """For a source: 'stream' or 'relation', its name, and the columns it reads."""
        return None

    @property
    def remembers(self) -> bool:
        """Whether what it gives may depend on rows it was given before.

        False of operators that take each row for itself; then rows that never leave need not be
        fed again when a flow is rebuilt.
        """
        return True

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        """Which columns of each input it needs to give some of its own; unless it says so, all."""
        return tuple(frozenset(range(len(i.schema))) for i in self.inputs)

    @property
    def is_window(self) -> bool:
        """Whether it decides by their timestamps which elements of its input are rows."""
        return False

    def reach(self, at: int) -> int | None:
        """For a window: the least timestamp of an element that may still matter after `at`.

        None: there is none.
        """
        return None

    def over_inputs(self, inputs: Sequence[Node]) -> Node:
        """The same node over other inputs, one for each it has."""
        given = iter(inputs)
        changed: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Node):
                changed[field.name] = next(given)
            elif isinstance(value, tuple) and value and isinstance(value[0], Node):
                changed[field.name] = tuple(next(given) for _ in value)
        return replace(self, **changed)  # type: ignore[type-var]

    def choose_columns(self, places: tuple[int, ...]) -> Node | None:
        """The node with only these of its columns, if it can leave out the others itself."""
        return None

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        """What is expected to run on its edge, from what runs on those of its inputs.

        Unless a node knows better: as many rows as come in, of values of which nothing is known.
        """
        arrivals = sum(i.arrivals for i in inputs)
        rows = sum(i.rows for i in inputs)
        negatives = sum(i.negatives for i in inputs)
        columns = (cost_model.UNKNOWN,) * len(self.schema)
        return EdgeEstimate(arrivals, negatives, rows / arrivals if arrivals else 0.0, columns)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        """What it is expected to do: nanoseconds per second of stream time.

        Args:
            inputs: What runs on its inputs' edges.
            own: What runs on its own.
            known: What is known of the streams.
        """
        return cost_model.SELECTED * sum(i.changes for i in inputs)

    @abstractmethod
    def operator(self) -> Operator:
        """A new operator, at the beginning of time."""

    @cached_property
    def key(self) -> str:
        """Equal for nodes that compute the same."""
        text = repr((type(self).__qualname__, self.identity, [i.key for i in self.inputs]))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, eq=False)
class Unary(Node):
    """A node over one other, whose columns and edge are its own unless it says otherwise."""

    input: Node

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @property
    def edge(self) -> Edge:
        return self.input.edge
