"""Reports of cars on an expressway, with slow stretches and accidents; made up, and reproducible.

Every car enters somewhere, reports every 30 seconds from an offset of its own, slows down where
traffic is dense or an accident is ahead, and leaves after some miles. Now and then two cars stop at
the same place for a few minutes, and what is behind them crawls.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

#: Positions are in units of three feet, 1760 of them a segment.
SEGMENT = 1760
SEGMENTS = 100
EVERY = 30
MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class Report:
    """What a car says: `ts` in µs, `speed` in miles an hour, `x` from the western end."""

    ts: int
    car: int
    speed: int
    way: int
    lane: int
    dir: int
    x: int

    def row(self) -> dict[str, int]:
        """The columns of the stream."""
        return dict(vars(self))


@dataclass
class _Car:
    number: int
    way: int
    dir: int
    x: float
    miles: float
    begins: int
    stopped: int = 0
    waits: int = 0


def traffic(seconds: int, cars: int, seed: int = 1, start: int = 0, ways: int = 1) -> list[Report]:
    """Reports in the order of their timestamps.

    Args:
        seconds: How long it lasts.
        cars: How many cars set out in that time.
        seed: Of everything that is left to chance.
        start: The timestamp of second 0, in µs.
        ways: Expressways.
    """
    chance = Random(seed)
    fleet = [_sets_out(number, chance, seconds, ways) for number in range(cars)]
    _crash(fleet, chance, seconds)
    reports: list[Report] = []
    for now in range(seconds):
        wrecks = [(c.way, c.dir, c.x) for c in fleet if c.stopped > 0 and c.waits > now]
        for car in fleet:
            if now < car.begins or (now - car.begins) % EVERY or car.miles <= 0:
                continue
            reports.append(_drive(car, now, start, wrecks, chance))
    return reports


def _sets_out(number: int, chance: Random, seconds: int, ways: int) -> _Car:
    dir = chance.randrange(2)
    # Most drive towards the middle of the road, which is where it gets crowded.
    segment = chance.choice([*range(42, 48)] * 8 + [*range(SEGMENTS)])
    return _Car(
        number,
        chance.randrange(ways),
        dir,
        float(segment * SEGMENT + chance.randrange(SEGMENT)),
        chance.uniform(2, 12),
        chance.randrange(max(1, seconds - 2 * EVERY)),
    )


def _crash(fleet: list[_Car], chance: Random, seconds: int) -> None:
    """Makes pairs of cars meet: the second sets out where and when the first stops."""
    for _ in range(max(1, len(fleet) // 60)):
        one, other = chance.sample(fleet, 2)
        if one.stopped or other.stopped:
            continue
        at = chance.randrange(max(1, seconds // 2))
        for car in (one, other):
            car.way, car.dir, car.x = one.way, one.dir, one.x
            car.begins = at + chance.randrange(EVERY)
            car.stopped = 5 + chance.randrange(8)
            car.waits = at + car.stopped * EVERY
            car.miles = 8.0


def _drive(
    car: _Car, now: int, start: int, wrecks: list[tuple[int, int, float]], chance: Random
) -> Report:
    """A car's report, and its way on until the next."""
    if car.stopped:
        car.stopped -= 1
        return Report(start + now * MICROSECONDS, car.number, 0, car.way, 1, car.dir, int(car.x))
    ahead = [
        (x - car.x) * (1 if car.dir == 0 else -1)
        for way, dir, x in wrecks
        if way == car.way and dir == car.dir
    ]
    crawls = any(0 < distance < 4 * SEGMENT for distance in ahead)
    crowded = 40 <= car.x // SEGMENT < 50
    speed = chance.randrange(5, 15) if crawls else chance.randrange(20, 45 if crowded else 100)
    report = Report(
        start + now * MICROSECONDS,
        car.number,
        speed,
        car.way,
        chance.randrange(1, 4),
        car.dir,
        int(car.x),
    )
    miles = speed * EVERY / 3600
    car.miles -= miles
    moved = miles * SEGMENT * (1 if car.dir == 0 else -1)
    car.x = min(max(car.x + moved, 0.0), float(SEGMENTS * SEGMENT - 1))
    return report
