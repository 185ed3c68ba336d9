"""Shared joins as entities: what each stores, the SteMs it probes, and its eddy (CACQ, PSoup)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.service.maintenance.join_maintenance import JoinMaintenance
from millpond.state.join_state import JoinCore
from millpond.state.version import Version

#: An entity's id, kind, what it works for, and figures.
Described = tuple[str, str, str, dict[str, Any]]


def name_join(joins: JoinMaintenance, core: JoinCore) -> str:
    """The name of a stored join and of its eddy: its streams, and what tells it from others."""
    return f"{'-'.join(joins.plan(core).streams)}.{core.id}"


def name_stems(
    joins: JoinMaintenance, version: Version, core: JoinCore
) -> dict[str, tuple[int, str]]:
    """The ids of the SteMs that a join may probe, each with its stream and its key."""
    found = {}
    for leaf, key in joins.keys(core):
        stream = version.streams.get(core.stream_ids[leaf])
        if stream is not None:
            found[f"stem:{stream.name}.{key.text}"] = (stream.id, key.text)
    return found


def list_join_entities(joins: JoinMaintenance, version: Version) -> Iterator[Described]:
    """List the stored joins, their eddies, and their SteMs, of which several joins share one."""
    stems: dict[tuple[int, str], int] = {}
    for core in version.joins.cores.values():
        name, of = name_join(joins, core), ", ".join(joins.plan(core).streams)
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
