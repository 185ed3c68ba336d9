"""Linear Road, the expressway of stream systems' benchmarks, over derived streams and relations.

    python examples/09_linear_road.py

Cars report where they are every 30 seconds. From these reports alone follow the segments they
enter, where traffic is slow, where two cars have stopped, and what each car owes: a toll for every
congested segment it enters, unless an accident is ahead. Every step is a derived stream or relation
that the next one reads. In the end plain Python computes the same from the same reports.
"""

import sys
from pathlib import Path

import linear_road
import pyarrow as pa
from linear_road.rules import judge
from linear_road.traffic import traffic

import millpond
from millpond.model.time import parse_instant

reports = traffic(seconds=480, cars=400, seed=3, start=parse_instant("2004-01-01 00:00:00"))
rows = pa.Table.from_pylist([report.row() for report in reports])
rows = rows.set_column(0, "ts", rows["ts"].cast(pa.timestamp("us")))

with millpond.open(sys.argv[1] if len(sys.argv) > 1 else None) as mp:
    mp.execute(Path(linear_road.__file__).with_name("queries.cql").read_text())
    for start in range(0, rows.num_rows, 1000):
        mp.ingest("reports", rows.slice(start, 1000))
    mp.execute("HEARTBEAT reports AT TIMESTAMP '2005-01-01 00:00:00'")
    mp.catch_up()

    alerts = mp.query("accident_alerts").fetch()
    for change in alerts:
        what = "accident on" if change.sign == "+" else "cleared on "
        print(change.timestamp, what, "way {} direction {} segment {}".format(*change.row))
    tolls = mp.query("toll_notices").fetch()
    owed = dict(mp.query("balances").invoke().rows())
    total = sum(owed.values())
    print(f"{len(reports):,} reports, {len(tolls)} tolls, {total} owed by {len(owed)} cars")

truth = judge(reports)
assert sorted((at, *row) for _, at, _, *row in tolls.rows()) == sorted(truth.tolls)
assert owed == truth.balances
print("as the rules say")
