"""The settings of entities that can be changed while the pond runs; none changes an answer.

STREAM's control tables are written as well as read (CIDR 2003, section 6.1): a property that is set
takes effect in the running system. Here, an entity that works for one query has that query's
options; an entity that works for all queries has the engine's settings: how tuples are routed,
joins divided, and changes computed. Everything else is measured, or is part of a declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from millpond.catalog.objects import QueryDef
from millpond.engine.eddy.routing import POLICIES
from millpond.errors import MillpondError
from millpond.service.changes import settings as change_settings
from millpond.service.changes.settings import ChangeSettings
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.queries.options import option

#: Which options of its query an entity has, by the first word of its id.
_OF_QUERY = {
    "derivation": (*change_settings.NAMES, "keep_changes"),
    "answer": ("materialize", "weight", "max_rows", "max_seconds"),
}
#: Which settings of the engine.
_OF_ENGINE = {
    "eddies": ("routing",),
    "joins": ("shards", "max_pairs", "max_cores"),
    "changes": change_settings.NAMES,
}


def of_query(kind: str, query: QueryDef, changes: ChangeSettings) -> dict[str, Any]:
    """The options of a query that are settings of the entity that works for it.

    Args:
        kind: The entity's.
        query: The query.
        changes: What holds for its changes, by its options or the engine's settings.
    """
    shown = changes.format()
    return {name: shown.get(name) or option(query, name) for name in _OF_QUERY[kind]}


def of_engine(kind: str, joins: JoinSettings, changes: ChangeSettings) -> dict[str, Any]:
    """The engine's settings of an entity."""
    every = {**asdict(joins), **changes.format()}
    return {name: every[name] for name in _OF_ENGINE[kind]}


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


def with_settings(settings: JoinSettings, given: Mapping[str, Any]) -> JoinSettings:
    """The engine's settings with others.

    Raises:
        MillpondError: CQL-214, a value it cannot have.

    >>> with_settings(JoinSettings(), {"shards": 4}).shards
    4
    """
    for name, value in given.items():
        if name == "routing":
            if value not in POLICIES:
                raise MillpondError(
                    "CQL-214",
                    f'no routing policy "{value}"',
                    detail=f"There are: {', '.join(POLICIES)}.",
                    hint="ticket adapts to what is measured.",
                )
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise MillpondError(
                "CQL-214",
                f'the setting "{name}" cannot be {value!r}',
                detail="It takes a whole number > 0.",
                hint="Give one.",
            )
    return replace(settings, **given)


def _describe_settings() -> str:
    every = {**_OF_ENGINE, **_OF_QUERY}
    named = (f"{', '.join(names)} of {kind}:…" for kind, names in every.items())
    return f"There are {'; '.join(named)}."
