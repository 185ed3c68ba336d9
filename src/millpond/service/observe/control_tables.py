"""The control tables: the entities inside a pond and their figures (STREAM, CIDR 2003, 6.1).

STREAM lists its operators, queues and synopses as relations to be looked at while it runs. An
entity is one of them, with an id made of its kind and its name, and its figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from millpond.catalog.objects import SUFFIXES, SYSTEM_ENTITIES, StreamDef
from millpond.errors import MillpondError
from millpond.model.time import format_instant
from millpond.planner.resolve.names import did_you_mean
from millpond.service.changes.advance_jobs import measure_sides
from millpond.service.changes.progress import RunningStep
from millpond.service.components import Components
from millpond.service.definitions.summaries import describe_summary
from millpond.service.observe.control_settings import (
    check_setting_names,
    of_engine,
    of_query,
    of_system,
)
from millpond.service.observe.join_entities import list_join_entities
from millpond.service.observe.operator_entities import list_operators, set_operator
from millpond.service.queries.options import check_settings
from millpond.state.version import DATA, WAITING, Version

#: What an entity works for that works for all.
_ALL = "streams and queries"


@dataclass(frozen=True)
class Entity:
    """An operator, a queue or a synopsis.

    Attributes:
        id: Its kind and name; stays the same while it lives.
        kind: 'operator', 'queue' or 'synopsis'.
        of: What it works for: a stream, a query, a relation.
        figures: What is measured of it.
        settings: What can be set of it, with the current values.
    """

    id: str
    kind: str
    of: str
    figures: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Entities:
    """The entities of a pond, as of now."""

    def __init__(self, components: Components) -> None:
        self._components = components

    def every(self) -> list[Entity]:
        """All of them: queues, then operators, then synopses, each by name."""
        version = self._components.log.version
        found = [
            *self._queues(version),
            *self._engine(version),
            *self._filters(version),
            *self._functions(),
            *self._derivations(),
            *self._operators(version),
            *self._joins(version),
            *self._segments(version),
            *self._stems(version),
            *self._totals(version),
            *self._relations(version),
            *self._sinks(),
            *self._answers(version),
            *self._summaries(),
        ]
        order = ("queue", "operator", "synopsis")
        return sorted(found, key=lambda e: (order.index(e.kind), e.id))

    def one(self, id: str) -> Entity:
        """The entity of an id. Raises CQL-201."""
        every = {entity.id: entity for entity in self.every()}
        if id in every:
            return every[id]
        raise MillpondError(
            "CQL-201",
            f'no entity "{id}"',
            hint=did_you_mean(id, every) or "SHOW ENTITIES lists them.",
        )

    def set(self, id: str, settings: Mapping[str, Any]) -> Entity:
        """Set some of an entity's settings, from now on.

        Those of a query are its options and stay, and those of the system stay; the engine's hold
        until the pond is closed.

        Raises:
            MillpondError: CQL-201 for the id, CQL-214 for a setting or its value.
        """
        entity = self.one(id)
        check_setting_names(id, entity.settings, settings)
        if not settings:
            return entity
        components, kind = self._components, id.partition(":")[0]
        if kind in ("queue", "scheduler", "memory", "observer"):
            components.alter_system(settings)
            return replace(entity, settings=of_system(kind, components.log.version.settings))
        if kind == "operator":
            now = entity.settings | dict(settings)
            becomes = set_operator(components, id, settings)
            figures = entity.figures if becomes == id else dict.fromkeys(entity.figures, 0)
            return replace(entity, id=becomes, figures=figures, settings=now)
        if entity.of != _ALL:
            altered = components.registrar.alter(components.registrar.find(entity.of), settings)
            now = of_query(kind, altered, components.derivations.settings_of(altered))
            return replace(entity, settings=now)
        if kind == "changes":
            components.set_change_settings(
                components.derivations.settings.with_options(check_settings(settings))
            )
        else:
            components.set_join_settings(
                replace(components.joins.settings, **check_settings(settings))
            )
        now = of_engine(kind, components.joins.settings, components.derivations.settings)
        return replace(entity, settings=now)

    def _engine(self, version: Version) -> Iterator[Entity]:
        """The entities that work for all streams and queries together."""
        settings, joins = self._components.joins.settings, version.joins
        changes = self._components.derivations.settings
        yield Entity("eddies:all", "operator", _ALL, {}, of_engine("eddies", settings, changes))
        figures = {
            "joins": len(joins.cores),
            "pairs": sum(file.pairs for core in joins.cores for file in joins.pairs(core)),
        }
        yield Entity("joins:all", "operator", _ALL, figures, of_engine("joins", settings, changes))
        followed = sum(stream.derived is not None for stream in version.streams.values())
        figures = {"derivations": followed}
        yield Entity(
            "changes:all", "operator", _ALL, figures, of_engine("changes", settings, changes)
        )
        running = self._components.advancer.accounts.list_operators(version)
        states = [operator.state for operator in running]
        figures = {
            "bytes": sum(state.memory for state in states),
            "bytes in files": sum(state.files for state in states),
        }
        settings_of = of_system("memory", version.settings)
        yield Entity("memory:all", "synopsis", _ALL, figures, settings_of)
        turns = of_system("scheduler", version.settings)
        yield Entity("scheduler:all", "operator", _ALL, {}, turns)
        looks = {"rows": sum(s.rows for s in version.segments(SYSTEM_ENTITIES.id))}
        looking = of_system("observer", version.settings)
        yield Entity("observer:all", "operator", _ALL, looks, looking)

    def _queues(self, version: Version) -> Iterator[Entity]:
        waiting = len(self._components.intake.list_waiting())
        figures = {"waiting pushes": waiting, "bytes": self._components.door.waiting_bytes}
        settings = of_system("queue", self._components.log.version.settings)
        yield Entity("queue:inbox", "queue", "pushed streams", figures, settings)
        # Queues between operators are empty between steps: these are peaks of the last one.
        for id, waited in self._components.advancer.accounts.list_queues(version).items():
            stream = version.streams.get(id)
            if stream is not None and not stream.is_shared_log:
                name = version.name_of(stream)
                peaks: dict[str, Any] = {
                    "slices": waited.slices,
                    "count": waited.most_slices,
                    "bytes": waited.most_bytes,
                    "oldest seconds": round(waited.longest, 6),
                }
                yield Entity(f"queues:{name}", "queue", name, peaks)

    def _filters(self, version: Version) -> Iterator[Entity]:
        """Grouped filters, and the evaluators of other factors."""
        for stream in version.named_streams():
            spent = self._components.stems.spent(stream.id)
            for name, (survive, ns) in self._components.stems.filters(stream.id).items():
                figures = {
                    "survive": round(survive, 4),
                    "ns per element": round(ns, 1),
                    "seconds": round(spent.get(name, 0.0), 6),
                }
                id = f"filter:{stream.name}.{name}" if name else f"others:{stream.name}"
                yield Entity(id, "operator", stream.name, figures)

    def _functions(self) -> Iterator[Entity]:
        for function in self._components.function_registry.describe():
            figures = {key: function[key] for key in ("calls", "rows", "seconds", "cost")}
            yield Entity(f"function:{function['name']}", "operator", "queries", figures)

    def _derivations(self) -> Iterator[Entity]:
        advancer = self._components.advancer
        lag, running = advancer.lag(), advancer.running
        with self._components.log.pin() as version:
            yield from self._list_derivations(version, lag, running)

    def _list_derivations(
        self, version: Version, lag: Mapping[int, float], running: Mapping[int, RunningStep]
    ) -> Iterator[Entity]:
        for stream in version.streams.values():
            if stream.derived is None or stream.is_shared_log:
                continue
            query, name = version.query_of(stream), version.name_of(stream)
            figures = {
                "elements": version.clock(stream.id).next_seq,
                "upto": format_instant(self._components.advancer.complete_upto(version, stream)),
                "lag seconds": lag.get(stream.id, 0.0),
                "elements behind": self._components.advancer.count_behind(version, stream),
            }
            step = running.get(version.maker(stream).id)
            if step is not None:
                figures |= step.describe()
            waiting = version.segments(stream.id, WAITING)
            if waiting:  # the first row is of the query itself
                figures["waiting regions"] = sum(s.rows - 1 for s in waiting)
                figures["waiting bytes"] = sum(map(version.bytes_of, waiting))
            derivation = self._components.derivations.find_of(version, stream)
            if derivation is not None and derivation.reduction:
                figures["reduced"] = str(derivation.reduction)
            if derivation is not None and derivation.look is not None:
                elements, size = measure_sides(version, derivation)
                figures |= {"elements reached": elements, "index bytes": size}
            changes = self._components.derivations.settings_of(query)
            settings = of_query("derivation", query, changes) if query is not None else {}
            yield Entity(f"derivation:{name}", "operator", name, figures, settings)

    def _operators(self, version: Version) -> Iterator[Entity]:
        for id, of, figures, settings in list_operators(self._components, version):
            yield Entity(id, "operator", of, figures, settings)

    def _segments(self, version: Version) -> Iterator[Entity]:
        """Data SteMs: a stream's kept elements."""
        for stream in version.named_streams():
            for kind, name in _named_kinds(stream):
                held = version.segments(stream.id, kind)
                if kind != DATA and not held:
                    continue
                figures = {
                    "segments": len(held),
                    "rows": sum(s.rows for s in held),
                    "bytes": sum(s.bytes for s in held),
                    "levels": len({s.level for s in held}),
                }
                yield Entity(f"segments:{name}", "synopsis", stream.name, figures)

    def _stems(self, version: Version) -> Iterator[Entity]:
        """Query SteMs: the predicates a stream's elements meet, and what matched."""
        for stream in version.named_streams():
            slots = version.slot_count(stream.id)
            if slots:
                refs = [m for s in version.segments(stream.id) for m in version.matches(s.id)]
                figures = {
                    "predicates": slots,
                    "match files": len(refs),
                    "match bytes": sum(m.bytes for m in refs),
                }
                yield Entity(f"query stem:{stream.name}", "synopsis", stream.name, figures)

    def _joins(self, version: Version) -> Iterator[Entity]:
        """Shared joins: what they store, their SteMs, and their eddies."""
        for id, kind, of, figures in list_join_entities(self._components.joins, version):
            yield Entity(id, kind, of, figures)

    def _totals(self, version: Version) -> Iterator[Entity]:
        """Synopses of segments: the totals and sketches that registered queries ask for."""
        kept = self._components.invoker.totals
        for stream in version.named_streams():
            if wanted := kept.list_wanted(stream.id):
                figures = {"wanted": len(wanted), **kept.measure(version, stream, wanted)}
                figures["bytes"] = figures["bytes on disk"] + figures["bytes in memory"]
                yield Entity(f"totals:{stream.name}", "synopsis", stream.name, figures)

    def _relations(self, version: Version) -> Iterator[Entity]:
        for relation in version.relations.values():
            deltas = version.relation_deltas(relation.id)
            figures = {
                "deltas": len(deltas),
                "rows": sum(d.rows for d in deltas),
                "bytes": sum(d.bytes for d in deltas),
            }
            yield Entity(f"relation:{relation.name}", "synopsis", relation.name, figures)

    def _sinks(self) -> Iterator[Entity]:
        for sink in self._components.sinks.describe():
            names = ("state", "deliveries", "changes", "failures")
            figures = {name: sink[name] for name in names}
            yield Entity(f"sink:{sink['name']}", "operator", sink["of"], figures)

    def _summaries(self) -> Iterator[Entity]:
        states = self._components.invoker.summaries
        with self._components.log.pin() as version:
            for summary in version.summaries.values():
                figures = describe_summary(version, states, summary)
                yield Entity(f"summary:{summary.name}", "synopsis", summary.stream, figures)

    def _answers(self, version: Version) -> Iterator[Entity]:
        kept = self._components.invoker.kept_answers
        for id in sorted(kept.ids()):
            query = version.queries.get(id)
            if query is not None:
                figures = kept.of(id).figures()
                changes = self._components.derivations.settings_of(query)
                settings = of_query("answer", query, changes)
                yield Entity(f"answer:{query.name}", "synopsis", query.name, figures, settings)


def _named_kinds(stream: StreamDef) -> list[tuple[str, str]]:
    """A stream's kinds of segments, each with the name it has as a stream."""
    return [(DATA, stream.name), *((k, f"{stream.name}{end}") for k, end in SUFFIXES.items())]
