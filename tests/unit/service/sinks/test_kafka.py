"""What a sink to Kafka decides without a broker; with one: `tests/spark/kafka`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millpond.catalog.sink_def import SinkDef
from millpond.service.sinks.kafka import KafkaSender
from millpond.service.sinks.sender import Delivery, DeliveryError

OPTIONS = {"bootstrap": "127.0.0.1:1", "topic": "t"}
SINK = SinkDef(7, "s", "kafka", OPTIONS)


def test_a_client_has_no_sinks_to_kafka():
    pytest.importorskip("confluent_kafka")
    confined = KafkaSender(replace(SINK, hosts=("h",)), OPTIONS)
    with pytest.raises(DeliveryError, match="clients may not") as stopped:
        confined.send(Delivery("3f2a9c.7.1", "s", "c", [], []))
    assert stopped.value.is_final


def test_nobody_answers_because_of_a_password_that_is_wrong():
    """Calls of the client say that time is up; the reason is what its callback was told."""
    client = pytest.importorskip("confluent_kafka")
    sender = KafkaSender(SINK, OPTIONS)
    sender._load_client()
    timed_out = client.KafkaException(client.KafkaError(client.KafkaError._TIMED_OUT))
    assert "Timed out" in str(sender._explain(timed_out))
    assert str(sender._explain(TimeoutError())) == "no broker answers in time"
    said = client.KafkaError(client.KafkaError._AUTHENTICATION, "Invalid password")
    sender._settings()["error_cb"](said)
    for error in (timed_out, TimeoutError()):
        assert str(sender._explain(error)) == "Invalid password"


def test_a_producer_that_was_fenced_is_told_from_any_other_trouble():
    client = pytest.importorskip("confluent_kafka")
    for code, fenced in (
        (client.KafkaError._FENCED, True),
        (client.KafkaError.INVALID_PRODUCER_EPOCH, True),
        (client.KafkaError.PRODUCER_FENCED, True),
        (client.KafkaError._TIMED_OUT, False),
        (client.KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
    ):
        sender = KafkaSender(SINK, OPTIONS)
        sender._load_client()
        explained = sender._explain(client.KafkaException(client.KafkaError(code)))
        assert explained is not None
        # Whether another has taken the sink over is seen when it is taken back.
        assert ("ended its transaction" in str(explained)) is fenced
        assert not explained.is_final


def test_why_a_record_is_refused_is_said_though_others_are_purged_before():
    client = pytest.importorskip("confluent_kafka")

    class Connection:
        def __init__(self, *codes: int) -> None:
            self._errors = [client.KafkaError(code) for code in codes]
            self._notes = []

        def produce(self, topic, value, key, on_delivery):
            self._notes.append(on_delivery)

        def poll(self, seconds: float) -> None: ...

        def flush(self, seconds: float) -> int:
            self._notes.pop(0)(self._errors.pop(0), None)
            return len(self._notes)

    records = [("t", b"k", b"v")] * 2
    purged, queued = client.KafkaError._PURGE_QUEUE, client.KafkaError._PURGE_INFLIGHT
    refused = client.KafkaError.MSG_SIZE_TOO_LARGE
    for codes, said in (
        ((purged, refused), refused),
        ((queued, refused), refused),
        ((refused, purged), refused),
        ((purged, queued), purged),
    ):
        sender = KafkaSender(SINK, OPTIONS)
        sender._load_client()
        sender._connection = Connection(*codes)
        with pytest.raises(client.KafkaException) as raised:
            sender._produce_all(records)
        assert raised.value.args[0].code() == said
