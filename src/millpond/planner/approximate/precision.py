"""What answer a plan is expected to give if only a share of each input is read (STREAM, 5.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millpond.operators.protocol.cost_model import EdgeEstimate, StreamStatistics
from millpond.operators.protocol.node import Node
from millpond.operators.protocol.precision import EXACT, Precision, sample_rows
from millpond.planner.bind.bound_query import BoundQuery

#: The seeds of leaves that are marked: no sample that is taken has one of them.
_FIRST_SEED = 2**80


def mark_leaves(bound: BoundQuery) -> BoundQuery:
    """Write a sample into every leaf that has none, so that a plan shows where it would be."""
    leaves = tuple(
        leaf if leaf.sample is not None else replace(leaf, sample=50.0, seed=_FIRST_SEED + number)
        for number, leaf in enumerate(bound.streams)
    )
    return replace(bound, streams=leaves, aggregates=None, grouped=None, join=None)


@dataclass(frozen=True, eq=False)
class PrecisionModel:
    """A plan as the formulas see it.

    Attributes:
        order: Its nodes, inputs before the nodes that read them.
        edges: By a node's key, the estimate of its edge if everything is read.
    """

    order: tuple[Node, ...]
    edges: Mapping[str, EdgeEstimate]

    @classmethod
    def of(cls, root: Node, known: StreamStatistics, ages: Sequence[float]) -> PrecisionModel:
        """Make the model of a plan of a query whose leaves were marked.

        Args:
            root: The plan.
            known: The statistics of the streams.
            ages: For each occurrence of a stream, the seconds from its first element to its last: a
                window that is longer holds no more.
        """
        edges: dict[str, EdgeEstimate] = {}
        order: list[Node] = []

        def visit(node: Node) -> EdgeEstimate:
            if node.key not in edges:
                inputs = [visit(i) for i in node.inputs]
                if (number := _find_mark(node)) is None:
                    edges[node.key] = node.estimate(inputs, known)
                else:
                    edges[node.key] = replace(inputs[0], life=max(ages[number], 1e-6))
                order.append(node)
            return edges[node.key]

        visit(root)
        return cls(tuple(order), edges)

    def predict(self, shares: Sequence[float]) -> Precision | None:
        """Predict how exact the answer is.

        Args:
            shares: For each occurrence of a stream, the share of its window that is read, 0 to 1.

        Returns:
            None if there is no formula for one of the plan's operators.
        """
        found: dict[str, Precision] = {}
        for node in self.order:
            inputs = [found[i.key] for i in node.inputs]
            if (number := _find_mark(node)) is not None:
                found[node.key] = sample_rows(inputs[0], shares[number])
            elif node.is_exact and all(one == EXACT for one in inputs):
                found[node.key] = EXACT
            else:
                edges = [self.edges[i.key] for i in node.inputs]
                own = node.estimate_precision(inputs, edges)
                if own is None:
                    return None
                found[node.key] = own
        return found[self.order[-1].key]


def _find_mark(node: Node) -> int | None:
    """The number of the leaf that a node marks; None if it marks none."""
    seed = node.sample_seed
    return seed - _FIRST_SEED if seed is not None and seed >= _FIRST_SEED else None
