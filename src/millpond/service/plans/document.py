"""The plan as a document: what is exported, and what of it was edited.

The form is described in the guide (`docs/guide/plans.md`). A reader finds in it every operator that
computes the changes of the queries it names, once, with what reads it and what can be chosen of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.catalog.option import Scope
from millpond.catalog.options import OPTIONS, list_options
from millpond.errors import MillpondError
from millpond.operators.protocol.node import Node
from millpond.service.plans.choosing import FIELDS, describe_choices, list_synopses
from millpond.service.plans.running_plans import RunningPlan, RunningPlans, name_operator

#: The version of the form; grows when a field changes its meaning or goes.
FORM = 1

#: The fields of a document, of one of its queries and of one of its operators.
_FIELDS = ("form", "adopted", "settings", "queries", "operators")
_OF_QUERY = ("strategy", "operator")
_OF_OPERATOR = ("name", "detail", "pattern", "state", "synopses", "inputs", "queries")


@dataclass(frozen=True)
class Edits:
    """What a document says otherwise than the plan that runs.

    Attributes:
        names: Whose plans the document has; all of their operators are pinned.
        settings: Settings of the pond, by name.
        strategies: Strategies by the names of queries.
        operators: By operator id, the fields that are other.
    """

    names: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    strategies: dict[str, str] = field(default_factory=dict)
    operators: dict[str, dict[str, Any]] = field(default_factory=dict)


def list_settings() -> tuple[str, ...]:
    """The settings of the pond that a document has: how operators take turns."""
    return list_options(Scope.SYSTEM, "scheduler")


def read_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a document has, of those of a pond."""
    return {name: settings.get(name, OPTIONS[name].default) for name in list_settings()}


def write_document(
    running: RunningPlans,
    plans: Iterable[RunningPlan],
    settings: Mapping[str, Any],
    adopted: int,
) -> dict[str, Any]:
    """Write the document of some plans.

    Args:
        running: The plans that run.
        plans: Those of them that the document is to have.
        settings: The settings of the pond.
        adopted: The number of the plan that was adopted last.
    """
    queries, operators = {}, {}
    for plan in plans:
        root = plan.plan.root
        queries[plan.name] = {
            "strategy": plan.plan.strategy,
            "operator": name_operator(root.name, root.key),
        }
        for node in plan.plan.nodes():
            id = name_operator(node.name, node.key)
            if id not in operators:
                operators[id] = _describe(node, running.readers[id])
    return {
        "form": FORM,
        "adopted": adopted,
        "settings": read_settings(settings),
        "queries": queries,
        "operators": operators,
    }


def read_edits(
    document: Mapping[str, Any], running: RunningPlans, settings: Mapping[str, Any]
) -> Edits:
    """Read what a document says otherwise than the plan that runs.

    A document may leave out what stays as it is. What it says of operators beside what can be
    chosen has to be so.

    Raises:
        MillpondError: CQL-201 for a query or an operator that is not there, CQL-214 for a field.
    """
    if document.get("form") != FORM:
        raise MillpondError("CQL-214", f"the form of a plan is {FORM}", hint="Export it again.")
    _check_fields("a plan", document, _FIELDS)
    now = read_settings(settings)
    given_settings = _read_object("settings", document.get("settings", {}))
    _check_fields("the settings of a plan", given_settings, now)
    edits = Edits(
        tuple(_read_object("queries", document.get("queries", {}))),
        {name: value for name, value in given_settings.items() if value != now[name]},
    )
    for name in edits.names:
        given = _read_object(f'query "{name}"', document["queries"][name])
        _check_fields(f'the plan of "{name}"', given, _OF_QUERY)
        found = running.find(name)
        root = found.plan.root
        _check_same(f'query "{name}"', given, {"operator": name_operator(root.name, root.key)})
        strategy = given.get("strategy", found.plan.strategy)
        if strategy != found.plan.strategy:
            edits.strategies[name] = strategy
    operators = _read_object("operators", document.get("operators", {}))
    for id in operators:
        given = _read_object(f'operator "{id}"', operators[id])
        _check_fields(f'operator "{id}"', given, (*FIELDS, *_OF_OPERATOR))
        node = running.operators.get(id)
        if node is None:
            raise MillpondError(
                "CQL-201",
                f'no operator "{id}" in the plan that runs',
                detail="The plan is another one since the document was exported.",
                hint="Export it again, and edit that.",
            )
        described = _describe(node, running.readers[id])
        fixed = {name: described[name] for name in ("name", "detail", "inputs")}
        _check_same(f'operator "{id}"', given, fixed)
        chosen = {f: given[f] for f in FIELDS if f in given and given[f] != described.get(f)}
        if chosen:
            edits.operators[id] = chosen
    return edits


def _describe(node: Node, readers: Iterable[str]) -> dict[str, Any]:
    return {
        "name": node.name,
        "detail": node.detail,
        "pattern": node.pattern.name,
        "state": node.state,
        **dict.fromkeys(FIELDS),
        **describe_choices(node),
        "synopses": list_synopses(node),
        "inputs": [name_operator(below.name, below.key) for below in node.inputs],
        "queries": list(readers),
    }


def _read_object(what: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise MillpondError("CQL-214", f"{what} of a plan: an object is expected")
    return given


def _check_fields(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    names = list(known)
    for name in given:
        if name not in names:
            raise MillpondError(
                "CQL-214", f'no field "{name}" of {what}', hint=f"There are: {', '.join(names)}."
            )


def _check_same(what: str, given: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name, value in now.items():
        if name in given and given[name] != value:
            raise MillpondError(
                "CQL-214",
                f'the field "{name}" of {what} cannot be edited',
                detail=f"It is {value!r} now, which follows from the query and the choices.",
                hint="Export again if the plan has changed since. "
                f"What can be edited: strategy of a query; {', '.join(FIELDS)} of an operator;"
                f" {', '.join(list_settings())} of the settings.",
            )
