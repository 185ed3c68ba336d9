"""A thousand standing queries are a thousand rows in the Query SteM, registered in one epoch.

python examples/06_many_queries.py
"""

from __future__ import annotations

import millpond

FLIGHTS = """
CREATE STREAM flights (ts TIMESTAMP, carrier STRING, origin STRING, delay DOUBLE)
  TIMESTAMP BY ts
"""

CARRIERS = ["AA", "B6", "DL", "UA"]

with millpond.open() as mp:
    mp.execute(FLIGHTS)
    watches = mp.register_many(
        [
            (
                f"SELECT ts, delay FROM flights [RANGE 1 DAY]"
                f" WHERE carrier = '{CARRIERS[n % 4]}' AND delay > {n // 4}",
                f"watch_{n}",
                {},
            )
            for n in range(1000)
        ]
    )
    # All of them or none, in one epoch; queries with equal predicates share one slot.
    same = mp.register(
        "SELECT count(*) AS n FROM flights [RANGE 1 HOUR] WHERE delay > 10 AND carrier = 'DL'"
    )
    rows = [
        {
            "ts": f"2013-01-01 {6 + n // 60:02}:{n % 60:02}:00",
            "carrier": CARRIERS[n % 4],
            "origin": "JFK",
            "delay": (n * 37) % 300,
        }
        for n in range(600)
    ]
    mp.ingest("flights", rows)
    mp.catch_up()

    print("queries:", len(mp.queries()))
    print("slots:", mp.status()["streams"][0]["slots"])
    print(
        "rows of watch_0, watch_400, watch_999:", *(len(watches[n].invoke()) for n in (0, 400, 999))
    )
    print("the last hour:", same.invoke().rows()[0][0])
