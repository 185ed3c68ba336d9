"""Some flights, their streams, and the time it is: what tests of the surfaces read."""

from __future__ import annotations

#: The clock's time in these tests, 2026-03-01 12:00:00.
NOON = 1_772_366_400_000_000

SCHEMA = """
CREATE STREAM flights (ts TIMESTAMP, carrier STRING, origin STRING, delay DOUBLE, number BIGINT)
  TIMESTAMP BY ts;
CREATE RELATION planes (tailnum STRING, model STRING, PRIMARY KEY (tailnum));
"""

FLIGHTS_CSV = b"""ts,carrier,origin,delay,number
2026-03-01T11:00:00,AA,JFK,61.5,1
2026-03-01T11:30:00,UA,LGA,-3.25,2
2026-03-01T11:45:00,AA,JFK,120,9007199254740993
"""
