"""The demo through Kafka: its rows come from two topics, and alerts go to a third, exactly once.

The flights' topic has a partition for each airport: its rows are in order within each, and the
stream's heartbeat is the least of theirs. What arrives in the topic of alerts is read back by a
client of its own, which knows nothing of Millpond and sees committed records only.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from millpond.demo.data import DayFile
from millpond.demo.kafka_broker import Broker, Missing
from millpond.demo.screen import Screen
from millpond.errors import MillpondError
from millpond.runtime.kafka.packages import import_kafka
from millpond.service.pond import Pond

log = logging.getLogger("millpond.demo")

ALERTS = "alerts"
_QUERY = (
    "ISTREAM (SELECT ts, carrier, flight, origin, dest, dep_delay FROM flights [NOW]"
    " WHERE dep_delay >= 360)"
)
#: Which column of a stream's rows says the partition, so that these are in order.
_TOPICS = {"flights": 3, "weather": 1}
_ORIGINS = ("EWR", "JFK", "LGA")
_WAIT_SECONDS = 120.0


def redirect(schema: str, bootstrap: str) -> str:
    """The statements of the demo, with streams that read topics."""
    for name in _TOPICS:
        before, create, rest = schema.partition(f"CREATE STREAM {name} ")
        clauses, end, after = rest.partition(";")
        kept = clauses.partition(" USING ")[0]
        options = f"bootstrap '{bootstrap}', topic '{name}', format 'json'"
        schema = f"{before}{create}{kept} USING kafka OPTIONS ({options}){end}{after}"
    return schema


class KafkaTopics:
    """A broker of the demo's own, with its topics."""

    def __init__(self, directory: Path) -> None:
        """Start the broker. Raises DATA-502 without Java, Maven or the client."""
        kafka = import_kafka()
        directory.mkdir()
        try:
            self._broker = Broker(directory)
        except Missing as missing:
            raise MillpondError(
                "DATA-502", "the demo cannot start Kafka", detail=f"{missing}.", hint="Install it."
            ) from None
        self._broker.start()
        self.bootstrap = self._broker.bootstrap
        admin = kafka.admin.AdminClient({"bootstrap.servers": self.bootstrap}, logger=log)
        counts = {**_TOPICS, ALERTS: 1}.items()
        topics = [kafka.admin.NewTopic(name, count, 1) for name, count in counts]
        for made in admin.create_topics(topics).values():
            made.result(60)
        # What its clients say goes to a log, not to the screen: they live longer than the broker.
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 5}
        self._producer = kafka.Producer(settings, logger=log)

    def send(self, file: DayFile) -> None:
        """Write a day's rows to its stream's topic."""
        for row in pq.read_table(file.path).to_pylist():
            row["ts"] = row["ts"].isoformat()
            place = _ORIGINS.index(row["origin"]) if _TOPICS[file.stream] > 1 else 0
            value = json.dumps(row).encode()
            while True:
                try:
                    self._producer.produce(file.stream, value, partition=place)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.flush(60)

    def deliver_alerts(self, pond: Pond) -> None:
        """Have the flights that are six hours late delivered to the topic of alerts."""
        pond.execute(
            f"CREATE QUERY {ALERTS} WITH (changes = 'from beginning') AS {_QUERY};"
            f"CREATE SINK {ALERTS} USING kafka (bootstrap '{self.bootstrap}', topic '{ALERTS}')"
            f" FROM QUERY {ALERTS};"
        )

    def show_alerts(self, pond: Pond, screen: Screen) -> bool:
        """Read the topic back and compare it with the query's changes; whether they are equal."""
        meant = [(c.row[1], c.row[2], c.row[5]) for c in pond.query(ALERTS).fetch()]
        end = time.monotonic() + _WAIT_SECONDS
        while len(found := self._read_alerts()) < len(meant) and time.monotonic() < end:
            time.sleep(0.5)
        rows = [alert["row"] for alert in found]
        screen.say(
            f"{len(rows):,} flights left six hours late or more. Topic {ALERTS}, read by a client "
            "of its own that sees committed records only, ends with:"
        )
        for row in rows[-3:]:
            screen.say(
                f"  {row['ts']}  {row['carrier']} {row['flight']}  {row['origin']} to "
                f"{row['dest']}, {row['dep_delay']} minutes late"
            )
        agree = [(row["carrier"], row["flight"], row["dep_delay"]) for row in rows] == meant
        words = "It has each change of the query once, in order." if agree else "It differs."
        screen.verdict(words, agree)
        return agree

    def _read_alerts(self) -> list[dict[str, Any]]:
        """Read the topic of alerts from its beginning to its end."""
        kafka = import_kafka()
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "demo",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        consumer = kafka.Consumer(settings, logger=log)
        found: list[dict[str, Any]] = []
        try:
            consumer.assign([kafka.TopicPartition(ALERTS, 0, 0)])
            while (record := consumer.poll(30)) is not None and record.error() is None:
                found.append(json.loads(record.value()))
        finally:
            consumer.close()
        return found

    def close(self) -> None:
        """End the broker."""
        self._producer.flush(5)
        self._broker.stop()
