"""What can be chosen of one operator: its synopsis, its order of joining, whether it is shared."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from millpond.errors import MillpondError
from millpond.model.patterns import Pattern
from millpond.operators.expire import Expire
from millpond.operators.join import Join
from millpond.operators.protocol.node import Node
from millpond.operators.structures.expiration_queues import ARRIVAL_ORDER
from millpond.planner.optimize.choices import CARRIED, DISTINCT_FORMS, Choice, find_distinct_form
from millpond.planner.optimize.cost import CHOICES, strip_expire

#: What can be chosen of operators, by the names it has in documents and control tables.
FIELDS = ("synopsis", "order", "shared")

_IN_ORDER = "arrival order"
_MOST_PARTITIONS = 10_000


def describe_choices(node: Node) -> dict[str, Any]:
    """What was chosen of an operator, or follows from its cost: the fields that can be set."""
    found: dict[str, Any] = {}
    if synopsis := _name_synopsis(node):
        found["synopsis"] = synopsis
    if isinstance(node, Join) and node.group:
        found["order"] = [_name_item(node, place) for place in node.order]
    if node.inputs:
        found["shared"] = not node.owner
    return found


def list_synopses(node: Node) -> list[str]:
    """List the synopses that an operator can have; where there is one only, none is chosen."""
    if isinstance(node, Expire) and node.input.pattern > Pattern.WEAKEST:
        return [_IN_ORDER, *(f"{number} partitions" for number in CHOICES)]
    if find_distinct_form(node):
        is_strict = strip_expire(node).inputs[0].announces
        return ["counts"] if is_strict else list(DISTINCT_FORMS)
    return []


def choose(id: str, node: Node, choice: Choice, field: str, value: Any) -> Choice:
    """Set a field of an operator, as a document or a control table gives it.

    Args:
        id: The operator's.
        node: The operator.
        choice: What is chosen of it now.
        field: One of `FIELDS`.
        value: The field's value.

    Raises:
        MillpondError: CQL-214, the operator has no such field, or the value is none of its.
    """
    now = describe_choices(node)
    if field not in now:
        raise MillpondError(
            "CQL-214",
            f'no "{field}" of operator "{id}"',
            detail=f"It has: {', '.join(now)}." if now else "It is as it has to be.",
        )
    if field == "shared":
        if not isinstance(value, bool):
            raise _refuse_value(id, field, value, "true or false")
        return replace(choice, shared=value)
    if field == "order":
        assert isinstance(node, Join)
        return replace(choice, order=_read_order(id, node, value))
    if find_distinct_form(node):
        if value not in list_synopses(node):
            # Quoted, because there are commas in names.
            known = ", ".join(f"'{name}'" for name in list_synopses(node))
            raise _refuse_value(id, field, value, known)
        return replace(choice, distinct=value)
    assert isinstance(node, Expire)
    if value == now["synopsis"]:
        return choice
    number = ARRIVAL_ORDER if value == _IN_ORDER else _read_partitions(id, node, value)
    kept = CARRIED in choice.expire
    return replace(choice, expire=(CARRIED, number) if kept else (number,))


def is_realised(node: Node, choice: Choice, field: str) -> bool:
    """Whether a planned operator is as was chosen."""
    if field == "shared":
        return bool(node.owner) is not choice.shared
    if field == "order":
        return isinstance(node, Join) and bool(node.group) and node.order == choice.order
    if isinstance(node, Expire):
        return node.input.pattern <= Pattern.WEAKEST or node.partitions in choice.expire
    return bool(choice.distinct) and find_distinct_form(node) == choice.distinct


def _name_synopsis(node: Node) -> str:
    if isinstance(node, Expire):
        if node.input.pattern <= Pattern.WEAKEST:
            return ""
        in_order = node.partitions == ARRIVAL_ORDER
        return _IN_ORDER if in_order else f"{node.partitions} partitions"
    return find_distinct_form(node) if list_synopses(node) else ""


def _name_item(node: Join, place: int) -> str:
    """The name of a joined item; with its place where several have the name."""
    name = node.items[place]
    return name if node.items.count(name) == 1 else f"{name} ({place + 1})"


def _read_order(id: str, node: Join, value: Any) -> tuple[int, ...]:
    names = [_name_item(node, place) for place in range(len(node.items))]
    if not isinstance(value, list) or sorted(map(str, value)) != sorted(names):
        raise MillpondError(
            "CQL-214",
            f'the order of operator "{id}" cannot be {value!r}',
            detail=f"It joins {', '.join(names)}, each of them once.",
        )
    return tuple(names.index(name) for name in value)


def _read_partitions(id: str, node: Node, value: Any) -> int:
    found = re.fullmatch(r"([1-9]\d{0,4}) partitions", value) if isinstance(value, str) else None
    if found is None or int(found[1]) > _MOST_PARTITIONS:
        first = list_synopses(node)[0]
        known = f"'{first}', or '1 partitions' to '{_MOST_PARTITIONS} partitions'"
        raise _refuse_value(id, "synopsis", value, known)
    return int(found[1])


def _refuse_value(id: str, field: str, value: Any, known: str) -> MillpondError:
    return MillpondError(
        "CQL-214",
        f'the {field} of operator "{id}" cannot be {value!r}',
        hint=f"It can be {known}.",
    )
