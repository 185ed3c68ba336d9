"""From topic to topic under load: every record once and in order, whoever is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.spark.kafka.test_kafka_sinks import Out
from tests.spark.kafka.test_kafka_sources import Topic
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROUNDS = int(os.environ.get("MILLPOND_KILLS", "30"))
BEGIN = datetime(2026, 3, 1)
#: Who is killed in a round: Millpond, its JVM, the broker; at the same time.
VICTIMS = [
    ("millpond",),
    ("jvm",),
    ("broker",),
    ("jvm", "millpond"),
    ("broker", "millpond"),
    ("broker", "jvm"),
]


class Load(threading.Thread):
    """Numbers that come to a topic one after the other, each once, also over a broker's death."""

    def __init__(self, topic: Topic) -> None:
        from confluent_kafka import Producer

        super().__init__(daemon=True)
        self.sent = 0
        self._stopped = threading.Event()
        self._topic = topic.name
        settings = {"bootstrap.servers": topic.broker.bootstrap, "enable.idempotence": True}
        self._producer = Producer({**settings, "delivery.timeout.ms": 900_000, "log_level": 0})
        self.start()

    def run(self) -> None:
        while not self._stopped.wait(0.01):
            self._send()

    def _send(self) -> None:
        at = (BEGIN + timedelta(seconds=self.sent)).isoformat()
        value = json.dumps({"at": at, "v": self.sent}).encode()
        self._producer.produce(self._topic, value, partition=0)
        self._producer.poll(0)
        self.sent += 1

    def end(self) -> int:
        """Stop; the last number is there only so that the one before is final."""
        self._stopped.set()
        self.join()
        self._send()
        assert self._producer.flush(300) == 0
        return self.sent - 1


class Server:
    """`millpond serve` over a store, which starts its JVM again when that ends."""

    def __init__(self, store: Path, log: Path) -> None:
        self._store, self._log = store, log
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "millpond.cli.main", "serve", "--store", str(self._store)]
        command += ["--port", "0", "--master", "local[1]"]
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None

    def kill_jvm(self) -> None:
        try:
            os.kill(int((self._store / "spark.pid").read_text()), signal.SIGKILL)
        except (OSError, ValueError):
            return  # it has not started yet


def numbers(out: Out) -> list[int]:
    return [change["row"]["v"] for change in out.read()]


@pytest.mark.timeout(7200)
def test_every_record_once_and_in_order(open_store: Any, broker: Any, tmp_path: Path) -> None:
    topic, out, chance = Topic(broker, 1), Out(broker), random.Random(23)
    given = ", ".join(f"{name} '{value}'" for name, value in out.options.items())
    with open_store() as pond:
        pond.execute(
            f"CREATE STREAM s (at TIMESTAMP, v INT) TIMESTAMP BY at {topic.using()};"
            "CREATE QUERY q AS ISTREAM (SELECT v FROM s [NOW]);"
            f"CREATE SINK k USING kafka ({given}) FROM QUERY q;"
        )
    server, load = Server(tmp_path / "store", tmp_path / "server.log"), Load(topic)
    server.start()
    try:
        for number in range(ROUNDS):
            victims = VICTIMS[number % len(VICTIMS)]
            seen = len(numbers(out))
            if chance.random() < 0.7:  # else it dies while it starts
                wait_until(lambda seen=seen: len(numbers(out)) > seen, 300, str(tmp_path))
            time.sleep(chance.random() * 2)
            if "jvm" in victims:
                server.kill_jvm()
            if "broker" in victims:
                broker.kill()
            if "millpond" in victims:
                server.kill()
            time.sleep(chance.random())
            if "broker" in victims:
                broker.start()
            if "millpond" in victims:
                server.start()
            found = numbers(out)
            assert found == list(range(len(found))), victims
        count = load.end()
        wait_until(lambda: len(numbers(out)) >= count, 600, f"see {tmp_path}/server.log")
        assert numbers(out) == list(range(count))
    finally:
        server.kill()
