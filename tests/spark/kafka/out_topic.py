"""A topic that a sink writes to, as its readers see it."""

from __future__ import annotations

import json
import uuid
from typing import Any

from tests.waiting import wait_until


class Out:
    """A topic that a sink writes to, and the topic of its cursors."""

    def __init__(self, broker: Any, policy: str = "delete") -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        self.broker = broker
        self.topic = f"out{uuid.uuid4().hex[:8]}"
        self.cursors = f"{self.topic}_cursors"
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        self._new = NewTopic(self.topic, 1, 1, config={"cleanup.policy": policy})
        self._make()

    def _make(self) -> None:
        (made,) = self.admin.create_topics([self._new]).values()
        made.result(30)

    def make_anew(self) -> None:
        """Delete the topic, and make another of its name."""
        (gone,) = self.admin.delete_topics([self.topic]).values()
        gone.result(30)
        wait_until(lambda: self.topic not in self.admin.list_topics(timeout=10).topics)
        self._make()

    @property
    def options(self) -> dict[str, Any]:
        bootstrap = self.broker.bootstrap
        return {"bootstrap": bootstrap, "topic": self.topic, "cursor_topic": self.cursors}

    def has_open_transaction(self) -> bool:
        """Whether readers of committed records have to stop before the topic's end."""
        ends = {self._find_end(level) for level in ("read_committed", "read_uncommitted")}
        return len(ends) > 1

    def _find_end(self, isolation: str) -> int:
        """The offset behind what a reader sees now."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec

        place, level = TopicPartition(self.topic, 0), IsolationLevel[isolation.upper()]
        # A client from before the broker's restart goes on asking as of then.
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        asked = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)
        return int(asked[place].result(30).offset)

    def read(self, isolation: str = "read_committed") -> list[dict[str, Any]]:
        """The values of all records that a reader sees now."""
        return [json.loads(value) for _, value in self.read_records(isolation)]

    def read_records(self, isolation: str = "read_committed") -> list[tuple[bytes, bytes]]:
        """Key and value of each; a tombstone has none.

        Up to the end of now: a topic that goes on being written to need not have an end.
        """
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        # A broker that was started just now leads nothing yet.
        (end,) = wait_until(lambda: [self._find_end("read_uncommitted")])

        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "test",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
        found = []
        while (message := consumer.poll(60)) is not None and message.error() is None:
            if message.offset() < end:
                found.append((message.key(), message.value()))
            if message.offset() >= end - 1:
                break
        consumer.close()
        return found


def rows_of(records: list[tuple[bytes, bytes | None]]) -> dict[str, dict[str, Any]]:
    """What a reader has that keeps the last record of each key, by the key's text."""
    last = dict(records)
    return {name.decode(): json.loads(value) for name, value in last.items() if value is not None}
