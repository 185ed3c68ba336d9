"""Register, push, invoke, disconnect, come back: a standing query keeps its answer.

python examples/01_standing_query.py [STORE]
"""

from __future__ import annotations

import sys
import tempfile

import millpond

STORE = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()

FLIGHTS = """
CREATE STREAM flights (ts TIMESTAMP, carrier STRING, origin STRING, delay DOUBLE)
  TIMESTAMP BY ts DELAY INTERVAL 10 MINUTES
"""

MORNING = [
    {"ts": "2013-01-01 06:10:00", "carrier": "AA", "origin": "LGA", "delay": -2},
    {"ts": "2013-01-01 06:30:00", "carrier": "B6", "origin": "JFK", "delay": 32},
    {"ts": "2013-01-01 07:00:00", "carrier": "AA", "origin": "JFK", "delay": 61},
]
LATER = [
    {"ts": "2013-01-01 07:55:00", "carrier": "B6", "origin": "JFK", "delay": 47},
    {"ts": "2013-01-01 07:50:00", "carrier": "DL", "origin": "JFK", "delay": 35},
]

with millpond.open(STORE) as mp:
    mp.execute(FLIGHTS)
    # The query waits for data, and data for queries: either may come first.
    mp.register(
        "SELECT ts, carrier, delay FROM flights [RANGE 1 HOUR] WHERE origin = 'JFK' AND delay > 30",
        name="late_from_jfk",
    )
    receipt = mp.ingest("flights", MORNING)
    print("accepted", receipt.accepted)
    mp.catch_up()
    print("at 7:", sorted(mp.query("late_from_jfk").invoke().rows()))

# Nobody is connected now, and nothing is lost: the store holds the stream and the query.

with millpond.open(STORE) as mp:
    mp.ingest("flights", LATER)
    mp.catch_up()
    late = mp.query("late_from_jfk")
    answer = late.invoke()
    print("at 8:", [(carrier, delay) for _, carrier, delay in sorted(answer.rows())])
    print("final:", answer.final)
    past = late.invoke(at="2013-01-01 07:00:00")
    print("at 7:", [(carrier, delay) for _, carrier, delay in sorted(past.rows())])
    print("final:", past.final)

    # Registered after the data, and answered as if it had always been there.
    worst = mp.register("SELECT carrier, max(delay) AS worst FROM flights GROUP BY carrier")
    print("worst:", sorted(worst.invoke().rows()))
    worst.unregister()
