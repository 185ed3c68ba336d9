"""One topic of Kafka, standing range queries: how fast is it read, and how late do changes come?

Millpond, Spark's Structured Streaming and Flink SQL read the same topic of JSON records, in turns,
each with its own connector.

- Read: the topic is read to its end. Millpond keeps elements and matches on a disk; the others
  throw away what they select. Starting the query counts, starting the process does not.
- Follow: records come at a steady rate, half of them are selected, and changes go to another topic.
  The lag of a record is from its making to its arrival at a reader of committed records.

    python benchmarks/kafka_topic.py [--rows 2000000] [--queries 1,100] [--repeats 3]
                                     [--rate 1000] [--follow 30] [--only read|follow]
                                     [--peer-queries 1000]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from _harness import as_text, console, percentile, processor_seconds, seconds, show, spread
from millpond.demo.kafka_broker import Broker
from millpond.service.open_pond import open_pond
from peers import flink
from workloads.interests import ATTRIBUTES, SPAN, elements, texts

HERE = Path(__file__).parent / "peers"
JARS = HERE.parents[1] / ".venv-flink" / "jars"
PARTITIONS = 4
#: A run that takes longer is given up.
_PATIENCE = 900.0
#: Followers run for so long before their lag is measured.
_WARM_SECONDS = 10.0
HALF = f"a BETWEEN 0 AND {SPAN // 2 - 1}"


class Topics:
    """Makes and fills topics of a broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def make(self, name: str, partitions: int = PARTITIONS) -> str:
        for made in self._admin.create_topics([NewTopic(name, partitions, 1)]).values():
            made.result(30)
        return name

    def fill(self, name: str, rows: int) -> str:
        """Write records of uniform elements into a new topic."""
        self.make(name)
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 50, "log_level": 0}
        producer = Producer(
            {**settings, "batch.size": 1 << 20, "queue.buffering.max.messages": 1_000_000}
        )
        table = elements(rows, np.random.default_rng(7))
        for number, row in enumerate(zip(*table.to_pydict().values(), strict=True)):
            value = json.dumps(dict(zip(ATTRIBUTES, row, strict=True)) | {"sent": number})
            producer.produce(name, value, partition=number % PARTITIONS)
            if not number % 100_000:
                producer.flush()
        producer.flush()
        return name


def wheres(queries: int) -> list[str]:
    """The queries' conditions in SQL."""
    return [text.partition(" WHERE ")[2] for text in texts(queries, "s")]


def create(topics: Topics, topic: str, start: str) -> str:
    columns = ", ".join(f"{a} INTEGER" for a in ATTRIBUTES)
    return (
        f"CREATE STREAM s ({columns}, sent BIGINT) USING kafka OPTIONS (bootstrap"
        f" '{topics.bootstrap}', topic '{topic}', format 'json', start '{start}')"
    )


def millpond_reads(topics: Topics, topic: str, rows: int, queries: int) -> float:
    """Seconds until Millpond has committed a whole topic, in a pond of its own."""
    from pyspark.sql import SparkSession

    store = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    try:
        with open_pond(store, bounded=True, spark=SparkSession.getActiveSession()) as pond:
            pond.execute(create(topics, topic, "earliest"))
            pond.register_many([(text, None, {}) for text in texts(queries, "s")])
            took = seconds(pond._components.sources.read_to_end)
            assert pond.ask("SELECT count(*), sum(sent) FROM s").rows() == [
                (rows, rows * (rows - 1) // 2)
            ]
            return took
    finally:
        shutil.rmtree(store, ignore_errors=True)


def commands(topics: Topics, topic: str) -> dict[str, list[str]]:
    """What starts the peers, before their modes."""
    of_flink = [str(jar) for jar in JARS.glob("flink-*.jar")]
    of_spark = ",".join(str(jar) for jar in JARS.glob("*.jar") if str(jar) not in of_flink)
    where = [topics.bootstrap, topic]
    return {
        "Spark": [sys.executable, str(HERE / "spark_kafka.py"), of_spark, *where],
        "Flink": [str(flink.PYTHON), str(HERE / "flink_kafka.py"), *of_flink, *where],
    }


def start(command: list[str], conditions: list[str], log: Path) -> subprocess.Popen[str]:
    with log.open("w") as errors:
        started = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    assert started.stdin is not None
    started.stdin.write(json.dumps(conditions))
    started.stdin.close()
    return started


def peer_reads(name: str, topics: Topics, topic: str, queries: int, base: Path) -> float:
    """Seconds that a peer takes to read a whole topic, without starting its process."""
    checkpoint = tempfile.mkdtemp(dir=base)
    more = [checkpoint] if name == "Spark" else []
    command = [*commands(topics, topic)[name], "read", *(["-"] if more else []), *more]
    running = start(command, wheres(queries), base / "peer.log")
    clock = threading.Timer(_PATIENCE, lambda: end(running))
    clock.start()
    try:
        assert running.stdout is not None
        lines = running.stdout.read().strip().splitlines()
        if running.wait():
            raise RuntimeError(f"{name}: {(base / 'peer.log').read_text()[-1500:]}")
        return float(json.loads(lines[-1])["seconds"])
    finally:
        clock.cancel()
        end(running)


def end(running: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


@contextmanager
def peer_follows(
    name: str, topics: Topics, topic: str, out: str, guarantee: str, base: Path
) -> Iterator[int]:
    """A peer that follows a topic in the block; gives its process."""
    last = tempfile.mkdtemp(dir=base) if name == "Spark" else guarantee
    command = [*commands(topics, topic)[name], "follow", out, last]
    running = start(command, [HALF], base / "peer.log")
    try:
        assert running.stdout is not None
        while running.stdout.readline().strip() != "running":
            if running.poll() is not None:
                raise RuntimeError(f"{name}: {(base / 'peer.log').read_text()[-1500:]}")
        yield running.pid
    finally:
        end(running)


@contextmanager
def millpond_follows(topics: Topics, topic: str, out: str) -> Iterator[int]:
    """A pond that follows a topic in the block, with a sink."""
    from pyspark.sql import SparkSession

    store = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    try:
        with open_pond(store, spark=SparkSession.getActiveSession()) as pond:
            pond.execute(
                create(topics, topic, "latest")
                + f"; CREATE QUERY q AS ISTREAM (SELECT * FROM s [NOW] WHERE {HALF});"
                f" CREATE SINK k USING kafka (bootstrap '{topics.bootstrap}', topic '{out}',"
                f" cursor_topic '{out}_cursors', batch 10000) FROM QUERY q"
            )
            yield os.getpid()
    finally:
        shutil.rmtree(store, ignore_errors=True)


def measure_lag(topics: Topics, topic: str, out: str, rate: int, length: float) -> list[float]:
    """Send records at a rate; seconds from the making of each that is selected to its arrival."""
    reader = Consumer(
        {
            "bootstrap.servers": topics.bootstrap,
            "group.id": out,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    reader.subscribe([out])
    producer = Producer({"bootstrap.servers": topics.bootstrap, "linger.ms": 5, "log_level": 0})
    lags: list[float] = []
    done = threading.Event()

    def send() -> None:
        chance, begun, number = np.random.default_rng(3), time.time(), 0
        while time.time() < begun + _WARM_SECONDS + length:
            while number < (time.time() - begun) * rate:
                row = dict(zip(ATTRIBUTES, chance.integers(0, SPAN, 5).tolist(), strict=True))
                value = json.dumps(row | {"sent": int(time.time() * 1_000_000)})
                producer.produce(topic, value, partition=number % PARTITIONS)
                number += 1
            producer.poll(0)
            time.sleep(0.005)
        producer.flush()
        done.set()

    counted_from = time.time() + _WARM_SECONDS
    sender = threading.Thread(target=send)
    sender.start()
    quiet_since = time.time()
    while not done.is_set() or time.time() < quiet_since + 5:
        for message in reader.consume(1_000, timeout=0.05):
            if message.error() is not None:
                continue
            quiet_since = time.time()
            value = json.loads(message.value())
            sent = value.get("row", value)["sent"] / 1_000_000
            if sent >= counted_from:
                lags.append(quiet_since - sent)
    sender.join()
    reader.close()
    return lags


def read_all(
    topics: Topics, rows: int, counts: list[int], repeats: int, most: int, base: Path
) -> None:
    """Measure how fast the topic is read, and show it; peers have `most` queries at most."""
    topic = topics.fill("long", rows)
    lines = []
    for queries in counts:
        ways: dict[str, Callable[[str, int], float]] = {
            "Millpond": lambda topic, n, q=queries: millpond_reads(topics, topic, n, q)
        }
        for name in ("Spark", "Flink") if queries <= most else ():
            ways[name] = lambda topic, _, name=name, q=queries: peer_reads(
                name, topics, topic, q, base
            )
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats):  # in turns: the machine is not the same for long
            for name, read in ways.items():
                found[name].append(read(topic, rows))
        for name, took in found.items():
            lines.append([queries, name, spread([rows / s for s in took]), spread(took)])
            console.print(*map(as_text, lines[-1]))
    columns = ["queries", "engine", "records/s", "seconds"]
    show("One topic of Kafka, read", columns, lines)


def follow_all(topics: Topics, rate: int, length: float, repeats: int, base: Path) -> None:
    """Measure how late changes come, and show it."""
    ways = [
        ("Millpond", "exactly once"),
        ("Flink", "exactly-once"),
        ("Flink", "at-least-once"),
        ("Spark", "at-least-once"),
    ]
    found: dict[tuple[str, str], list[tuple[float, float, int, float]]] = {way: [] for way in ways}
    for number in range(repeats):
        for name, guarantee in ways:
            topic = topics.make(f"in{number}{name}{guarantee}".replace(" ", "-"))
            out = topics.make(f"out{number}{name}{guarantee}".replace(" ", "-"), 1)
            follows = (
                millpond_follows(topics, topic, out)
                if name == "Millpond"
                else peer_follows(name, topics, topic, out, guarantee, base)
            )
            with follows as process:
                before = processor_seconds(process)
                lags = measure_lag(topics, topic, out, rate, length)
                used = processor_seconds(process) - before
            if not lags:
                console.print(f"{name}, {guarantee}: nothing came")
                continue
            middle, late = statistics.median(lags), percentile(lags, 0.99)
            found[name, guarantee].append((middle, late, len(lags), used))
            console.print(name, guarantee, f"{middle:.3f} {late:.3f} {len(lags)} {used:.1f}")
    lines = [
        [
            name,
            guarantee.replace("-", " "),
            *[spread([run[i] for run in runs]) if runs else None for i in (0, 1, 2)],
        ]
        for (name, guarantee), runs in found.items()
    ]
    columns = ["engine", "delivers", "lag, median, s", "lag, 99 of 100, s", "changes"]
    show("One topic of Kafka, followed", columns, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--queries", default="1,100")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--follow", type=float, default=30.0)
    parser.add_argument("--peer-queries", type=int, default=1_000, dest="most")
    parser.add_argument("--only", choices=("read", "follow"))
    options = parser.parse_args()
    if not flink.is_installed():
        raise SystemExit(flink.MISSING)
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    broker = Broker(base)
    broker.start()
    try:
        topics = Topics(broker.bootstrap)
        with open_pond(base / "session"):  # starts Spark; the ponds measured share its session
            counts = [int(n) for n in options.queries.split(",")]
            warm = topics.fill("warm", 100_000)
            millpond_reads(topics, warm, 100_000, 1)
            if options.only != "follow":
                read_all(topics, options.rows, counts, options.repeats, options.most, base)
            if options.only != "read":
                follow_all(topics, options.rate, options.follow, options.repeats, base)
    finally:
        broker.stop()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
