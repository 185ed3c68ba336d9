"""The rules of Linear Road in plain Python, second by second: what `queries.cql` is checked by."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from linear_road.traffic import MICROSECONDS, SEGMENT, Report

#: Way, direction, segment.
Place = tuple[int, int, int]

_ACTIVE = 30 * MICROSECONDS
_SLOW = 300 * MICROSECONDS
_CROWD = 5
_NEAR = 4


@dataclass
class Outcome:
    """What the rules say of some traffic.

    Attributes:
        entries: (ts, car, way, dir, segment) of each car that entered a segment.
        tolls: The same of those that pay, and what.
        balances: By car, what it owes in the end.
        accidents: (ts, sign, place): where an accident begins (+1) and ends (-1) to be one.
    """

    entries: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    tolls: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    balances: dict[int, int] = field(default_factory=dict)
    accidents: list[tuple[int, int, Place]] = field(default_factory=list)


class _Road:
    """What is known of the road at an instant."""

    def __init__(self) -> None:
        self.last: dict[int, Report] = {}
        self.four: dict[int, deque[Report]] = defaultdict(lambda: deque(maxlen=4))
        self.recent: deque[Report] = deque()

    def hear(self, reports: Sequence[Report]) -> None:
        for report in reports:
            self.last[report.car] = report
            self.four[report.car].append(report)
            self.recent.append(report)

    def active(self, now: int) -> dict[int, Place]:
        """Where the cars are that reported lately: t > now - 30 s."""
        return {car: _place(r) for car, r in self.last.items() if r.ts > now - _ACTIVE}

    def congested(self, now: int) -> set[Place]:
        while self.recent and self.recent[0].ts <= now - _SLOW:
            self.recent.popleft()
        speeds: dict[Place, list[int]] = defaultdict(list)
        for report in self.recent:
            speeds[_place(report)].append(report.speed)
        return {place for place, found in speeds.items() if sum(found) / len(found) < 40}

    def accidents(self, now: int) -> set[Place]:
        stopped: dict[tuple[int, int, int], int] = defaultdict(int)
        active = self.active(now)
        for car, reports in self.four.items():
            spots = {(r.way, r.dir, r.lane, r.x) for r in reports}
            if len(reports) == 4 and len(spots) == 1 and car in active:
                stopped[reports[0].way, reports[0].dir, reports[0].x] += 1
        return {(w, d, x // SEGMENT) for (w, d, x), cars in stopped.items() if cars > 1}


def judge(reports: Sequence[Report]) -> Outcome:
    """What the rules say of all these reports, which are in the order of their timestamps."""
    outcome, road = Outcome(), _Road()
    before: dict[int, Place] = {}
    wrecks: set[Place] = set()
    expiring: list[int] = sorted({r.ts + _ACTIVE for r in reports})
    arriving = {ts: list(found) for ts, found in groupby(reports, key=lambda r: r.ts)}
    for now in sorted({*arriving, *expiring}):
        road.hear(arriving.get(now, []))
        active, wrecks_now = road.active(now), road.accidents(now)
        outcome.accidents += [(now, -1, place) for place in sorted(wrecks - wrecks_now)]
        outcome.accidents += [(now, +1, place) for place in sorted(wrecks_now - wrecks)]
        wrecks = wrecks_now
        entered = {car: place for car, place in active.items() if before.get(car) != place}
        before = active
        if not entered:
            continue
        volume: dict[Place, int] = defaultdict(int)
        for place in active.values():
            volume[place] += 1
        slow = road.congested(now)
        for car, place in sorted(entered.items()):
            outcome.entries.append((now, car, *place))
            cars = volume[place]
            if place in slow and cars > _CROWD and not _near(place, wrecks):
                toll = 2 * (cars - _CROWD) ** 2
                outcome.tolls.append((now, car, *place, toll))
                outcome.balances[car] = outcome.balances.get(car, 0) + toll
    return outcome


def _near(place: Place, wrecks: set[Place]) -> bool:
    """Whether an accident lies within four segments downstream."""
    way, dir, segment = place
    steps = range(_NEAR + 1) if dir == 0 else range(0, -_NEAR - 1, -1)
    return any((way, dir, segment + step) in wrecks for step in steps)


def _place(report: Report) -> Place:
    return report.way, report.dir, report.x // SEGMENT
