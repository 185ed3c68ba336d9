"""One topic of Kafka through N range queries in Structured Streaming, with Spark's own connector.

`read` stops at the topic's end and throws away what is selected: one query is a filter, more are a
join with a broadcast table of their ranges. `follow` goes on until it is ended, and writes what is
selected into another topic; Spark's connector writes without transactions.

    python spark_kafka.py JARS BOOTSTRAP TOPIC read QUERIES CHECKPOINT
    python spark_kafka.py JARS BOOTSTRAP TOPIC follow OUT CHECKPOINT
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

COLUMNS = "a INT, b INT, c INT, d INT, e INT, sent BIGINT"


def main(jars: str, bootstrap: str, topic: str, mode: str, out: str, checkpoint: str) -> None:
    session = SparkSession.builder.master("local[*]").config("spark.jars", jars)
    spark = session.config("spark.ui.enabled", "false").getOrCreate()
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    start = "earliest" if mode == "read" else "latest"
    frame = source.option("subscribe", topic).option("startingOffsets", start).load()
    value = F.from_json(F.col("value").cast("string"), COLUMNS)
    frame = frame.select(value.alias("v")).select("v.*")
    wheres = json.load(sys.stdin)
    if len(wheres) == 1:
        frame = frame.where(wheres[0])
    else:
        found = [[int(w) for w in where.split() if w.isdigit()] for where in wheres]
        names = [f"{column}{end}" for column in "abcde" for end in (0, 1)]
        bounds = F.broadcast(spark.createDataFrame(found, names))
        on = " AND ".join(f"{c} BETWEEN {c}0 AND {c}1" for c in "abcde")
        frame = frame.join(bounds, F.expr(on)).select("a", "b", "c", "d", "e", "sent")
    if mode == "read":
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
    else:
        frame = frame.select(F.to_json(F.struct("*")).alias("value"))
        writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("topic", out)
    begun = time.perf_counter()
    query = writer.option("checkpointLocation", checkpoint).start()
    print("running", flush=True)
    query.awaitTermination()
    print(json.dumps({"seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main(*sys.argv[1:])
