"""Shared joins as entities: what each stores, the SteMs it probes, and its eddy (CACQ, PSoup)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.service.maintenance.join_maintenance import JoinMaintenance
from millpond.state.version import Version

#: An entity's id, kind, what it works for, and figures.
Described = tuple[str, str, str, dict[str, Any]]


def list_join_entities(joins: JoinMaintenance, version: Version) -> Iterator[Described]:
    """List the stored joins, their eddies, and their SteMs, of which several joins share one."""
    stems: dict[tuple[int, str], int] = {}
    for core in version.joins.cores.values():
        streams = joins.plan(core).streams
        name, of = f"{'-'.join(streams)}.{core.id}", ", ".join(streams)
        files = version.joins.pairs(core.id)
        stored = {
            "rows": sum(file.pairs for file in files),
            "bytes": sum(file.bytes for file in files),
            "files": len(files),
            "queries": len(version.joins.users(core.id)),
        }
        yield f"join:{name}", "synopsis", of, stored
        ledger = joins.ledgers.get(core.id)
        figures: dict[str, Any] = {"modules": 0}
        if ledger is not None:
            visited = round(ledger.visited_per_tuple, 2)
            figures = {"modules": len(ledger.accounts), "modules visited per tuple": visited}
            for module, account in ledger.accounts.items():
                figures[f"passed by {module}"] = round(account.passed, 4)
        yield f"eddy:{name}", "operator", of, figures
        for leaf, key in joins.keys(core):
            place = core.stream_ids[leaf], key.text
            stems[place] = stems.get(place, 0) + 1
    for (id, key_text), used in stems.items():
        stream = version.streams.get(id)
        if stream is None:
            continue
        segments = version.segments(id)
        runs = [r for s in segments for r in version.joins.runs(s.id) if r.key == key_text]
        figures = {
            "rows": sum(run.rows for run in runs),
            "bytes": sum(run.bytes for run in runs),
            "segments arranged": len({run.segment_id for run in runs}),
            "joins": used,
        }
        yield f"stem:{stream.name}.{key_text}", "synopsis", stream.name, figures
