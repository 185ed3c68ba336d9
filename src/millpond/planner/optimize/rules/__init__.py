"""Rewritings of dataflows that follow from update patterns (Update patterns, 5.4.2), in order.

Each rule looks at one node and gives an equivalent node, or None if the rule does not apply.
`rewrite` applies the rules from the leaves up until none applies.
"""

from __future__ import annotations

from collections.abc import Callable

from millpond.operators.protocol.node import Node
from millpond.planner.optimize.rules.distinct_push_down import push_down_distinct
from millpond.planner.optimize.rules.negation_pull_up import pull_up_negation
from millpond.planner.optimize.rules.sum_by_key import sum_by_key

Rule = Callable[[Node], Node | None]

#: The rules, in the order in which they are tried on a node.
RULES: tuple[Rule, ...] = (pull_up_negation, push_down_distinct, sum_by_key)


def rewrite(root: Node, rules: tuple[Rule, ...] = RULES) -> Node:
    """Rewrite a plan by the rules until none applies."""
    done: dict[str, Node] = {}

    def visit(node: Node) -> Node:
        found = done.get(node.key)
        if found is None:
            inputs = tuple(visit(i) for i in node.inputs)
            found = node if inputs == node.inputs else node.over_inputs(inputs)
            for rule in rules:
                better = rule(found)
                if better is not None:
                    found = visit(better)
                    break
            done[node.key] = found
        return found

    return visit(root)
