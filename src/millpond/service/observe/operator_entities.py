"""The operators of the dataflows that run, as entities: what they keep and did, and their memory.

An operator that several queries share is one entity. What it is can be set while it runs, which
changes no answer (Bulletin 4.3): its `memory`, beyond which state lies in files; its `synopsis`;
the `order` in which it joins; whether it is `shared` (`service/plans`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from millpond.catalog.option_values import parse_memory
from millpond.errors import MillpondError
from millpond.operators.protocol.node import Node
from millpond.service.changes.dataflow_accounts import RunningOperator
from millpond.service.components import Components
from millpond.service.plans.choosing import describe_choices
from millpond.service.plans.plans import Plans
from millpond.service.plans.running_plans import find_operators, find_readers, name_operator
from millpond.service.queries.options import check_system_settings
from millpond.state.version import Version

#: Of an operator's memory: as much as its dataflow has.
AUTO = "auto"


def list_operators(
    components: Components, version: Version
) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """List the operators: id, what each works for, figures, settings.

    Those of a plan whose first step is still to come are there, too: they keep nothing yet.
    """
    own = components.advancer.operator_memory
    nodes = find_operators(version, components.derivations)
    found: dict[str, list[RunningOperator]] = {}
    for operator in components.advancer.accounts.list_operators(version):
        found.setdefault(name_operator(operator.state.name, operator.key), []).append(operator)
    readers = find_readers(version, components.derivations)
    for id in [*found, *(id for id in nodes if id not in found)]:
        some = found.get(id, [])
        ids = {i for one in some for i in one.derivations if i in version.streams}
        ids = ids or readers.get(id, set())
        of = version.name_of(version.streams[ids.pop()]) if len(ids) == 1 else f"{len(ids)} queries"
        figures = {
            "rows": sum(one.state.rows for one in some),
            "bytes": sum(one.state.memory for one in some),
            "bytes in files": sum(one.state.files for one in some),
            "runs": sum(one.work.runs for one in some),
            "seconds": round(sum(one.work.seconds for one in some), 6),
            "rows in": sum(one.work.taken for one in some),
            "rows out": sum(one.work.given for one in some),
        }
        settings = {"memory": own.get(some[0].key if some else nodes[id].key, (AUTO, 0))[0]}
        if id in nodes:
            settings |= describe_choices(nodes[id])
        yield id, of, figures, settings


def set_operator(components: Components, id: str, settings: Mapping[str, Any]) -> str:
    """Set what an operator is from its next step on.

    Returns:
        The operator's id from then on. It says what the operator computes, so another synopsis, or
        another order, has another id.

    Raises:
        MillpondError: CQL-214, a value is none that it can have.
    """
    memory = settings.get("memory")
    if memory is not None and memory != AUTO:
        memory = _check_memory(id, memory)
    chosen = {name: value for name, value in settings.items() if name != "memory"}
    if chosen:
        before = find_operators(components.log.version, components.derivations)
        Plans(components).choose_of(id, chosen)
        after = find_operators(components.log.version, components.derivations)
        id = _find_again(id, chosen, before, after)
    if memory is not None:
        _set_memory(components, id, memory)
    return id


def _find_again(
    id: str, chosen: Mapping[str, Any], before: Mapping[str, Node], after: Mapping[str, Node]
) -> str:
    """Find the operator that another one has become, by what was chosen of it."""
    if id in after or id not in before:
        return id
    found = [
        other
        for other, node in after.items()
        if other not in before
        and node.name == before[id].name
        and chosen.items() <= describe_choices(node).items()
    ]
    return found[0] if len(found) == 1 else id


def _check_memory(id: str, given: Any) -> str:
    try:
        return str(check_system_settings({"memory": given})["memory"])
    except MillpondError as error:
        raise MillpondError(
            "CQL-214",
            f'the memory of operator "{id}" cannot be {given!r}',
            hint="Give an amount of memory, as '16 MB', or 'auto': as much as its dataflow has.",
        ) from error


def _set_memory(components: Components, id: str, text: str) -> None:
    version, own = components.log.version, components.advancer.operator_memory
    keys = [
        one.key
        for one in components.advancer.accounts.list_operators(version)
        if name_operator(one.state.name, one.key) == id
    ]
    node = find_operators(version, components.derivations).get(id)
    for key in {*keys, *([node.key] if node is not None else [])}:
        if text == AUTO:
            own.pop(key, None)
        else:
            own[key] = (text, parse_memory(text))
