"""What somebody chose of a plan's operators; it holds in place of what is expected to cost least.

A choice is kept by the operator's logical key (`Node.logical_key`), which is equal for all forms of
an operator. So it holds for every query that has the operator, also for queries that come later:
they are planned around it. No choice changes an answer. Where a plan cannot follow a choice (what
reads the operator does not accept the form), it follows as many as it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millpond.operators.distinct_announcing import DistinctAnnouncing
from millpond.operators.distinct_delta_star import DistinctDeltaStar
from millpond.operators.expire import Expire
from millpond.operators.join import Join
from millpond.operators.protocol.node import Node
from millpond.operators.set_operations import SetOperation

#: In `Choice.expire`: rows carry their expirations over the operator's edge.
CARRIED = 0


@dataclass(frozen=True)
class Choice:
    """What was chosen of one operator; what is empty was not chosen.

    Attributes:
        expire: How the operator's rows leave: `CARRIED`, or in how many partitions they wait until
            negative tuples announce it. Several: one for some readers, another for others.
        distinct: Of duplicate elimination, a key of `DISTINCT_FORMS`.
        order: Of the last of several joins, the places of the joined items in the order of joining.
        shared: Whether queries share the operator.
        rewritten: Of the last operator of a plan as it is written, the logical key of the last
            operator of the rewriting to use.
    """

    expire: tuple[int, ...] = ()
    distinct: str = ""
    order: tuple[int, ...] = ()
    shared: bool = True
    rewritten: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields that are chosen."""
        named = {
            "expire": list(self.expire),
            "distinct": self.distinct,
            "order": list(self.order),
            "rewritten": self.rewritten,
        }
        found = {name: value for name, value in named.items() if value}
        return found if self.shared else {**found, "shared": False}

    @staticmethod
    def of_json(given: Mapping[str, Any]) -> Choice:
        """The choice that `to_json` gave."""
        return Choice(
            tuple(given.get("expire", ())),
            given.get("distinct", ""),
            tuple(given.get("order", ())),
            given.get("shared", True),
            given.get("rewritten", ""),
        )


#: By logical key.
Choices = Mapping[str, Choice]

#: The name under which the settings of a pond have the plan that was adopted.
SETTING = "plan"

NOTHING = Choice()

#: The forms of duplicate elimination.
DISTINCT_FORMS: dict[str, type[Node]] = {
    "delta star": DistinctDeltaStar,
    "delta star, announcing": DistinctAnnouncing,
    "counts": SetOperation,
}


def find_adopted_choices(settings: Mapping[str, Any]) -> dict[str, Choice]:
    """Find the choices of the plan that was adopted, in the settings of a pond."""
    given = settings.get(SETTING, {}).get("choices", {})
    return {key: Choice.of_json(choice) for key, choice in given.items()}


def find_noticed_choices(settings: Mapping[str, Any]) -> dict[str, Choice]:
    """Find the choices by which plans were made anew as they ran, in the settings of a pond."""
    given = settings.get(SETTING, {}).get("noticed", {})
    return {key: Choice.of_json(choice) for key, choice in given.items()}


def find_choices(settings: Mapping[str, Any]) -> dict[str, Choice]:
    """Find all choices by which plans are made: what somebody adopted goes before the others."""
    return {**find_noticed_choices(settings), **find_adopted_choices(settings)}


def find_distinct_form(node: Node) -> str:
    """The form of duplicate elimination that a node is; empty if it is none."""
    if isinstance(node, SetOperation) and node.rule != "distinct":
        return ""
    found = (name for name, kind in DISTINCT_FORMS.items() if isinstance(node, kind))
    return next(found, "")


def read_choices(written: str, root: Node) -> dict[str, Choice]:
    """Read from a plan all that there was to choose: with these choices it is planned again.

    Args:
        written: The logical key of the last operator of the plan as it is written.
        root: The last operator of the plan.
    """
    expire: dict[str, set[int]] = {}
    distinct: dict[str, str] = {}
    order: dict[str, tuple[int, ...]] = {}
    for reader, node in _list_edges(root):
        if isinstance(node, Expire):
            expire.setdefault(node.logical_key, set()).add(node.partitions)
        elif node.carries_expirations and not isinstance(reader, Expire):
            expire.setdefault(node.logical_key, set()).add(CARRIED)
        if form := find_distinct_form(node):
            distinct[node.logical_key] = form
        if isinstance(node, Join) and node.group:
            order[node.logical_key] = node.order
    found = {
        key: Choice(tuple(sorted(expire.get(key, ()))), distinct.get(key, ""), order.get(key, ()))
        for key in sorted({*expire, *distinct, *order})
    }
    found[written] = replace(found.get(written, NOTHING), rewritten=root.logical_key)
    return found


def separate_nodes(root: Node, choices: Choices, owner: str) -> Node:
    """Give a query the operators for itself that no queries are to share."""
    if all(choice.shared for choice in choices.values()):
        return root
    done: dict[str, Node] = {}

    def visit(node: Node) -> Node:
        if node.key not in done:
            inputs = tuple(map(visit, node.inputs))
            found = node if inputs == node.inputs else node.over_inputs(inputs)
            # What turns an operator's expirations into negative tuples is a part of it.
            if not choices.get(node.logical_key, NOTHING).shared:
                found = found.own_by(owner)
            done[node.key] = found
        return done[node.key]

    return visit(root)


def _list_edges(root: Node) -> Iterator[tuple[Node | None, Node]]:
    """List the edges of a plan: who reads, and what is read; the root is read by nobody."""
    yield None, root
    seen: set[str] = set()
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if node.key in seen:
            continue
        seen.add(node.key)
        for below in node.inputs:
            yield node, below
            waiting.append(below)
