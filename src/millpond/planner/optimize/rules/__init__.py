"""Rewritings of dataflows that follow from update patterns (Update patterns, 5.4.2), in order.

Each rule looks at one node and gives an equivalent node, or None if the rule does not apply.
`rewrite` applies the rules from the leaves up until none applies.
"""

from __future__ import annotations

from collections.abc import Callable

from millpond.operators.protocol.node import Node
from millpond.planner.optimize.rules.distinct_push_down import push_down_distinct
from millpond.planner.optimize.rules.extremes_by_key import extremes_by_key
from millpond.planner.optimize.rules.negation_pull_up import pull_up_negation
from millpond.planner.optimize.rules.sum_by_key import sum_by_key, sum_further

Rule = Callable[[Node], Node | None]

#: The rules, in the order in which they are tried on a node.
RULES: tuple[Rule, ...] = (
    pull_up_negation,
    push_down_distinct,
    extremes_by_key,
    sum_by_key,
    sum_further,
)


def rewrite(root: Node, rules: tuple[Rule, ...] = RULES, applied: set[Rule] | None = None) -> Node:
    """Rewrite a plan by the rules until none applies; note in `applied` which did."""
    done: dict[str, Node] = {}

    def visit(node: Node) -> Node:
        found = done.get(node.key)
        if found is None:
            inputs = tuple(visit(i) for i in node.inputs)
            found = node if inputs == node.inputs else node.over_inputs(inputs)
            for rule in rules:
                better = rule(found)
                if better is not None:
                    if applied is not None:
                        applied.add(rule)
                    found = visit(better)
                    break
            done[node.key] = found
        return found

    return visit(root)
