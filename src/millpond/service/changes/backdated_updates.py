"""Backdated updates: updates of non-retroactive relations that come after delivered changes."""

from __future__ import annotations

from millpond.catalog.objects import RelationDef
from millpond.errors import MillpondError
from millpond.model.time import format_instant
from millpond.service.changes.derivations import Derivations
from millpond.state.version import Version


def check_instant(
    derivations: Derivations, version: Version, relation: RelationDef, at: int
) -> None:
    """Refuse an update at an instant whose joined elements have been delivered.

    An NRR join looks up the relation's rows as elements come, and keeps nothing of them. So
    followers of the query could not be told that the delivered rows would be different now.

    Raises:
        MillpondError: POND-413.
    """
    for derived in derivations.list_streams(version):
        derivation = derivations.find_of(version, derived)
        if derivation is None:
            continue  # it stands still, and says why elsewhere
        if relation.id not in derivation.relations:
            continue
        delivered = version.clock(derived.id).position
        newest = [version.clock(id).high for id in derivation.streams]
        if at > delivered or not any(high is not None and high >= at for high in newest):
            continue
        raise MillpondError(
            "POND-413",
            f'what "{version.name_of(derived)}" attached of relation "{relation.name}"'
            f" at {format_instant(at)} has been delivered",
            detail=f"The relation is non-retroactive, and changes up to {format_instant(delivered)}"
            " have been given. Nothing was changed.",
            hint=f"Date the update later, AT TIMESTAMP '{format_instant(delivered + 1)}' or after.",
        )
