"""The status of a pond: what runs and how it is, for people and probes."""

from __future__ import annotations

import time as clock_time
from typing import Any

from millpond.errors import MillpondError
from millpond.model.time import format_instant
from millpond.service.components import Components
from millpond.service.ingest.floors import ClockReading
from millpond.service.observe.warnings import list_warnings
from millpond.state.version import Version

#: What to do about problems of a kind that do not say it themselves.
_HINT_TROUBLE = "The server's log has more. If it does not go on by itself, start the server again."
_HINT_DAMAGE = (
    "Queries that do not need the file go on. `millpond check` says what is damaged, `millpond "
    "repair` goes on without it, and a backup has it still."
)
_HINT_REPLICA = (
    "See that the database answers, and that its publication and slot are there; it goes on by "
    "itself."
)
_HINT_STOPPED = (
    "It is tried again by itself, and goes on where it was once the cause is gone: correct what is "
    "read or computed, or drop the query or stream (DROP … CASCADE drops what reads it)."
)

#: By how much a clock may go back before it is a problem, in microseconds.
_CLOCK_SLACK = 1_000_000


def describe_status(components: Components) -> dict[str, Any]:
    """Give what `/v1/status` shows: the epoch, counts, streams, what is wrong, the runtime."""
    reading = components.floors.capture()
    version = components.log.version
    trouble = [_tell(t, _HINT_TROUBLE) for t in (components.trouble,) if t is not None]
    damage = [_tell(problem, _HINT_DAMAGE) for problem in components.problems()]
    return {
        "epoch": version.epoch,
        "queries": len(version.queries),
        "followed": sum(s.is_change_log and not s.is_shared_log for s in version.streams.values()),
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
            *([] if trouble else _list_failed_rounds(components)),
            *_list_dead_sinks(components),
            *_list_still_replicas(components),
            *_check_clock(version, reading),
        ],
        "warnings": list_warnings(components),
        "sinks": components.sinks.describe(),
        "set_aside": components.describe_set_aside(),
        "runtime": components.runtime.describe(),
    }


def _check_disk(components: Components) -> list[dict[str, Any]]:
    """Whether the store's disk is nearly full."""
    room = components.disk_room
    return [_tell(room.explain(), "")] if room is not None and room.is_scarce else []


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
    return _tell(MillpondError("STORE-605", primary, detail=detail), hint)


def _list_dead_sinks(components: Components) -> list[dict[str, Any]]:
    """Which sinks deliver no more, and why."""
    return [
        _tell(
            MillpondError("POND-418", f'sink "{sink["name"]}" is dead', detail=f"{sink['dead']}."),
            f"ALTER SINK {sink['name']} SET (active = true) tries again where it was.",
        )
        for sink in components.sinks.describe()
        if sink["dead"] is not None
    ]


def _list_still_replicas(components: Components) -> list[dict[str, Any]]:
    """Which relations do not follow their tables, and why."""
    found = []
    for relation in components.log.version.relations.values():
        if (trouble := components.replicas.trouble(relation)) is not None:
            error = _tell(trouble, _HINT_REPLICA)
            what = f'relation "{relation.name}" stands still'
            found.append({**error, "message": f"{what}: {error['message']}"})
    return found


def _list_stopped(components: Components) -> list[dict[str, Any]]:
    """Which streams, and which queries' changes, stand still, and why."""
    version = components.log.version
    named = [(f'stream "{s.name}" stands still', s) for s in version.named_streams()]
    followed = [
        (f'changes of query "{query.name}" stand still', log)
        for log in version.streams.values()  # and not all queries: most may not be followed
        if log.is_change_log and (query := version.query_of(log)) is not None
    ]
    found = []
    for what, stream in (*named, *followed):
        reason = components.sources.trouble(stream)
        if isinstance(reason, MillpondError):
            error = _tell(reason, _HINT_STOPPED)
            found.append({**error, "message": f"{what}: {error['message']}"})
        elif reason is not None:
            rest = {"detail": str(reason), "hint": _HINT_STOPPED, "place": None}
            found.append({"code": "stopped", "message": what, **rest})
    return found


def _list_failed_rounds(components: Components) -> list[dict[str, Any]]:
    """Why no changes are made at all, if they are not."""
    failure = components.advancer.failure
    if failure is None:
        return []
    error = _tell(failure, _HINT_STOPPED)
    return [{**error, "message": f"followed queries stand still: {error['message']}"}]


def _tell(problem: MillpondError, hint: str) -> dict[str, Any]:
    """A problem as JSON; with a hint of its kind if it has none of its own."""
    error: dict[str, Any] = problem.to_json()["error"]
    return {**error, "hint": error["hint"] or hint}
