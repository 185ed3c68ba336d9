"""Topics that changes go to, exactly once for readers of committed records (KIP-618's way).

A sink has one transactional producer, with a transactional id of its own for ever. Each delivery is
one transaction: its changes, and a record of its id and cursor in a compacted topic, under the
sink's key. Whoever takes the id over ends what another producer of it had begun and fences that
producer; then the compacted topic, read to its end, says which delivery was the last.

Brokers fence a producer, too, whose transaction was open for too long: because they were away, or
this process stood still. So being fenced does not mean that another sender has taken over. Each
record of the compacted topic names its sender, and a sender that takes over commits such a record
before anything else. Whoever is fenced takes the id over again only if the last record is its own.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millpond.catalog.sink_def import SinkDef
from millpond.runtime.kafka.client_log import Complaints, log
from millpond.runtime.kafka.packages import import_kafka
from millpond.runtime.kafka.settings import client_settings
from millpond.runtime.secrets_file import hide_secrets
from millpond.service.json_values import dumps
from millpond.service.sinks.cursor_sender import CursorSender, Delivered
from millpond.service.sinks.kafka_upserts import Record, Upserts
from millpond.service.sinks.sender import Delivery, DeliveryError
from millpond.service.sinks.webhook import write_changes

#: Where cursors are kept unless the option `cursor_topic` says so.
CURSOR_TOPIC = "millpond_cursors"
#: How long a broker may take for one step, and for the open transactions of others to end.
_SECONDS, _PATIENCE = 30.0, 90.0
_TRANSACTION_MS = 60_000
#: What the client sends at most unless its settings say so.
_MOST_MESSAGE = 1_000_000
_LOOK_SECONDS = 0.25


class KafkaSender(CursorSender):
    """The sender of sinks of the format 'kafka'."""

    receivers, receiver = "Kafka", "topic"

    def __init__(self, sink: SinkDef, options: Mapping[str, Any]) -> None:
        """Prepare; nothing is connected to yet.

        Args:
            sink: The sink. One of a client, who has to be confined, is refused: brokers name the
                hosts of others. With a key the topic is kept equal to the query's answer.
            options: Its options, given or not.
        """
        super().__init__(is_confined=sink.hosts is not None)
        self._kafka: Any = None
        self._key = sink.key
        self._upserts: Upserts | None = None
        self._options = options
        self._complaints = Complaints()
        self._admin: Any = None
        self._cursors = str(options.get("cursor_topic", CURSOR_TOPIC))
        #: What records name this sender by, and who the last record is of, as far as it knows.
        self._me, self._owner = uuid.uuid4().hex, ""
        #: How many rows the topic has to have, by the last record; None if it does not say.
        self._rows: int | None = None
        #: Whether brokers have a record of this sender.
        self._has_claimed = False

    # -- inside --------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        settings = client_settings(self._options["bootstrap"], self._options.get("config"))
        return {**settings, "error_cb": self._complaints.note}

    def _make_admin(self) -> Any:
        self._admin = self._kafka.admin.AdminClient(self._settings(), logger=log)
        return self._admin

    def _load_client(self) -> None:
        self._kafka = import_kafka()

    def _take_over(self, identity: str) -> Delivered:
        """Fence earlier producers of the sink, and read the cursor they left.

        Raises:
            DeliveryError: final, this sender had the sink, and another one has taken it over.
        """
        self._complaints.last = None
        self._make_cursor_topic()
        if self._has_claimed:  # look first: to take the id over would fence the other sender
            # A record of somebody who died before committing it also says who took over.
            self._check_owner(self._read_last(identity, is_committed=False)[1])
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
        self._connection = producer
        last, self._owner, self._rows = self._read_last(identity)
        if self._has_claimed:
            self._check_owner(self._owner)
        return last

    def _check_owner(self, owner: str) -> None:
        if owner != self._me:
            raise DeliveryError("another Millpond has taken this sink over", is_final=True)

    def _read_last(
        self, identity: str, is_committed: bool = True
    ) -> tuple[Delivered, str, int | None]:
        """Read which delivery was the last, whose record says so, and how many rows there are."""
        records = self._read_topic(self._cursors, is_committed)
        kept = [value for key, value in records if key == identity.encode()]
        return _read_record(kept[-1] if kept else None)

    def _check_cursor(self, identity: str, number: int, delivery: Delivery) -> None:
        """Refuse as every sink does; then claim the sink, and learn what the topic has.

        Whoever is refused claims nothing: the sender it has fenced goes on.
        """
        super()._check_cursor(identity, number, delivery)
        if self._key:
            topic = self._options["topic"]
            self._check_compacted(topic)
            self._upserts = Upserts(self._key, topic, self._read_topic(topic))
            self._upserts.check_rows(self._rows)
        if self._owner != self._me:
            self._connection.begin_transaction()
            self._produce_all([(self._cursors, identity.encode(), self._record(self._last))])
            self._connection.commit_transaction(_SECONDS)
            self._owner, self._has_claimed = self._me, True

    def _record(self, last: Delivered) -> bytes:
        facts: dict[str, Any] = {"delivery": last.number, "cursor": last.cursor, "sender": self._me}
        if self._upserts is not None and last.number:
            facts["rows"] = self._upserts.count_rows()
        return json.dumps(facts).encode()

    def _make_cursor_topic(self) -> None:
        kafka = self._kafka
        admin = self._make_admin()
        asked = admin.create_topics(
            [kafka.admin.NewTopic(self._cursors, 1, config={"cleanup.policy": "compact"})],
            request_timeout=_SECONDS,
        )
        for made in asked.values():
            try:
                made.result(_SECONDS + 5)
            except kafka.KafkaException as error:
                if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def _check_compacted(self, topic: str) -> None:
        """Refuse to keep an answer in a topic that deletes records that are old.

        Raises:
            DeliveryError: final.
        """
        kafka = self._kafka
        admin = self._make_admin()
        place = kafka.admin.ConfigResource(kafka.admin.ResourceType.TOPIC, topic)
        (asked,) = admin.describe_configs([place], request_timeout=_SECONDS).values()
        policy = asked.result(_SECONDS + 5)["cleanup.policy"].value
        if policy != "compact":
            raise DeliveryError(
                f'the topic "{topic}" has cleanup.policy={policy}, so rows that stay as they are '
                "would be deleted; set it to compact",
                is_final=True,
            )

    def _read_topic(
        self, topic: str, is_committed: bool = True
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Read the records of a topic, up to the end it has now: key and value of each.

        An open transaction of another sink hides what is committed behind it. So the end is that of
        all records, and the reader waits until it may read up to there.
        """
        kafka = self._kafka
        admin = self._make_admin()
        known = admin.list_topics(topic, timeout=_SECONDS).topics[topic]
        if known.error is not None:
            raise kafka.KafkaException(known.error)
        places = [kafka.TopicPartition(topic, number) for number in known.partitions]
        asked = admin.list_offsets(
            {place: kafka.admin.OffsetSpec.latest() for place in places},
            isolation_level=kafka.IsolationLevel.READ_UNCOMMITTED,
            request_timeout=_SECONDS,
        )
        left = {place.partition: end.result(_SECONDS + 5).offset for place, end in asked.items()}
        left = {number: end for number, end in left.items() if end}
        consumer = kafka.Consumer(
            {
                **self._settings(),
                "group.id": "millpond",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed" if is_committed else "read_uncommitted",
            },
            logger=log,
        )
        try:
            consumer.assign([kafka.TopicPartition(topic, n, kafka.OFFSET_BEGINNING) for n in left])
            deadline = time.monotonic() + _PATIENCE
            while left:
                self._stop_if_interrupted()
                if time.monotonic() > deadline:
                    raise DeliveryError(f'the end of the topic "{topic}" cannot be read yet')
                for message in consumer.consume(1_000, timeout=_LOOK_SECONDS):
                    at = message.offset()
                    if message.error() is None:
                        deadline = time.monotonic() + _PATIENCE
                        yield message.key(), message.value()
                        at += 1
                    elif message.error().code() != kafka.KafkaError._PARTITION_EOF:
                        raise kafka.KafkaException(message.error())
                    if at >= left.get(message.partition(), at + 1):
                        del left[message.partition()]
        finally:
            consumer.close()

    def _say_cursor_gone(self, identity: str, delivery: Delivery) -> str | None:
        if delivery.answer is not None and self._is_empty(self._options["topic"]):
            return None  # the whole answer goes into an empty topic
        return (
            f'the cursor of {identity} is gone from topic "{self._cursors}"; what was '
            "delivered before may come again, so somebody has to decide: DROP and CREATE "
            "the sink"
        )

    def _is_empty(self, topic: str) -> bool:
        rows = dict(self._read_topic(topic))
        return all(value is None for value in rows.values())

    def _commit(self, identity: str, delivery: Delivery, number: int) -> None:
        topic = self._options["topic"]
        records = [(topic, key, value) for key, value in self._write(delivery)]
        record = self._record(Delivered(number, delivery.cursor))
        self._connection.begin_transaction()
        self._produce_all([*records, (self._cursors, identity.encode(), record)])
        self._stop_if_interrupted()
        self._connection.commit_transaction(_SECONDS)
        if self._upserts is not None:
            self._upserts.settle()

    def _produce_all(self, records: Sequence[tuple[str, bytes, bytes | None]]) -> None:
        """Write records (topic, key and value of each), and wait until the brokers have them."""
        failed: list[Any] = []

        def note(error: Any, _: Any) -> None:
            # Nothing else is asked here: the client may call back with an exception raised already.
            if error is not None:
                failed.append(error)

        for topic, key, value in records:
            self._produce(topic, key, value, note)
        while self._connection.flush(_LOOK_SECONDS):
            self._stop_if_interrupted()
            if self._find_reason(failed) is not None:
                break
        if failed:
            raise self._kafka.KafkaException(self._find_reason(failed) or failed[0])

    def _find_reason(self, failed: Sequence[Any]) -> Any:
        """The first error that is a reason; what waits behind a refused record is only purged."""
        errors = self._kafka.KafkaError
        purged = (errors._PURGE_QUEUE, errors._PURGE_INFLIGHT)
        return next((error for error in failed if error.code() not in purged), None)

    def _write(self, delivery: Delivery) -> Sequence[Record]:
        """Return the records of a delivery: its changes, or what they make of the answer's rows."""
        if self._upserts is not None:
            return self._upserts.write(delivery, is_first=not self._last.number)
        changes = write_changes(delivery.changes)
        return [(str(change["query"]).encode(), dumps(change)) for change in changes]

    def _produce(self, topic: str, key: bytes, value: bytes | None, note: Any) -> None:
        while True:
            try:
                self._connection.produce(topic, value, key, on_delivery=note)
            except BufferError:
                self._connection.poll(_LOOK_SECONDS)
                self._stop_if_interrupted()
                continue
            except self._kafka.KafkaException as error:
                if error.args[0].code() != self._kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                most = self._settings().get("message.max.bytes", _MOST_MESSAGE)
                size, shown = len(key) + len(value or b""), key[:80].decode(errors="replace")
                raise DeliveryError(
                    f"a record of {size:,} bytes, with the key {shown}, is too large: the client "
                    f"sends at most message.max.bytes={most}; raise that in the sink's config, and "
                    f'max.message.bytes of the topic "{topic}"'
                ) from None
            self._connection.poll(0)
            return

    def _explain(self, error: BaseException) -> DeliveryError | None:
        """Return what the client said; who has taken over is found out by the next attempt."""
        if isinstance(error, TimeoutError):
            return DeliveryError(self._complaints.last or "no broker answers in time")
        if isinstance(error, SystemError) and error.__cause__ is not None:
            # The client raises what is fatal and calls back all the same, which Python forbids.
            error = error.__cause__
        if self._kafka is None or not isinstance(error, self._kafka.KafkaException):
            return None
        given = error.args[0]
        code = given.code() if hasattr(given, "code") else None
        errors = self._kafka.KafkaError
        if code in (errors._FENCED, errors.PRODUCER_FENCED, errors.INVALID_PRODUCER_EPOCH):
            return DeliveryError("the brokers have ended its transaction")
        said = given.str() if hasattr(given, "str") else str(error)
        if code == errors.MSG_SIZE_TOO_LARGE:
            topic = self._options["topic"]
            return DeliveryError(f'{said}; raise max.message.bytes of the topic "{topic}"')
        if self._admin is not None:
            self._admin.poll(0)  # has it call back
        if code in (errors._TIMED_OUT, errors._TRANSPORT, errors._ALL_BROKERS_DOWN):
            said = self._complaints.last or said
        return DeliveryError(hide_secrets(said))

    def _disconnect(self, connection: Any) -> None:
        self._upserts = None
        connection.purge()  # the next producer ends what this one had begun


def _read_record(value: bytes | None) -> tuple[Delivered, str, int | None]:
    if value is None:
        return Delivered(), "", None
    facts = json.loads(value)
    last = Delivered(int(facts["delivery"]), str(facts["cursor"]))
    return last, str(facts.get("sender", "")), facts.get("rows")
