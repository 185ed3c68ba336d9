"""The protocol of operators: what a plan asks a node, and how an operator is run.

A plan is a tree (shared: a graph) of nodes. Readers of a plan (the planner, EXPLAIN, the runner,
the tests) ask a node and never look at its kind: its `key` says what it computes, so that equal
parts of different queries are computed once; its `edge` says how its rows leave; `operator()`
makes what computes it. Nodes are immutable and picklable. An operator is a function of its inputs'
deltas and its own state, without clock, files or randomness; its state is picklable too, and can
always be rebuilt by feeding a new operator from the beginning of what still matters.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence, Set
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.model.kept_property import kept_property
from millpond.model.patterns import MONOTONIC, Edge, Pattern
from millpond.operators.protocol import cost_model
from millpond.operators.protocol.cost_model import EdgeEstimate, StreamStatistics
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.precision import Precision
from millpond.operators.protocol.purging import Purging
from millpond.operators.protocol.releasing import Constraints, ReleaseFigures, ReleaseRule
from millpond.operators.protocol.sharding import Sharding


class Scalars(Protocol):
    """Evaluates scalar expressions as DuckDB does. Operators get one with every call, keep none.

    Attributes:
        since: No reader sees changes before this instant. An operator need not compute them, and
            rows that hold only before it cannot make an operator fail. Output is right from here.
    """

    since: int

    def compute(self, rows: pa.RecordBatch, sqls: Sequence[str]) -> list[pa.Array]:
        """The value of each expression (over columns `c0`, `c1`, …) for every row, in row order.

        Raises:
            MillpondError: POND-404, an expression failed on a row.
        """
        ...

    def select(self, rows: pa.RecordBatch, predicates: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Find the rows for which every predicate is true.

        A predicate may fail on a row for which another predicate is not true.

        Raises:
            MillpondError: POND-404, a predicate failed on a row that no other predicate excludes.
        """
        ...

    def query(self, sql: str, tables: dict[str, pa.Table]) -> pa.Table:
        """The rows of a query over named tables.

        Raises:
            MillpondError: POND-404, or POND-405 beyond a limit.
        """
        ...

    def recall(self, node: Node) -> Iterable[Delta]:
        """Compute again the rows of a node that came in earlier steps, from the kept elements.

        Args:
            node: A node that only selects, samples, windows and projects a stream's elements.

        Returns:
            The rows that may still be alive, in deltas that are in no order.

        Raises:
            MillpondError: as the node's operators; STORE-6xx if elements cannot be read.
        """
        ...


class Operator(Protocol):
    """Runs a node: keeps its state and advances it step by step.

    When a dataflow takes over another, it keeps one of two operators of equal nodes. If an
    operator's state depends on its readers, it has a method `absorb(other)`, which takes over the
    state that the other operator keeps for its readers.
    """

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        """The node's delta for the instants after the last `upto` up to this one.

        Every call gets all of the inputs' changes between the two, so the output is exact at each
        of these instants, however long or short the step is. It is called for every step, with
        empty deltas too: time alone may change the node's rows.

        Time begins at BEGINNING. Rows that exist over empty inputs (the row of an aggregate
        without groups) are in the first delta, with `at` = BEGINNING.
        """
        ...

    def size(self) -> int:
        """The number of rows of state it keeps; EXPLAIN and the control tables show it."""
        ...


class Purger(Operator, Protocol):
    """An operator that purges expired rows lazily; its readers' plans say how often."""

    purging: Purging


@runtime_checkable
class Releaser(Protocol):
    """An operator that releases rows which nobody should need, by constraints of streams."""

    def set_release_rules(self, rules: Sequence[ReleaseRule]) -> None:
        """Release by these rules from now on."""
        ...

    def list_release_figures(self) -> list[ReleaseFigures]:
        """List what each of the rules did."""
        ...


class Stateless(Operator, Protocol):
    """An operator that keeps no rows, and may leave out columns that no reader needs.

    Attributes:
        needed: The places of the columns that readers need; None for all. The values of other
            columns mean nothing.
    """

    needed: Set[int] | None


class Serving(Operator, Protocol):
    """An operator that keeps rows for others, which keep none."""

    def serve(self, needed: Set[int], readers: Sequence[Node]) -> None:
        """Keep from now on what these readers need.

        Args:
            needed: The places of the columns that they need.
            readers: The nodes that read it.
        """
        ...


class Node(ABC):
    """One operator of a plan: what it computes, from which inputs, at what cost.

    Subclasses are frozen dataclasses with `eq=False`: two nodes are the same if their keys are.
    A value shared by all nodes of a class is a plain attribute of the class.

    Attributes:
        schema: Its columns, named by position.
        edge: When its rows leave.
        name: What EXPLAIN calls it.
        text: The part of the query that it computes, as the query wrote it.
        detail: What EXPLAIN shows after the name.
        state: The structure it keeps its state in, as EXPLAIN shows it; empty without one.
        takes_expirations: Whether its inputs may carry expirations (`Delta.until`). If not, the
            planner puts an `Expire` node below it, which turns them into negative tuples.
        carries_expirations: Whether its own rows may carry them.
        purges: Whether its operator is a `Purger`, which keeps expired rows for a while.
        is_stateless: Whether its operator is `Stateless`.
        serves_readers: Whether its operator is `Serving`.
        lends: Whether its output refers to its operator's state: then all readers have to read it
            before the operator runs again.
        is_exact: Whether its rows are exact if those of its inputs are.
        owner: The query that has the node for itself; empty: plans with an equal node share it.
    """

    text: str = ""
    takes_expirations: bool = True
    purges: bool = False
    is_stateless: bool = False
    serves_readers: bool = False
    lends: bool = False
    is_exact: bool = True
    owner: str = ""

    @kept_property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose deltas it reads: those in its fields, in the fields' order."""
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
        """For each input, whether the input must not carry expirations."""
        return (not self.takes_expirations,) * len(self.inputs)

    @property
    def refuses_negatives(self) -> tuple[bool, ...]:
        """For each input, whether negative tuples must not take back the input's rows."""
        return (False,) * len(self.inputs)

    @property
    def timed_inputs(self) -> tuple[Node, ...]:
        """The inputs whose rows' arrival instants matter, and not only which rows hold when."""
        return ()

    @property
    def announces(self) -> bool:
        """Whether its rows may leave by negative tuples, so that readers must accept these."""
        return any(i.announces for i in self.inputs)

    @property
    @abstractmethod
    def identity(self) -> tuple[Any, ...]:
        """The plain values that distinguish it from nodes of its class with the same inputs."""

    @property
    def feed(self) -> tuple[str, str, tuple[str, ...]] | None:
        """For a source: 'stream' or 'relation', its name, and the columns it reads."""
        return None

    @property
    def remembers(self) -> bool:
        """Whether its output may depend on input rows of earlier steps.

        False for operators that handle each row separately; then rows that never leave need not
        be fed again when a dataflow is rebuilt.
        """
        return True

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        """The columns of each input that it needs to compute some of its own; by default all."""
        return tuple(frozenset(range(len(i.schema))) for i in self.inputs)

    def trace_column(self, place: int) -> int | None:
        """The place of its input's column that it passes on unchanged at a place; None if none."""
        return None

    def find_times(self) -> frozenset[int] | None:
        """Find the columns that hold the instant at which each row comes, and its place in order.

        Returns:
            The columns' places. None: rows may leave, or they do not come in the order of the
            elements of one stream.
        """
        return None

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        """Find by what its inputs can be divided so that its shards' rows are together its rows.

        By default that is possible where it passes on a column of its only input, row by row.

        Args:
            inputs: By what each input can be divided; not all of them are of relations alone.
        """
        if len(inputs) != 1 or inputs[0] is None:
            return {}
        traced = {place: self.trace_column(place) for place in range(len(self.schema))}
        return {p: inputs[0][t] for p, t in traced.items() if t is not None and t in inputs[0]}

    def find_release_rules(self, constraints: Constraints) -> tuple[ReleaseRule, ...]:
        """Find the rules by which its operator, then a `Releaser`, may release rows."""
        return ()

    @property
    def sample_seed(self) -> int | None:
        """The seed of the sample that it takes of its input; None: it takes none."""
        return None

    @property
    def is_window(self) -> bool:
        """Whether it is a window: the timestamps of its input's elements decide which are rows."""
        return False

    def reach(self, at: int) -> int | None:
        """For a window, the least timestamp of an element that may still matter after `at`.

        None: there is none.
        """
        return None

    def over_inputs(self, inputs: Sequence[Node]) -> Node:
        """Replace the inputs, one by one; the rest of the node stays the same."""
        given = iter(inputs)
        changed: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Node):
                changed[field.name] = next(given)
            elif isinstance(value, tuple) and value and isinstance(value[0], Node):
                changed[field.name] = tuple(next(given) for _ in value)
        found: Node = replace(self, **changed)  # type: ignore[type-var]
        return found.own_by(self.owner) if self.owner else found

    def choose_columns(self, places: tuple[int, ...]) -> Node | None:
        """Restrict the node to some of its columns; None if it cannot leave out the others."""
        return None

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        """Estimate the changes on its edge from the estimates of its inputs' edges.

        By default, as many rows come out as come in, and nothing is known of their values.
        """
        arrivals = sum(i.arrivals for i in inputs)
        rows = sum(i.rows for i in inputs)
        negatives = sum(i.negatives for i in inputs)
        columns = (cost_model.UNKNOWN,) * len(self.schema)
        return EdgeEstimate(arrivals, negatives, rows / arrivals if arrivals else 0.0, columns)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        """Estimate its work, in nanoseconds per second of stream time.

        Args:
            inputs: The estimates of its inputs' edges.
            own: The estimate of its own edge.
            known: The streams' statistics.
        """
        return cost_model.SELECTED * sum(i.changes for i in inputs)

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        """Estimate how exact its rows are if those of its inputs are not quite (STREAM, 5.3).

        Args:
            inputs: The precision of its inputs.
            edges: The estimates of its inputs' edges, as if they were exact.

        Returns:
            None if there is no formula: one missing row may change any of its rows.
        """
        return None

    @abstractmethod
    def operator(self) -> Operator:
        """Make a new operator, at the beginning of time."""

    def own_by(self, owner: str) -> Node:
        """Make a node like this one that one query has for itself."""
        made = copy(self)
        object.__setattr__(made, "owner", owner)
        made.__dict__.pop("key", None)
        return made

    @kept_property
    def key(self) -> str:
        """Equal for nodes that compute the same, and that plans may share."""
        own = (self.owner,) if self.owner else ()
        inputs = [i.key for i in self.inputs]
        return hash_text(repr((type(self).__qualname__, self.identity, inputs, *own)))

    @kept_property
    def logical_key(self) -> str:
        """Equal for nodes that give the same rows, in whatever form and with whatever state.

        What somebody chose of an operator is kept by this key (`planner/optimize/choices.py`).
        """
        inputs = [i.logical_key for i in self.inputs]
        return hash_text(repr((self.logical_identity, inputs)))

    @property
    def logical_identity(self) -> tuple[Any, ...]:
        """What is equal for nodes that give the same rows of inputs that give the same rows."""
        return (type(self).__qualname__, self.identity)


def is_of_one_stream(node: Node) -> bool:
    """Whether each row of a node is made of one element of one stream."""
    while len(node.inputs) == 1:
        (node,) = node.inputs
    return node.feed is not None and node.edge == MONOTONIC


def hash_text(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, eq=False)
class Unary(Node):
    """A node with one input; it has the input's columns and edge unless its class differs."""

    input: Node

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @property
    def edge(self) -> Edge:
        return self.input.edge

    def trace_times(self) -> frozenset[int] | None:
        """As `find_times`, for a node that passes rows on one by one, in their order."""
        below = self.input.find_times()
        if below is None:
            return None
        traced = {place: self.trace_column(place) for place in range(len(self.schema))}
        return frozenset(place for place, source in traced.items() if source in below)
