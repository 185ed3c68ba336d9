"""EXPLAIN with what only a running pond knows: slots and who shares them, segments, changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.catalog.objects import QueryDef
from millpond.model.time import format_instant
from millpond.planner.bound import BoundQuery
from millpond.planner.dataflow import plan_changes
from millpond.planner.explain import explain
from millpond.service.maintenance import covered_upto
from millpond.state.version import Version

if TYPE_CHECKING:
    from millpond.service.pond import Pond

#: The levels that show what is computed, and not only what is asked.
_COMPUTED = ("rewritten", "shared", "runtime")


class Explanations:
    """Explains the queries of a pond."""

    def __init__(self, pond: Pond) -> None:
        self._pond = pond

    def of_text(self, text: str, level: str) -> str:
        """The plan a query would have."""
        bound = self._pond.registrar.bind(text)
        if bound.to_stream is None or level not in _COMPUTED:
            return explain(bound, level)
        return self._changes(bound)

    def of_query(self, definition: QueryDef, level: str) -> str:
        """The plan of a standing query."""
        pond = self._pond
        version = pond.log.version
        bound = pond.registrar.bind(definition.text)
        facts: dict[str, Any] = {"query": definition.name}
        if bound.functions and level == "runtime":
            facts["functions"] = pond.user_functions.costs(bound.functions)
        if level not in _COMPUTED:
            return explain(bound, level)
        changes = self._delivered(version, definition)
        if changes is not None:
            facts["changes"] = changes
        if bound.to_stream is not None:
            lines = [f"{name}: {value}" for name, value in facts.items()]
            return "\n".join([*lines, self._changes(bound)])
        facts["leaves"] = self._leaves(version, definition, bound)
        text = explain(bound, level, **facts)
        return text if changes is None else f"{text}\n{self._changes(bound)}"

    def _changes(self, bound: BoundQuery) -> str:
        """What computes a query's changes as its streams' heartbeats go on."""
        plan = plan_changes(bound, self._pond.registrar.names)
        head = bound.to_stream or "changes"
        lines = [f"{head} (incremental, at every heartbeat)"]
        if plan.fallback:
            lines.append(f"  answered anew at every change: {plan.fallback}")
        return "\n".join([*lines, *(f"  {line}" for line in plan.explained.split("\n"))])

    def _delivered(self, version: Version, definition: QueryDef) -> str | None:
        log = version.change_log(definition.id)
        if log is None:
            return None
        upto = format_instant(self._pond.advancer.reached(version, log))
        return f"{version.clock(log.id).next_seq} up to {upto}"

    def _leaves(
        self, version: Version, definition: QueryDef, bound: BoundQuery
    ) -> list[dict[str, Any]]:
        stems = self._pond.stems
        leaves = []
        for leaf, ref in zip(bound.streams, version.leaves(definition.id), strict=True):
            segments = version.segments(ref.stream_id)
            matched = 0
            if ref.slot is not None:
                matched = sum(covered_upto(version, s.id) > ref.slot for s in segments)
            leaves.append(
                {
                    "stream": leaf.stream,
                    "slot": ref.slot,
                    "shared by": stems.users(ref.stream_id, ref.slot)
                    if ref.slot is not None
                    else 0,
                    "segments": len(segments),
                    "matched segments": matched,
                    "filters": {
                        name: f"{share:.1%} survive"
                        for name, (share, _) in stems.filters(ref.stream_id).items()
                    },
                }
            )
        return leaves
