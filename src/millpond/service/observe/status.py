"""The status of a pond: what runs and how it is, for people and probes."""

from __future__ import annotations

import time as clock_time
from typing import Any

from millpond.errors import MillpondError
from millpond.model.time import format_instant
from millpond.service.components import Components
from millpond.service.ingest.floors import ClockReading
from millpond.state.version import Version

#: By how much a clock may go back before it is a problem, in microseconds.
_CLOCK_SLACK = 1_000_000


def describe_status(components: Components) -> dict[str, Any]:
    """Give what `/v1/status` shows: the epoch, counts, streams, problems, the runtime."""
    reading = components.floors.capture()
    version = components.log.version
    trouble = [t.to_json()["error"] for t in (components.trouble,) if t is not None]
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
        "uptime_s": clock_time.monotonic() - components.opened,
        "problems": [
            *trouble,
            *damage,
            *_check_disk(components),
            *_list_stopped(components),
            *_list_dead_sinks(components),
            *_list_still_replicas(components),
            *_check_clock(version, reading),
        ],
        "sinks": components.sinks.describe(),
        "set_aside": components.describe_set_aside(),
        "runtime": components.runtime.describe(),
    }


def _check_disk(components: Components) -> list[dict[str, Any]]:
    """Whether the store's disk is nearly full."""
    room = components.disk_room
    return [room.explain().to_json()["error"]] if room is not None and room.is_scarce else []


def _check_clock(version: Version, reading: ClockReading) -> list[dict[str, Any]]:
    """Whether the clock has gone back behind the last arrival, or since the pond was opened."""
    shown = reading.now - reading.behind
    arrivals = (state.clock.arrived_at for state in version.states.values())
    last = max((at for at in arrivals if at is not None), default=reading.now)
    if reading.behind >= _CLOCK_SLACK:
        return [
            _clock_error(
                f"the clock has gone back by {reading.behind / 1e6:,.0f} s",
                f"It says {format_instant(shown)}; it has said {format_instant(reading.now)}.",
                "Set the clock right. Until it has caught up, time stands still for streams on "
                "system time: what arrives has the last instant, and nothing leaves a window.",
            )
        ]
    if last - shown < _CLOCK_SLACK:
        return []
    return [
        _clock_error(
            f"the clock is {(last - shown) / 1e6:,.0f} s behind the last arrival",
            f"It says {format_instant(shown)}; rows arrived at {format_instant(last)}.",
            "Set the clock right. Until it has caught up, answers of streams on system time are "
            "as of the past instant that the clock says.",
        )
    ]


def _clock_error(primary: str, detail: str, hint: str) -> dict[str, Any]:
    error: dict[str, Any] = MillpondError("STORE-605", primary, detail=detail, hint=hint).to_json()
    return dict(error["error"])


def _list_dead_sinks(components: Components) -> list[dict[str, Any]]:
    """Which sinks deliver no more, and why."""
    return [
        MillpondError(
            "POND-418",
            f'sink "{sink["name"]}" is dead',
            detail=f"{sink['dead']}.",
            hint=f"ALTER SINK {sink['name']} SET (active = true) tries again where it was.",
        ).to_json()["error"]
        for sink in components.sinks.describe()
        if sink["dead"] is not None
    ]


def _list_still_replicas(components: Components) -> list[dict[str, Any]]:
    """Which relations do not follow their tables, and why."""
    return [
        trouble.to_json()["error"]
        for relation in components.log.version.relations.values()
        if (trouble := components.replicas.trouble(relation)) is not None
    ]


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
