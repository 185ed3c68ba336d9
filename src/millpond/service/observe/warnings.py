"""What gives way, stands still or is given up though the pond works, each with what to do.

A problem (`status.py`) is a thing that is broken; a warning is what the pond does about there being
too much to do, and what it does no longer do for one query or sink. Both say what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.service.components import Components
from millpond.service.ingest.door import SHARES
from millpond.service.ingest.pressure import DEFER, REDUCE, RUNGS
from millpond.service.results import count_text
from millpond.state.version import Version

#: Names of one kind that a warning tells.
_MOST_NAMES = 5

#: What a rung of the ladder of work does, by its action.
_WORK = {
    DEFER: (
        "matching, followers and kept answers of light queries wait",
        "Nothing is lost: it is made up for when less comes. If it stays so, set queue_memory of "
        "queue:inbox higher, send less at a time, drop queries that nobody needs, or give those "
        "that must not wait a weight above the others.",
    ),
    REDUCE: (
        "followed queries that tolerate it are reduced",
        "Their answers say what is missing. If it stays so, set queue_memory of queue:inbox "
        "higher, send less, drop queries, or give those that must stay exact a greater weight.",
    ),
}


def list_warnings(components: Components) -> list[dict[str, Any]]:
    """List what gives way or is given up: code, message, detail, hint, as problems have them."""
    version = components.log.version
    return [
        *_climbed_rungs(components),
        *_streams_giving_way(components, version),
        *_memory_giving_way(components),
        *_suspended_queries(version),
        *_idle_sinks(components),
    ]


def _climbed_rungs(components: Components) -> Iterator[dict[str, Any]]:
    """The ladder of work: each action once, with the highest of its rungs that is climbed."""
    step, door = components.pressure.step, components.door
    for action, (what, hint) in _WORK.items():
        climbed = [n for n, rung in enumerate(RUNGS[:step], 1) if rung.action == action]
        if climbed:
            who = "the lighter half" if RUNGS[climbed[-1] - 1].half else "all but the weightiest"
            yield _warn(
                action,
                f"too much comes: {what}",
                f"Rung {climbed[-1]} of {len(RUNGS)}, for {who}: {door.waiting_bytes:,} of "
                f"{door.limit:,} bytes of pushes wait for their epoch.",
                hint,
            )


def _streams_giving_way(components: Components, version: Version) -> Iterator[dict[str, Any]]:
    """Streams that shed, or hold back who pushes into them."""
    door = components.door
    for stream in version.named_streams():
        step, name = door.step_of(stream), stream.name
        if step:
            yield _warn(
                "shed",
                f'stream "{name}" sheds {100 * SHARES[step][1]:g} % of what is pushed',
                f"Step {step} of {len(SHARES) - 1}: {door.waiting_bytes:,} of {door.limit:,} bytes "
                "of pushes wait for their epoch.",
                f"What was shed is counted, and estimates say so. Send less, set queue_memory of "
                f"queue:inbox higher, or ALTER STREAM {name} SET (overload = 'block'): then who "
                "pushes waits instead.",
            )
        if door.is_holding_back(stream):
            yield _warn(
                "hold back",
                f'stream "{name}" holds back who pushes into it',
                f"{door.refused.get(stream.id, 0):,} rows were refused since the pond was opened.",
                "Nothing is lost if the same rows are sent again. Send less at a time, set "
                f"queue_memory of queue:inbox higher, or ALTER STREAM {name} SET (overload = "
                "'shed random') if it may lose elements.",
            )


def _memory_giving_way(components: Components) -> Iterator[dict[str, Any]]:
    """The ladder of memory."""
    ladder = components.advancer.ladder
    share = f"{100 * ladder.fill:.0f} % of the room for the state of followed queries is taken."
    if ladder.spilled_weight:
        yield _warn(
            "spill",
            "state of followed queries lies in files",
            share,
            "Answers and changes are the same, only slower. Set memory of memory:all higher, or "
            "have fewer queries followed: System lists which take the most.",
        )
    if ladder.reduced_weight:
        yield _warn(
            "reduce",
            "followed queries that tolerate it are reduced, so that their state is smaller",
            share,
            "Their answers say what is missing. Set state_limit and memory of memory:all higher, "
            "or have fewer queries followed: System lists which take the most.",
        )
    if ladder.shortage is not None:
        yield _warn(
            "hold back",
            "pushes are held back until followers have caught up",
            f"{ladder.shortage}.",
            "Set state_limit of memory:all higher, or deactivate queries that take much: System "
            "lists which.",
        )


def _suspended_queries(version: Version) -> Iterator[dict[str, Any]]:
    """Queries that were given up because of what they compute."""
    found = [query for query in version.queries.values() if query.suspended is not None]
    if not found:
        return
    names = ", ".join(query.name for query in found[:_MOST_NAMES])
    more = f" and {len(found) - _MOST_NAMES:,} more" if len(found) > _MOST_NAMES else ""
    yield _warn(
        "suspended",
        f"{count_text(len(found), 'query is', 'queries are')} suspended: {names}{more}",
        f"The first of them: {found[0].suspended}",
        f"Correct what it computes, then ALTER QUERY {found[0].name} SET (active = true); or drop "
        "it.",
    )


def _idle_sinks(components: Components) -> Iterator[dict[str, Any]]:
    """Sinks that cannot deliver now; those that gave up are problems."""
    for sink in components.sinks.describe():
        if sink["dead"] is None and sink["state"].startswith("retries"):
            yield _warn(
                "retries",
                f'sink "{sink["name"]}" cannot deliver to {sink["to"]}',
                f"It {sink['state']}",
                "It tries again by itself, and goes on where it was. See that the receiver is "
                f"there and takes what it is sent, or DROP SINK {sink['name']}.",
            )


def _warn(code: str, message: str, detail: str, hint: str) -> dict[str, Any]:
    return {"code": code, "message": message, "detail": detail, "hint": hint, "place": None}
