"""The operators of the dataflows that run, as entities: what they keep and did, and their memory.

An operator that several queries share is one entity. What it is can be set while it runs, which
changes no answer (Bulletin 4.3): its `memory`, beyond which state lies in files; its `synopsis`;
the `order` in which it joins; whether it is `shared` (`service/plans`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from millpond.catalog.option_values import parse_memory
from millpond.service.changes.dataflow_accounts import RunningOperator
from millpond.service.components import Components
from millpond.service.plans.choosing import describe_choices
from millpond.service.plans.plans import Plans
from millpond.service.plans.running_plans import find_operators, name_operator
from millpond.service.queries.options import check_system_settings
from millpond.state.version import Version

#: Of an operator's memory: as much as its dataflow has.
AUTO = "auto"


def list_operators(
    components: Components, version: Version
) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """List the operators: id, what each works for, figures, settings."""
    own = components.advancer.operator_memory
    nodes = find_operators(version, components.derivations)
    found: dict[str, list[RunningOperator]] = {}
    for operator in components.advancer.accounts.list_operators(version):
        found.setdefault(name_operator(operator.state.name, operator.key), []).append(operator)
    for id, some in found.items():
        ids = {i for one in some for i in one.derivations if i in version.streams}
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
        settings = {"memory": own.get(some[0].key, (AUTO, 0))[0]}
        if id in nodes:
            settings |= describe_choices(nodes[id])
        yield id, of, figures, settings


def set_operator(components: Components, id: str, settings: Mapping[str, Any]) -> None:
    """Set what an operator is from its next step on.

    Raises:
        MillpondError: CQL-214, a value is none that it can have.
    """
    memory = settings.get("memory")
    if memory is not None:
        _set_memory(components, id, memory)
    chosen = {name: value for name, value in settings.items() if name != "memory"}
    if chosen:
        Plans(components).choose_of(id, chosen)


def _set_memory(components: Components, id: str, given: str) -> None:
    version, own = components.log.version, components.advancer.operator_memory
    keys = [
        one.key
        for one in components.advancer.accounts.list_operators(version)
        if name_operator(one.state.name, one.key) == id
    ]
    if given == AUTO:
        for key in keys:
            own.pop(key, None)
        return
    text = check_system_settings({"memory": given})["memory"]
    own.update({key: (text, parse_memory(text)) for key in keys})
