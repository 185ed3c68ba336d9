"""What a sink to Kafka decides without a broker; with one: `tests/spark/test_kafka_sinks.py`."""

from __future__ import annotations

import pytest

from millpond.service.sinks import kafka
from millpond.service.sinks.kafka import KafkaSender
from millpond.service.sinks.sender import Delivery, DeliveryError

OPTIONS = {"bootstrap": "127.0.0.1:1", "topic": "t"}


def sender(last: tuple[int, str] | None = None) -> KafkaSender:
    made = KafkaSender(OPTIONS, None)
    made._last = None if last is None else kafka._Delivered(*last)
    return made


@pytest.mark.parametrize(
    ("last", "number"),
    [(None, 1), ((1, "a"), 2), ((2, "b"), 2), ((2, "b"), 3), ((7, "x"), 9)],
)
def test_a_topic_that_fits_the_store(last, number):
    sender(last)._check_cursor("3f2a9c.7", number, "b")


@pytest.mark.parametrize(
    ("last", "number", "words"),
    [(None, 2, "is gone"), ((2, "x"), 2, "older than the topic"), ((5, "x"), 2, "delivery 5")],
)
def test_a_topic_that_does_not_fit_the_store(last, number, words):
    with pytest.raises(DeliveryError, match=words) as stopped:
        sender(last)._check_cursor("3f2a9c.7", number, "b")
    assert stopped.value.is_final


def test_a_client_has_no_sinks_to_kafka():
    pytest.importorskip("confluent_kafka")
    confined = KafkaSender(OPTIONS, ("h",))
    with pytest.raises(DeliveryError, match="clients may not") as stopped:
        confined.send(Delivery("3f2a9c.7.1", "s", "c", [], []))
    assert stopped.value.is_final


def test_a_producer_that_was_fenced_is_told_from_any_other_trouble():
    client = pytest.importorskip("confluent_kafka")
    for code, final in (
        (client.KafkaError._FENCED, True),
        (client.KafkaError.INVALID_PRODUCER_EPOCH, True),
        (client.KafkaError.PRODUCER_FENCED, True),
        (client.KafkaError._TIMED_OUT, False),
        (client.KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
    ):
        error = client.KafkaException(client.KafkaError(code))
        assert kafka._delivery_error(client, error).is_final == final


def test_who_closes_the_pond_does_not_wait():
    closing = sender()
    closing.interrupt()
    with pytest.raises(DeliveryError, match="being closed"):
        closing._look()
