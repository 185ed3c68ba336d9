"""Topics that changes go to, exactly once for readers of committed records (KIP-618's way).

A sink has one transactional producer, with a transactional id of its own for ever. Each delivery is
one transaction: its changes, and a record of its id and cursor in a compacted topic, under the
sink's key. Whoever takes the id over ends what another producer of it had begun and fences that
producer; then the compacted topic, read to its end, says which delivery was the last.

INV-KAFKA-SINK-1: a delivery's changes and its cursor are committed together or not at all.
INV-KAFKA-SINK-2: a delivery is produced only by a producer that has read the cursor after it took
    the transactional id over.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.errors import MillpondError
from millpond.runtime.kafka.options import read_config
from millpond.runtime.kafka.packages import import_kafka
from millpond.runtime.secrets_file import hide_secrets
from millpond.service.json_values import dumps
from millpond.service.sinks.sender import Delivery, DeliveryError
from millpond.service.sinks.webhook import write_changes

log = logging.getLogger("millpond.sinks")

#: Where cursors are kept unless the option `cursor_topic` says so.
CURSOR_TOPIC = "millpond_cursors"
#: How long a broker may take for one step, and for the open transactions of others to end.
_SECONDS, _PATIENCE = 30.0, 90.0
_TRANSACTION_MS = 60_000
_LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class _Delivered:
    """The last delivery that is in the topic."""

    number: int
    cursor: str


class KafkaSender:
    """The sender of sinks of the format 'kafka'."""

    def __init__(self, options: Mapping[str, Any], hosts: Sequence[str] | None) -> None:
        """Prepare; nothing is connected to yet.

        Args:
            options: The sink's options.
            hosts: What may be connected to. A client that has to be confined has no Kafka sinks,
                because brokers name the hosts of others.
        """
        self._kafka: Any = None
        self._options = options
        self._confined = hosts is not None
        self._cursors = str(options.get("cursor_topic", CURSOR_TOPIC))
        self._producer: Any = None
        self._last: _Delivered | None = None
        self._interrupted = threading.Event()

    def send(self, delivery: Delivery) -> None:
        """Commit a delivery, unless the topic has it already.

        Raises:
            DeliveryError: as `Sender.send`; final if another producer has taken the sink over, or
                the cursor is gone or ahead of this store.
        """
        if self._confined:
            raise DeliveryError("clients may not have Kafka sinks", is_final=True)
        try:
            self._kafka = kafka = import_kafka()
        except MillpondError as error:
            raise DeliveryError(error.primary) from error
        try:
            identity, _, number = delivery.id.rpartition(".")
            if self._producer is None:
                self._take_over(identity)
                self._check_cursor(identity, int(number), delivery.cursor)
            if self._last is not None and self._last.cursor == delivery.cursor:
                return
            self._commit(identity, delivery, int(number))
        except kafka.KafkaException as error:
            self._let_go()
            raise _delivery_error(kafka, error) from error
        except MillpondError as error:
            self._let_go()
            raise DeliveryError(f"{error.primary}: {error.detail}") from error
        except BaseException:
            self._let_go()
            raise

    def interrupt(self) -> None:
        """Have `send` fail soon."""
        self._interrupted.set()

    def close(self) -> None:
        """Let the producer go; what it had begun and not committed is never read."""
        self._let_go()

    # -- inside --------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        settings = {"bootstrap.servers": self._options["bootstrap"], "client.id": "millpond"}
        config = self._options.get("config")
        return settings | (read_config(config) if config else {})

    def _take_over(self, identity: str) -> None:
        """Fence earlier producers of the sink, and read the cursor they left."""
        self._make_cursor_topic()
        producer = self._kafka.Producer(
            {
                **self._settings(),
                "transactional.id": f"millpond/{identity}",
                "transaction.timeout.ms": _TRANSACTION_MS,
                "message.timeout.ms": _TRANSACTION_MS,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
            },
            logger=log,
        )
        producer.init_transactions(_SECONDS)
        self._last = self._read_cursor(identity)
        self._producer = producer

    def _make_cursor_topic(self) -> None:
        kafka = self._kafka
        admin = kafka.admin.AdminClient(self._settings(), logger=log)
        asked = admin.create_topics(
            [kafka.admin.NewTopic(self._cursors, 1, config={"cleanup.policy": "compact"})],
            request_timeout=_SECONDS,
        )
        for made in asked.values():
            try:
                made.result(_SECONDS)
            except kafka.KafkaException as error:
                if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def _read_cursor(self, identity: str) -> _Delivered | None:
        """Read the cursors' topic to the end it has now; return the sink's last delivery.

        An open transaction of another sink hides what is committed behind it. So the end is that of
        all records, and the reader waits until it may read up to there.
        """
        kafka = self._kafka
        place = kafka.TopicPartition(self._cursors, 0)
        admin = kafka.admin.AdminClient(self._settings(), logger=log)
        (asked,) = admin.list_offsets(
            {place: kafka.admin.OffsetSpec.latest()},
            isolation_level=kafka.IsolationLevel.READ_UNCOMMITTED,
            request_timeout=_SECONDS,
        ).values()
        end = asked.result(_SECONDS + 5).offset
        consumer = kafka.Consumer(
            {
                **self._settings(),
                "group.id": "millpond",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            },
            logger=log,
        )
        found: _Delivered | None = None
        try:
            place.offset = kafka.OFFSET_BEGINNING
            consumer.assign([place])
            deadline, at = time.monotonic() + _PATIENCE, 0
            while at < end:
                self._look()
                if time.monotonic() > deadline:
                    raise DeliveryError("the end of the cursors' topic cannot be read yet")
                for message in consumer.consume(1_000, timeout=_LOOK_SECONDS):
                    if message.error() is not None:
                        if message.error().code() != kafka.KafkaError._PARTITION_EOF:
                            raise kafka.KafkaException(message.error())
                        at = max(at, message.offset())
                        continue
                    at = message.offset() + 1
                    if message.key() == identity.encode():
                        found = _read_delivered(message.value())
        finally:
            consumer.close()
        return found

    def _check_cursor(self, identity: str, number: int, cursor: str) -> None:
        """Refuse to go on where the topic and the store do not fit.

        Raises:
            DeliveryError: final.
        """
        if self._last is None:
            if number > 1:
                raise DeliveryError(
                    f'the cursor of {identity} is gone from topic "{self._cursors}"; what was '
                    "delivered before may come again, so somebody has to decide: DROP and CREATE "
                    "the sink",
                    is_final=True,
                )
        elif self._last.number >= number and self._last.cursor != cursor:
            raise DeliveryError(
                f'topic "{self._cursors}" has delivery {self._last.number} of {identity}, and '
                f"this store comes to delivery {number} only: it is older than the topic",
                is_final=True,
            )

    def _commit(self, identity: str, delivery: Delivery, number: int) -> None:
        producer, topic = self._producer, self._options["topic"]
        failed: list[Any] = []

        def note(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        producer.begin_transaction()
        for change in write_changes(delivery.changes):
            key = str(change["query"]).encode()
            self._produce(topic, key, dumps(change), note)
        written = json.dumps({"delivery": number, "cursor": delivery.cursor}).encode()
        self._produce(self._cursors, identity.encode(), written, note)
        while producer.flush(_LOOK_SECONDS):
            self._look()
            if failed:
                break
        if failed:
            raise self._kafka.KafkaException(failed[0])
        self._look()
        producer.commit_transaction(_SECONDS)
        self._last = _Delivered(number, delivery.cursor)

    def _produce(self, topic: str, key: bytes, value: bytes, note: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=note)
            except BufferError:
                self._producer.poll(_LOOK_SECONDS)
                self._look()
                continue
            self._producer.poll(0)
            return

    def _look(self) -> None:
        if self._interrupted.is_set():
            raise DeliveryError("the pond is being closed")

    def _let_go(self) -> None:
        """Forget the producer; the next one takes over, and ends what this one had begun."""
        producer, self._producer, self._last = self._producer, None, None
        if producer is not None:
            producer.purge()


def _read_delivered(value: bytes | None) -> _Delivered | None:
    if value is None:
        return None
    facts = json.loads(value)
    return _Delivered(int(facts["delivery"]), str(facts["cursor"]))


def _delivery_error(kafka: Any, error: Any) -> DeliveryError:
    """Say what the client said; final if another producer has taken over."""
    given = error.args[0]
    code = given.code() if hasattr(given, "code") else None
    errors = kafka.KafkaError
    if code in (errors._FENCED, errors.PRODUCER_FENCED, errors.INVALID_PRODUCER_EPOCH):
        return DeliveryError("another Millpond has taken this sink over", is_final=True)
    return DeliveryError(hide_secrets(given.str() if hasattr(given, "str") else str(error)))
