"""DROP: what depends on a definition, and dropping a definition with all of it in one epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef, SummaryDef
from millpond.catalog.sink_def import SinkDef
from millpond.planner.resolve.inner_streams import PREFIX
from millpond.service.components import Components

#: What statements create, and drop.
Droppable = StreamDef | RelationDef | QueryDef | SummaryDef | SinkDef

#: How many dependents a message names.
_MOST_NAMED = 20
_KINDS = {
    StreamDef: "stream",
    RelationDef: "relation",
    QueryDef: "query",
    SummaryDef: "summary",
    SinkDef: "sink",
}


@dataclass(frozen=True)
class Dependents:
    """What goes when a definition goes.

    Attributes:
        root: The definition.
        parts: What belongs to it: the stream of the records that a relation is fed by.
        found: What depends on it, directly or through something else; what is read stands before
            what reads it.
    """

    root: Droppable
    parts: list[Droppable] = field(default_factory=list)
    found: list[Droppable] = field(default_factory=list)

    @property
    def named(self) -> list[Droppable]:
        """The dependents that somebody has named: not the streams behind queries in FROM."""
        return [one for one in self.found if not one.name.startswith(PREFIX)]

    def describe(self) -> str:
        """List the dependents for people, by kind and name."""
        names = [f"{_KINDS[type(one)]} {one.name}" for one in self.named]
        more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
        return ", ".join(names[:_MOST_NAMED]) + more


def find_dependents(components: Components, root: Droppable) -> Dependents:
    """Find what depends on a definition.

    The caller holds the locks of the definitions and of the registrar.
    """
    dependents = Dependents(root)
    if isinstance(root, RelationDef) and (records := components.sources.records_of(root)):
        dependents.parts.append(records)
    waiting = [root, *dependents.parts]
    seen = {one.id for one in waiting}
    while waiting:
        for one in _find_direct(components, waiting.pop(0)):
            if one.id not in seen:
                seen.add(one.id)
                dependents.found.append(one)
                waiting.append(one)
    return dependents


def _find_direct(components: Components, read: Droppable) -> Iterator[Droppable]:
    version = components.log.version
    names: list[str] = []
    match read:
        case StreamDef() | RelationDef():
            names = components.registrar.users_of(read)
        case SummaryDef():
            names = components.summaries.users_of(read)
        case QueryDef():
            yield from (sink for sink in version.sinks.values() if sink.query_id == read.id)
    yield from (found for name in names if (found := version.find(name)) is not None)
    if isinstance(read, StreamDef):
        yield from (s for s in version.summaries.values() if s.stream_id == read.id)


def drop_with(components: Components, dependents: Dependents) -> None:
    """Drop a definition and all that depends on it in one epoch: all of it, or nothing.

    The caller holds the locks of the definitions and of the registrar.
    """
    every = [dependents.root, *dependents.parts, *dependents.found]
    tables = [one for one in every if isinstance(one, StreamDef | RelationDef)]
    summaries = [one for one in every if isinstance(one, SummaryDef)]
    ending = components.sinks.ending([one for one in every if isinstance(one, SinkDef)])
    with components.replicas.dropping(tables), ending as sinks:
        for stream in tables:
            if isinstance(stream, StreamDef) and stream.is_read_from_outside:
                components.runtime.close_source(stream.id)
        components.registrar.unregister_many(
            [one for one in every if isinstance(one, QueryDef)], tables, summaries, sinks
        )
    for summary in summaries:
        components.invoker.summaries.forget(summary)
    components.events.definitions_changed()
