"""Any Spark DataFrame, streaming or not, can be a stream; answers go to pandas, polars, Arrow.

python examples/07_dataframe.py
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

import millpond

# Spark's workers import Millpond too: they need this Python, not the first one on the path.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

frame = spark.sql(
    "SELECT timestamp '2013-01-01 06:00:00' + make_interval(0, 0, 0, 0, 0, id) AS ts,"
    " id % 7 AS gate, CAST(id AS DOUBLE) AS delay FROM range(100)"
)

with millpond.open(spark=spark) as mp:
    busy = "SELECT gate, count(*) AS n FROM departures [RANGE 1 HOUR] GROUP BY gate ORDER BY gate"
    mp.stream("departures", frame, timestamp="ts")
    answer = mp.ask(busy)
    print(answer.as_of, answer.final)
    print(answer.table.to_pydict())

spark.stop()
