"""Strategies: how the readers of an edge learn that a row has left (Update patterns, 2.3 and
5.4.3).

- `negative`: every window announces every expiration by a negative tuple, and so does all above it.
- `direct`: rows carry their expirations and nobody announces anything. Only for plans without
  negation and retroactive relations, whose rows leave when nobody could know.
- `aware`: by the pattern of each edge. Rows carry expirations as long as somebody profits; where a
  negation cuts lives short a negative tuple says so, and where that is expected of most rows all of
  them are announced from there on up.

Answers never move; what moves is who keeps which rows, and how many rows run on the edges.
"""

from __future__ import annotations

from millpond.errors import MillpondError
from millpond.model.patterns import Pattern
from millpond.operators.expire import Expire
from millpond.operators.expiry import PARTITIONS
from millpond.operators.node import Node
from millpond.planner.rules import Rule, rewritten

STRATEGIES = ("aware", "direct", "negative")

#: Share of rows that leave before their time from which on announcing all of them costs less than
#: looking for those few in partitions (Update patterns, 6.4: at 40 % it was no gain any more).
MOSTLY = 0.4


def applied(
    root: Node, strategy: str, premature: float = 0.0, partitions: int = PARTITIONS
) -> Node:
    """A plan by a strategy.

    Args:
        root: The plan; its windows announce what the strategy says already.
        strategy: One of `STRATEGIES`.
        premature: The share of a negation's rows expected to leave before their time.
        partitions: How many partitions by expiration time a structure has.

    Raises:
        MillpondError: CQL-214, `direct` of a plan with a STRICT edge.
    """
    if strategy == "direct":
        _refuse_strict(root)
    rules: list[Rule] = [_partitioned(partitions)] if partitions != PARTITIONS else []
    if strategy == "aware" and premature >= MOSTLY:
        rules.append(_announced)
    return rewritten(root, tuple(rules)) if rules else root


def _refuse_strict(root: Node) -> None:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.pattern is Pattern.STRICT and all(
            i.pattern is not Pattern.STRICT for i in node.inputs
        ):
            raise MillpondError(
                "CQL-214",
                "the query option \"strategy\" cannot be 'direct' for this query",
                detail=f"Rows of its {node.name} {node.detail}".rstrip()
                + " may leave at a time nobody could know, and only negative tuples tell.",
                hint="Use 'aware' or 'negative'.",
            )
        stack += node.inputs


def _announced(node: Node) -> Node | None:
    """Negative tuples for all rows of an edge where a negation begins to cut lives short."""
    if not node.takes_expirations or isinstance(node, Expire):
        return None
    inputs = tuple(Expire(i) if _cuts(i) else i for i in node.inputs)
    return node.over_inputs(inputs) if inputs != node.inputs else None


def _cuts(node: Node) -> bool:
    return (
        node.pattern is Pattern.STRICT
        and node.carries_expirations
        and node.inputs[0].pattern is not Pattern.STRICT
    )


def _partitioned(partitions: int) -> Rule:
    def rule(node: Node) -> Node | None:
        if isinstance(node, Expire) and node.partitions != partitions:
            return Expire(node.input, partitions)
        return None

    return rule
