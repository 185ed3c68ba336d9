"""The most unusual flights within 20 ms: what a budget finds first, estimates, and what is exact.

Promising tuples, section 4.1.1: with ASC the rarest values come first. Unusual is a flight to where
hardly any flight goes.
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
_BUDGET = "20 ms"
#: Flights that are shown.
_SHOWN = 5


def show_unusual(pond: Pond, screen: Screen) -> None:
    """Ask for the most unusual flights of the last 30 days with a budget; then for all of them."""
    handle = pond.register(_QUERY, "unusual")
    # The first question arranges the kept flights by destination, once for all that follow.
    handle.invoke(budget="1 probes")
    part = handle.invoke(budget=_BUDGET)
    whole = handle.invoke(part.as_of)
    flights = Counter(dest for dest, *_ in whole.rows())
    found = part.rows()
    assert part.part is not None
    screen.say(
        f"The most unusual flights of the last 30 days, and no more than {_BUDGET}: "
        f"{len(found):,} flights were found, the rarest destinations first."
    )
    for row in found[:_SHOWN]:
        values = "  ".join(show_value(value) for value in row)
        screen.say(f"  {values}   ({flights[row[0]]:,} of {len(whole):,} flights go there)")
    if not found:
        return
    usual = sum(count * count for count in flights.values()) / len(whole)
    among = sum(flights[dest] for dest, *_ in found) / len(found)
    screen.say(
        f"Estimated: {100 * part.part.share:.1f} % of about {part.part.rows:,.0f} flights; exact: "
        f"{100 * len(found) / len(whole):.1f} % of {len(whole):,}. A flight that was found shares "
        f"its destination with {among:,.0f} on average, any flight with {usual:,.0f}."
    )
