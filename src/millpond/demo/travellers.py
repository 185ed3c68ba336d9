"""The demo's travellers: thousands of people who each ask something else of the same streams.

The questions are made from the flights themselves. A flight is drawn at random, and a traveller
asks about its route, its airline or its aeroplane, with thresholds of their own. The draw is
seeded, so every run has the same travellers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

SCHEMA = """
CREATE RELATION airlines (carrier STRING, name STRING, PRIMARY KEY (carrier))
  USING csv OPTIONS (path '{directory}/airlines.csv', header 'true');
CREATE RELATION airports (faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INTEGER,
    tzone STRING, PRIMARY KEY (faa))
  USING csv OPTIONS (path '{directory}/airports.csv', header 'true');
CREATE RELATION planes (tailnum STRING, year INTEGER, manufacturer STRING, model STRING,
    engines INTEGER, seats INTEGER, PRIMARY KEY (tailnum))
  USING csv OPTIONS (path '{directory}/planes.csv', header 'true');
CREATE STREAM flights (ts TIMESTAMP, carrier STRING, flight INTEGER, tailnum STRING,
    origin STRING, dest STRING, dep_delay INTEGER, arr_delay INTEGER, air_time INTEGER,
    distance INTEGER)
  TIMESTAMP BY ts DELAY INTERVAL 1 HOUR USING parquet OPTIONS (path '{directory}/flights');
CREATE STREAM weather (ts TIMESTAMP, origin STRING, temp DOUBLE, humid DOUBLE,
    wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE)
  TIMESTAMP BY ts DELAY INTERVAL 1 HOUR USING parquet OPTIONS (path '{directory}/weather');
"""


@dataclass(frozen=True)
class Traveller:
    """Somebody with a standing query.

    Attributes:
        name: The query's name.
        kind: What sort of question it is.
        question: The question in words; only the named travellers have one.
        template: The query, with a place `{f}` (and `{w}`) in each stream's predicate.
    """

    name: str
    kind: str
    template: str
    question: str = ""

    @property
    def cql(self) -> str:
        """The query as the traveller registers it."""
        return self.template.replace("{f}", "").replace("{w}", "")

    @property
    def twin(self) -> str:
        """The same question in other words, so that it shares no predicate with the first.

        Equal predicates share one slot of the Query SteM. A twin with the same text would read the
        same stored matches as its elder, and so agree with it even if the matches were wrong.
        """
        alias = {"{f}": "f.", "{w}": "w."} if "{w}" in self.template else {"{f}": ""}
        text = self.template
        for place, prefix in alias.items():
            text = text.replace(place, f"{prefix}ts >= TIMESTAMP '2013-01-01' AND ")
        return text


NAMED = (
    Traveller(
        "ada",
        "route",
        "SELECT ts, carrier, flight, dep_delay FROM flights [RANGE 1 DAY] "
        "WHERE {f}origin = 'JFK' AND dest = 'SFO' AND dep_delay > 60 ORDER BY dep_delay DESC",
        "JFK to San Francisco, more than an hour late, in the last day",
    ),
    Traveller(
        "boris",
        "airlines",
        "SELECT a.name AS airline, count(*) AS flights, round(avg(s.dep_delay), 1) AS mean_delay "
        "FROM flights [RANGE 7 DAYS] s JOIN airlines a ON s.carrier = a.carrier "
        "WHERE {f}origin = 'LGA' AND dest = 'ORD' GROUP BY a.name ORDER BY mean_delay DESC",
        "Which airline from LaGuardia to Chicago, by mean delay over a week",
    ),
    Traveller(
        "chen",
        "planes",
        "SELECT s.ts, s.carrier, s.flight, s.dest, p.year AS built, p.model "
        "FROM flights [RANGE 12 HOURS] s JOIN planes p ON s.tailnum = p.tailnum "
        "WHERE {f}s.carrier = 'AA' AND p.year < 1975 ORDER BY s.ts DESC",
        "American's aeroplanes built before 1975 that left in the last 12 hours",
    ),
    Traveller(
        "dara",
        "weather",
        "SELECT f.ts, f.carrier, f.flight, f.dest, f.dep_delay, round(w.wind_speed) AS wind "
        "FROM flights [RANGE 1 DAY] f JOIN weather [RANGE 1 DAY] w "
        "ON w.origin = f.origin AND w.ts = date_trunc('hour', f.ts) "
        "WHERE {f}{w}f.origin = 'EWR' AND f.dep_delay > 90 AND w.wind_speed > 25 "
        "ORDER BY f.dep_delay DESC, f.ts, f.flight",
        "Newark departures over 90 minutes late in winds above 25 mph, in the last day",
    ),
    Traveller(
        "emil",
        "last",
        "SELECT ts, carrier, flight, origin, dest FROM flights "
        "[ROWS 5 WHERE {f}dest = 'BOS' AND dep_delay IS NULL] ORDER BY ts DESC",
        "The last five cancelled flights to Boston",
    ),
)

#: Draws the constants of a query: a real flight and the generator for thresholds.
_Draw = Callable[[dict[str, Any], random.Random], str]


def travellers(flights: pa.Table, count: int, seed: int = 2013) -> Iterator[Traveller]:
    """The named travellers, then others until there are `count`; no two ask the same.

    Args:
        flights: The flights to draw from.
        count: How many.
        seed: Of the draw.
    """
    yield from NAMED[:count]
    draw = random.Random(seed)
    seen = {traveller.template for traveller in NAMED}
    kinds = [kind for kind, (weight, _) in _KINDS.items() for _ in range(weight)]
    columns = ["carrier", "flight", "origin", "dest", "distance", "ts"]
    drawn = [draw.randrange(flights.num_rows) for _ in range(4 * count)]
    rows = iter(flights.select(columns).take(pa.array(drawn)).to_pylist())
    number = len(NAMED)
    while number < count:
        kind = draw.choice(kinds)
        template = _KINDS[kind][1](next(rows), draw)
        if template not in seen:
            seen.add(template)
            number += 1
            yield Traveller(f"traveller_{number:04d}", kind, template)


def _route(row: dict[str, Any], draw: random.Random) -> str:
    return (
        f"SELECT ts, carrier, flight, dep_delay FROM flights [RANGE {_hours(draw)} HOURS] "
        f"WHERE {{f}}origin = '{row['origin']}' AND dest = '{row['dest']}' "
        f"AND dep_delay > {_minutes(draw)}"
    )


def _airline(row: dict[str, Any], draw: random.Random) -> str:
    return (
        f"SELECT ts, flight, origin, dest, dep_delay, arr_delay "
        f"FROM flights [RANGE {_hours(draw)} HOURS] "
        f"WHERE {{f}}carrier = '{row['carrier']}' AND dest = '{row['dest']}' "
        f"AND (arr_delay >= {_minutes(draw)} OR dep_delay IS NULL)"
    )


def _airlines(row: dict[str, Any], draw: random.Random) -> str:
    # A slide of a quarter of a day shows in the answers at past instants.
    slide = draw.choice(("", "", " SLIDE 6 HOURS"))
    return (
        f"SELECT a.name, count(*) AS flights, avg(s.dep_delay) AS mean_delay "
        f"FROM flights [RANGE {draw.choice((2, 3, 7))} DAYS{slide}] s "
        f"JOIN airlines a ON s.carrier = a.carrier "
        f"WHERE {{f}}s.origin = '{row['origin']}' AND s.dest = '{row['dest']}' "
        f"AND s.arr_delay > {draw.randrange(-10, 60)} GROUP BY a.name"
    )


def _airports(row: dict[str, Any], draw: random.Random) -> str:
    return (
        f"SELECT a.name, count(*) AS late, max(s.dep_delay) AS worst "
        f"FROM flights [RANGE {_hours(draw)} HOURS] s JOIN airports a ON s.dest = a.faa "
        f"WHERE {{f}}s.carrier = '{row['carrier']}' AND s.origin = '{row['origin']}' "
        f"AND s.dep_delay > {_minutes(draw)} GROUP BY a.name"
    )


def _planes(row: dict[str, Any], draw: random.Random) -> str:
    return (
        f"SELECT s.ts, s.flight, s.dest, p.manufacturer, p.model, p.year AS built "
        f"FROM flights [RANGE {_hours(draw)} HOURS] s JOIN planes p ON s.tailnum = p.tailnum "
        f"WHERE {{f}}s.origin = '{row['origin']}' AND s.dest = '{row['dest']}' "
        f"AND p.year < {draw.randrange(1985, 2005)}"
    )


def _weather(row: dict[str, Any], draw: random.Random) -> str:
    return (
        f"SELECT f.ts, f.carrier, f.flight, f.dep_delay, w.wind_speed, w.visib "
        f"FROM flights [RANGE 1 DAY] f JOIN weather [RANGE 1 DAY] w "
        f"ON w.origin = f.origin AND w.ts = date_trunc('hour', f.ts) "
        f"WHERE {{f}}{{w}}f.dest = '{row['dest']}' AND f.origin = '{row['origin']}' "
        f"AND w.wind_speed > {draw.randrange(12, 28)}"
    )


def _last(row: dict[str, Any], draw: random.Random) -> str:
    late = draw.choice(("", f" AND dep_delay > {_minutes(draw)}", " AND dep_delay IS NULL"))
    return (
        f"SELECT ts, flight, origin, dep_delay FROM flights "
        f"[ROWS {draw.choice((3, 5, 10))} WHERE {{f}}carrier = '{row['carrier']}' "
        f"AND dest = '{row['dest']}'{late}]"
    )


def _commute(row: dict[str, Any], draw: random.Random) -> str:
    return (
        f"SELECT origin, count(*) AS flights, max(arr_delay) AS worst "
        f"FROM flights [RANGE {draw.choice((5, 10, 20))} DAYS] "
        f"WHERE {{f}}carrier = '{row['carrier']}' AND flight = {row['flight']} GROUP BY origin"
    )


def _season(row: dict[str, Any], draw: random.Random) -> str:
    return (
        f"SELECT count(*) AS cancelled FROM flights WHERE {{f}}dest = '{row['dest']}' "
        f"AND carrier = '{row['carrier']}' AND dep_delay IS NULL "
        f"BEGIN TIMESTAMP '{row['ts']:%Y-%m-01}' END NOW"
    )


def _sky(row: dict[str, Any], draw: random.Random) -> str:
    return (
        f"SELECT ts, wind_speed, wind_gust, visib FROM weather [RANGE {_hours(draw)} HOURS] "
        f"WHERE {{f}}origin = '{row['origin']}' "
        f"AND (wind_speed > {draw.randrange(15, 35)} OR visib < {draw.choice((0.5, 1, 2, 3))})"
    )


def _hours(draw: random.Random) -> int:
    return draw.choice((6, 12, 18, 24, 36, 48))


def _minutes(draw: random.Random) -> int:
    return draw.randrange(15, 181)


#: How many in a hundred travellers ask each kind of question.
_KINDS: dict[str, tuple[int, _Draw]] = {
    "route": (30, _route),
    "airline": (14, _airline),
    "airlines": (10, _airlines),
    "airports": (8, _airports),
    "planes": (10, _planes),
    "weather": (8, _weather),
    "last": (8, _last),
    "commute": (6, _commute),
    "season": (3, _season),
    "sky": (3, _sky),
}
