"""Connections split into outgoing links, made up to the update-pattern paper's description.

(Golab and Özsu, SIGMOD 2005, section 6.1.) On each link about one connection a second arrives;
sources are skewed, telnet is a more popular protocol than ftp, so that joins of telnet connections
give some ten times as many rows, and there are some two thousand source addresses.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.model.schema import Field, Schema

SOURCES = 2_000
DESTINATIONS = 200
PROTOCOLS = ("telnet", "ftp", "http", "smtp", "nntp")
SHARES = (0.30, 0.09, 0.26, 0.25, 0.10)

SCHEMA = Schema(
    (
        Field("ts", "TIMESTAMP"),
        Field("duration", "DOUBLE"),
        Field("protocol", "VARCHAR"),
        Field("payload", "INTEGER"),
        Field("src", "INTEGER"),
        Field("dst", "INTEGER"),
    )
)


def link(number: int, connections: int) -> pa.Table:
    """A link's connections in the order of time, with `__ts` and `__seq`."""
    chance = np.random.default_rng(1000 + number)
    gaps = chance.exponential(1_000_000, connections).astype(np.int64)
    ts = np.cumsum(gaps)
    share = np.arange(1, SOURCES + 1) ** -0.5
    source = chance.choice(SOURCES, connections, p=share / share.sum())
    protocol = chance.choice(len(PROTOCOLS), connections, p=SHARES)
    return pa.table(
        {
            "ts": pa.array(ts).cast(pa.timestamp("us")),
            "duration": chance.exponential(30.0, connections),
            "protocol": pa.array(np.array(PROTOCOLS, object)[protocol], pa.string()),
            "payload": chance.integers(40, 60_000, connections).astype(np.int32),
            "src": source.astype(np.int32),
            "dst": chance.integers(0, DESTINATIONS, connections).astype(np.int32),
            "__ts": ts,
            "__seq": np.arange(connections, dtype=np.int64),
        }
    )
