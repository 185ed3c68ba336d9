"""What derivations read, and what streams and relations have to keep for them."""

from __future__ import annotations

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.model.time import BEGINNING, END
from millpond.service.changes.derivations import Derivations
from millpond.service.queries.dependencies import may_read
from millpond.service.queries.prepared import stream_of
from millpond.state.version import Version


def find_sources(derivations: Derivations, version: Version, stream: StreamDef) -> list[StreamDef]:
    """Find the streams a derived stream is derived from, however far below; itself of any other."""
    if stream.derived is None:
        return [stream]
    found: dict[tuple[int, str], StreamDef] = {}
    waiting, seen = [stream], {stream.id}
    while waiting:
        current = waiting.pop()
        if current.derived is None:
            found[current.id, current.kind] = current
            continue
        for below in list_read(derivations, version, current):
            if below.derived is None or below.id not in seen:
                waiting.append(below)
                seen.add(below.id)
    return list(found.values())


def list_read(derivations: Derivations, version: Version, stream: StreamDef) -> list[StreamDef]:
    """List the streams a derivation reads; of one that cannot be planned, those it may read."""
    derivation = derivations.find_of(version, stream)
    if derivation is None:
        return [s for s in version.named_streams() if _may_depend_on(version, stream, s)]
    return [stream_of(version, leaf) for leaf in derivation.bound.streams]


def find_reach_below(
    derivations: Derivations, version: Version, stream: StreamDef, at: int
) -> list[tuple[StreamDef, int | None]]:
    """Find the streams a derivation reads, and how far back its changes after `at` reach.

    Returns:
        Each stream, with the least timestamp of an element that these changes depend on; None:
        they depend on every element.
    """
    derivation = derivations.find_of(version, stream)
    if derivation is None:
        return [(below, None) for below in list_read(derivations, version, stream)]
    found = derivation.reach(at)
    return [
        (below, since)
        for name, since in found.items()
        if isinstance(below := version.find(name), StreamDef)
    ]


def find_needed_since(derivations: Derivations, version: Version, stream: StreamDef) -> int:
    """Find the timestamp from which derivations still need a stream; END if none does."""
    needed: int = END
    for derived in derivations.list_streams(version):
        derivation = derivations.find_of(version, derived)
        if derivation is None:  # nobody knows what it needs, and it may be planned again
            needed = BEGINNING if _may_depend_on(version, derived, stream) else needed
            continue
        if stream.id not in derivation.streams:
            continue
        position = version.clock(derived.id).position
        reach = derivation.reach(position).get(stream.name)
        needed = min(needed, BEGINNING if reach is None else reach)
    return needed


def find_oldest_epoch_needed(derivations: Derivations, version: Version, relation_id: int) -> int:
    """Find the oldest epoch as of which some derivation still has to read a relation."""
    epochs = [
        version.clock(derived.id).relations_epoch
        for derived in derivations.list_streams(version)
        if _needs_relation(derivations, version, derived, relation_id)
    ]
    return min(epochs, default=version.epoch)


def _needs_relation(
    derivations: Derivations, version: Version, derived: StreamDef, relation_id: int
) -> bool:
    derivation = derivations.find_of(version, derived)
    if derivation is not None:
        return relation_id in derivation.relations
    relation = version.relations.get(relation_id)
    return relation is not None and _may_depend_on(version, derived, relation)


def _may_depend_on(version: Version, derived: StreamDef, other: StreamDef | RelationDef) -> bool:
    """Whether a derivation that cannot be planned may read a stream or a relation."""
    assert derived.derived is not None
    if derived.derived.query_id is not None and isinstance(other, StreamDef):
        return any(x.stream_id == other.id for x in version.leaves(derived.derived.query_id))
    return may_read(version, derived.derived.text, other.name)
