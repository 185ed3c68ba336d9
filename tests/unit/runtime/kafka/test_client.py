"""Asking brokers for offsets while partitions change their leader; with brokers: `tests/spark`."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.runtime.kafka import client
from millpond.runtime.kafka.client import Topics
from millpond.runtime.kafka.settings import KafkaOptions

kafka = pytest.importorskip("confluent_kafka")


class Admin:
    """Answers for partition 1 only after some errors."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.asked: list[list[int]] = []

    def list_offsets(self, specs: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        self.asked.append(sorted(place.partition for place in specs))
        answers: dict[Any, Future[Any]] = {}
        for place in specs:
            answers[place] = Future()
            if place.partition == 1 and self.codes:
                error = kafka.KafkaError(self.codes.pop(0))
                answers[place].set_exception(kafka.KafkaException(error))
            else:
                answers[place].set_result(
                    SimpleNamespace(offset=10 + place.partition, leader_epoch=7)
                )
        return answers


def topics(admin: Admin) -> Topics:
    start, loss, isolation = "earliest", "stop", "read_committed"
    more = (None, None, None, ",", {})
    given = ("s", "127.0.0.1:1", ("t",), "json", start, loss, isolation, 9, *more)
    made = Topics(KafkaOptions(*given))
    made._admin = admin
    return made


def test_a_partition_without_a_leader_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_RETRY_SECONDS", 0)
    admin = Admin(kafka.KafkaError.NOT_LEADER_FOR_PARTITION, kafka.KafkaError.LEADER_NOT_AVAILABLE)
    assert topics(admin).earliest([("t", 0), ("t", 1)]) == {"t": {"0": 10, "1": 11}}
    assert admin.asked == [[0, 1], [1], [1]]


def test_epochs_are_those_of_the_ends() -> None:
    asked = topics(Admin())
    asked.latest([("t", 0), ("t", 1)])
    assert asked.epochs == {"t": {"0": 7, "1": 7}}
    asked.latest([])
    assert asked.epochs == {}


def test_another_error_is_the_sources() -> None:
    with pytest.raises(MillpondError, match="cannot be read") as refused:
        topics(Admin(kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED)).latest([("t", 1)])
    assert refused.value.code == "DATA-502"


def test_a_leader_that_never_comes_is_waited_for_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "_RETRY_SECONDS", 0)
    monkeypatch.setattr(client, "_SECONDS", 0.05)
    with pytest.raises(MillpondError, match="cannot be read"):
        topics(Admin(*[kafka.KafkaError.LEADER_NOT_AVAILABLE] * 1_000_000)).latest([("t", 1)])
