"""The status of a pond: what runs and how it is, for people and probes."""

from __future__ import annotations

from typing import Any

from millpond.errors import MillpondError
from millpond.service.components import Components


def describe_status(components: Components) -> dict[str, Any]:
    """Give what `/v1/status` shows: the epoch, counts, streams, problems, the runtime."""
    reading = components.floors.capture()
    version = components.log.version
    damage = [problem.to_json()["error"] for problem in components.problems()]
    return {
        "epoch": version.epoch,
        "queries": len(version.queries),
        "followed": len(version.streams) - len(version.named_streams()),
        "relations": len(version.relations),
        "streams": [
            components.sources.describe(version, stream, reading)
            for stream in version.named_streams()
        ],
        "uptime_s": (reading.now - components.started_at) / 1e6,
        "problems": [*damage, *_list_stopped(components)],
        "runtime": components.runtime.describe(),
    }


def _list_stopped(components: Components) -> list[dict[str, Any]]:
    """Which streams, and which queries' changes, stand still, and why."""
    version = components.log.version
    named = [(f'stream "{s.name}" stands still', s) for s in version.named_streams()]
    followed = [
        (f'changes of query "{query.name}" stand still', log)
        for query in version.queries.values()
        if (log := version.change_log(query.id)) is not None
    ]
    found = []
    for what, stream in (*named, *followed):
        reason = components.sources.trouble(stream)
        if isinstance(reason, MillpondError):
            error = reason.to_json()["error"]
            found.append({**error, "message": f"{what}: {error['message']}"})
    return found
