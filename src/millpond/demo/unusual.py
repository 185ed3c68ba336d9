"""The most unusual flights by a look at one in a hundred: found first, estimated, and exact.

Promising tuples, section 4.1.1: with ASC the rarest values come first. Unusual is a flight to where
hardly any flight goes. The budget is a share of the flights, so that every machine shows the same;
then it is a time, 20 ms, in which a machine looks at as many as it can.
"""

from __future__ import annotations

from collections import Counter

from millpond.demo.screen import Screen, show_value
from millpond.service.pond import Pond

#: What the rarest flights are asked by, made before the first flight.
SUMMARY = (
    "CREATE SUMMARY destinations ON flights (dest)"
    " WITH GRANULARITY INTERVAL 30 DAYS AND COLLAPSE (2, 3)"
)
_QUERY = (
    "SELECT dest, ts, carrier, flight, origin FROM flights [RANGE 30 DAYS]"
    " WITH PREFERENCE ASC SUMMARY(destinations).ESTIMATE.COUNT(dest)"
)
#: One flight in so many is looked at.
_ONE_IN = 100
#: What there is time for, when it is counted in time.
_TIME = "20 ms"
#: Flights that are shown.
_SHOWN = 5


def show_unusual(pond: Pond, screen: Screen) -> None:
    """Ask for the most unusual flights of the last 30 days with a budget; then for all of them."""
    handle = pond.register(_QUERY, "unusual")
    whole = handle.invoke()
    budget = max(len(whole) // _ONE_IN, 1)
    part = handle.invoke(whole.as_of, budget=f"{budget} probes")
    flights = Counter(dest for dest, *_ in whole.rows())
    found = part.rows()
    assert part.part is not None
    screen.say(
        f"Which of the last 30 days' flights are the most unusual? There is time to look at one "
        f"in {_ONE_IN} of them: {budget:,} probes. The summary says where to look first:"
    )
    for row in found[:_SHOWN]:
        values = "  ".join(show_value(value) for value in row)
        screen.say(f"  {values}   ({flights[row[0]]:,} of {len(whole):,} flights go there)")
    if not found:
        return
    rare = _find_rarest(flights, budget)
    unusual = sum(flights[dest] for dest in rare)
    ours = sum(dest in rare for dest, *_ in found)
    latest = sorted(whole.rows(), key=lambda row: row[1])[-budget:]
    others = sum(dest in rare for dest, *_ in latest)
    screen.say(
        f"Estimated: these are {100 * part.part.share:.1f} % of {part.part.rows:,.0f} flights. "
        f"Exact: {100 * len(found) / len(whole):.1f} % of {len(whole):,}, and {ours:,} of the "
        f"{unusual:,} flights to the {len(rare):,} rarest destinations are among them. The latest "
        f"{budget:,} flights, which anybody else would look at, have {others:,}."
    )
    timed = handle.invoke(whole.as_of, budget=_TIME)
    assert timed.part is not None
    ours = sum(dest in rare for dest, *_ in timed.rows())
    screen.say(
        f"With a budget of {_TIME} this machine looks at {timed.part.probes:,} flights, "
        f"{100 * timed.part.share:.0f} % of all: {ours:,} of the {unusual:,} are among them."
    )


def _find_rarest(flights: Counter[str], most: int) -> set[str]:
    """The rarest destinations that have no more than so many flights together."""
    rare: set[str] = set()
    for dest, count in sorted(flights.items(), key=lambda item: (item[1], item[0])):
        most -= count
        if most < 0:
            break
        rare.add(dest)
    return rare
