"""What Kafka's clients say: each text once a minute, and the reason why nobody answers."""

from __future__ import annotations

import logging

import pytest

from millpond.runtime.kafka import client_log
from millpond.runtime.kafka.client_log import Complaints, Repeats


def test_a_text_is_logged_once_a_minute_whatever_its_numbers_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(client_log.time, "monotonic", lambda: now)
    repeats = Repeats()

    def logs(text: str) -> bool:
        return repeats.filter(logging.LogRecord("k", logging.ERROR, "", 1, text, (), None))

    assert logs("FAIL 1: refused (after 3ms)")
    assert not logs("FAIL 2: refused (after 14ms)")
    assert logs("FAIL 1: no such host")
    now = 61.0
    assert logs("FAIL 3: refused (after 15ms)")


def test_the_reason_is_the_last_of_those_that_say_why() -> None:
    client = pytest.importorskip("confluent_kafka")
    complaints = Complaints()
    for code, text in (
        (client.KafkaError._AUTHENTICATION, "wrong password"),
        (client.KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
    ):
        complaints.note(client.KafkaError(code, text))
    assert complaints.last == "wrong password"
