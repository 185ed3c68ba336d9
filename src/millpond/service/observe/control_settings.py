"""The settings of entities that can be changed while the pond runs; none changes an answer.

STREAM's control tables are written as well as read (CIDR 2003, section 6.1): a property that is set
takes effect in the running system. Here, an entity that works for one query has that query's
options; an entity that works for all queries has the engine's settings: how tuples are routed,
joins divided, and changes computed. Everything else is measured, or is part of a declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from millpond.catalog.objects import QueryDef
from millpond.catalog.option import Scope
from millpond.catalog.options import OPTIONS, list_options
from millpond.errors import MillpondError
from millpond.service.changes.settings import ChangeSettings
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.queries.options import option


def of_query(kind: str, query: QueryDef, changes: ChangeSettings) -> dict[str, Any]:
    """The options of a query that are settings of the entity that works for it.

    Args:
        kind: The entity's.
        query: The query.
        changes: What holds for its changes, by its options or the engine's settings.
    """
    shown = changes.format()
    return {
        name: shown.get(name) or option(query, name) for name in list_options(Scope.QUERY, kind)
    }


def of_engine(kind: str, joins: JoinSettings, changes: ChangeSettings) -> dict[str, Any]:
    """The engine's settings of an entity."""
    every = {**asdict(joins), **changes.format()}
    return {name: every[name] for name in list_options(Scope.ENGINE, kind)}


def of_system(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of ALTER SYSTEM that an entity has.

    Args:
        kind: The entity's.
        settings: Those that were set.
    """
    names = list_options(Scope.SYSTEM, kind)
    return {name: settings.get(name, OPTIONS[name].default) for name in names}


def check_setting_names(id: str, has: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise CQL-214 for a setting an entity does not have."""
    for name in given:
        if name not in has:
            raise MillpondError(
                "CQL-214",
                f'no setting "{name}" of entity "{id}"',
                detail=f"It has: {', '.join(has)}."
                if has
                else "Nothing of it can be set: its figures are measured, and what else it is "
                "follows from declarations.",
                hint=_describe_settings(),
            )


def _describe_settings() -> str:
    named = []
    for scope in (Scope.ENGINE, Scope.SYSTEM, Scope.QUERY):
        kinds = dict.fromkeys(k for name in list_options(scope) for k in OPTIONS[name].entities)
        for kind in kinds:
            if names := list_options(scope, kind):
                named.append(f"{', '.join(names)} of {kind}:…")
    return f"There are {'; '.join(dict.fromkeys(named))}."
