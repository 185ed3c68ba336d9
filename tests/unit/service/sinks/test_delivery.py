"""Deliveries of a sink: nothing is lost, and one id always stands for the same changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.changes.feeds.test_feed import (
    SCHEMA,
    advance,
    fetch_all,
    open_pond,
    push,
    register,
)

from millpond.errors import MillpondError
from millpond.service.changes import shared_pages
from millpond.service.changes.feeds import feed_pages
from millpond.service.pond import Pond
from millpond.service.sinks import delivery, sinks
from millpond.service.sinks.delivery import Deliverer
from millpond.service.sinks.sender import Delivery, DeliveryError
from millpond.state.epoch.epoch_change import StaleChange


class Recorder:
    """A sender that keeps what it is given, and fails as often as it is told to."""

    def __init__(self, *_: Any) -> None:
        self.sent: list[tuple[str, list[tuple[str | None, int]], list[str]]] = []
        self.failing = 0
        self.error: Exception = DeliveryError("not now")

    def send(self, sent: Delivery) -> None:
        changes = [(event.query, event.number) for event in sent.changes]
        self.sent.append((sent.id, changes, [event.kind for event in sent.told]))
        if self.failing:
            self.failing -= 1
            raise self.error

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sinks deliver when a test says so; the key is there."""
    monkeypatch.setattr(sinks.Sinks, "_begin", lambda *_: None)
    monkeypatch.setenv("HOOK_KEY", "0123456789abcdef")


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_pond(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        yield pond


def create(pond: Pond, batch: int = 3, selected: str = "QUERIES TAGGED fed") -> None:
    pond.execute(
        f"CREATE SINK k USING http (url 'http://h', key_env 'HOOK_KEY', batch {batch})"
        f" FROM {selected}"
    )


def deliverer(pond: Pond, sender: Recorder) -> Deliverer:
    parts = pond._components
    return Deliverer(parts.sinks.find("k"), parts.log, parts.feeds, sender)


def deliver_all(deliverer: Deliverer) -> None:
    while deliverer.deliver():
        pass


def given(sender: Recorder) -> list[tuple[str | None, int]]:
    """What a receiver has that drops what comes with an id it has seen."""
    taken: dict[str, list[tuple[str | None, int]]] = {}
    for id, changes, _ in sender.sent:
        taken.setdefault(id, changes)
    return [change for changes in taken.values() for change in changes]


def expected(pond: Pond) -> set[tuple[str | None, int]]:
    return {(query, change[0]) for query, found in fetch_all(pond).items() for change in found}


def test_everything_is_delivered_in_numbered_batches(pond: Pond) -> None:
    register(pond, "q0")
    register(pond, "q1", least=2)
    create(pond)
    sender = Recorder()
    worker = deliverer(pond, sender)
    push(pond, "s", (1, 1), (2, 3), (9, 2))
    advance(pond)
    deliver_all(worker)
    assert set(given(sender)) == expected(pond)
    assert len(given(sender)) == len(set(given(sender)))
    assert [id.split(".")[2] for id, _, _ in sender.sent] == [
        str(n) for n in range(1, len(sender.sent) + 1)
    ]
    assert all(len(changes) <= 3 for _, changes, _ in sender.sent)
    position = worker.find_sink().position
    assert (position.changes, position.pending) == (len(expected(pond)), None)


class Narrow(Recorder):
    """A receiver that takes few changes at a time."""

    most = 2

    def send(self, sent: Delivery) -> None:
        if len(sent.changes) > self.most:
            self.refused.append(sent.id)
            raise DeliveryError("too large", is_too_large=True)
        super().send(sent)

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []


def test_what_is_too_large_for_its_receiver_comes_in_smaller_deliveries(pond: Pond) -> None:
    register(pond, "q0")
    register(pond, "q1", least=2)
    create(pond, batch=100)
    sender = Narrow()
    worker = deliverer(pond, sender)
    push(pond, "s", *((1 + n // 2, 3) for n in range(30)), (40, 3))
    advance(pond)
    deliver_all(worker)
    for name in ("q0", "q1"):
        numbers = [number for query, number in given(sender) if query == name]
        assert numbers == list(range(1, len(numbers) + 1))
    assert set(given(sender)) == expected(pond)
    assert len(given(sender)) == len(expected(pond)) >= 24
    # No id stands for two deliveries, and few of them were refused.
    ids = [id for id, _, _ in sender.sent]
    assert len({*ids, *sender.refused}) == len(ids) + len(sender.refused)
    assert len(sender.refused) <= 6 + len(ids)
    assert worker.failures == 0


def test_one_change_that_is_too_large_is_an_attempt_that_failed(pond: Pond) -> None:
    register(pond, "q0")
    create(pond)
    sender = Narrow()
    sender.most = 0
    worker = deliverer(pond, sender)
    push(pond, "s", (1, 1), (2, 2), (9, 2))
    advance(pond)
    for _ in range(2):
        while worker.failures == 0:
            try:
                assert worker.deliver()
            except DeliveryError:
                break
    assert (worker.failures, worker.trouble) == (1, "too large")
    sender.most = 5
    deliver_all(worker)
    assert set(given(sender)) == expected(pond)


def test_a_failed_delivery_is_sent_again_with_its_id(pond: Pond) -> None:
    register(pond, "q0")
    create(pond, batch=100)
    sender = Recorder()
    sender.failing = 2
    worker = deliverer(pond, sender)
    push(pond, "s", (1, 1), (9, 2))
    advance(pond)
    waits = []
    for _ in range(2):
        with pytest.raises(DeliveryError):
            worker.deliver()
        waits.append(worker.wait_seconds())
    assert (worker.failures, worker.trouble, waits) == (2, "not now", [1.0, 2.0])
    push(pond, "s", (19, 2))
    advance(pond)
    assert worker.deliver()
    assert (worker.failures, worker.failed, worker.trouble) == (0, 2, None)
    assert sender.sent[0] == sender.sent[1] == sender.sent[2]
    deliver_all(worker)
    assert set(given(sender)) == expected(pond)


def test_an_error_that_nobody_thought_of_is_an_attempt_that_failed(pond: Pond) -> None:
    """The sink goes on, and is dead after as many as of others; its thread ended silently."""
    register(pond, "q0")
    create(pond, batch=100)
    pond.execute("ALTER SINK k SET (attempts = 3)")
    push(pond, "s", (1, 1), (9, 2))
    advance(pond)
    sender = Recorder()
    sender.error, sender.failing = TimeoutError("nobody answers"), 2
    delivers = deliverer(pond, sender)
    for failures in (1, 2):
        with pytest.raises(DeliveryError, match="TimeoutError: nobody answers"):
            delivery._try_once(delivers, delivers.find_sink())
        assert (delivers.failures, delivers.failed) == (failures, failures)
        assert delivers.trouble == "TimeoutError: nobody answers"
    assert delivery._try_once(delivers, delivers.find_sink())
    assert set(given(sender)) == expected(pond)
    push(pond, "s", (19, 2))
    advance(pond)
    sender.failing = 9
    for _ in range(3):
        with pytest.raises(DeliveryError):
            delivery._try_once(delivers, delivers.find_sink())
    assert delivers.find_sink().dead == "TimeoutError: nobody answers (3 attempts failed)"


def test_a_delivery_that_cannot_be_begun_is_told(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query whose answer fails has nothing to send; SHOW SINKS said that the sink delivers."""
    register(pond, "q0")
    create(pond)
    delivers = deliverer(pond, Recorder())

    def begin(_: Any) -> None:
        raise DeliveryError("the query has no answer")

    monkeypatch.setattr(delivers, "_begin", begin)
    with pytest.raises(DeliveryError):
        delivery._try_once(delivers, delivers.find_sink())
    assert delivers.trouble == "the query has no answer"
    monkeypatch.setattr(delivers, "_begin", lambda _: None)
    assert not delivery._try_once(delivers, delivers.find_sink())
    assert delivers.trouble is None


@pytest.mark.parametrize("seed", range(6))
def test_wherever_a_process_dies_nothing_is_lost_and_ids_stay_true(
    tmp_path: Path, seed: int
) -> None:
    """A death is a deliverer that is thrown away, before or after the receiver has the batch."""
    dice = random.Random(seed)
    sender = Recorder()
    with open_pond(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        for number in range(4):
            register(pond, f"q{number}", "sr"[number % 2], number)
        create(pond, batch=dice.choice([1, 2, 5, 100]))
        worker = deliverer(pond, sender)
        clock = {"s": 0, "r": 0}
        for _ in range(40):
            stream = dice.choice("sr")
            clock[stream] += dice.randint(1, 3)
            push(pond, stream, (clock[stream], dice.randint(0, 5)))
            advance(pond)
            if dice.random() < 0.3:
                register(pond, f"late{clock}", stream)
            sender.failing = dice.choice([0, 0, 1])
            try:
                worker.deliver()
            except DeliveryError:
                worker = deliverer(pond, sender)
        sender.failing = 0
        deliver_all(worker)
        by_id: dict[str, Any] = {}
        for id, changes, _ in sender.sent:
            assert by_id.setdefault(id, changes) == changes
        assert set(given(sender)) == expected(pond)
        assert len(given(sender)) == len(set(given(sender)))


def test_what_is_left_of_a_pending_delivery_gets_another_id(pond: Pond) -> None:
    register(pond, "q0")
    register(pond, "q1")
    create(pond, batch=100)
    sender = Recorder()
    sender.failing = 1
    push(pond, "s", (1, 1), (9, 2))
    worker = deliverer(pond, sender)
    advance(pond)
    with pytest.raises(DeliveryError):
        worker.deliver()
    pond.execute("DROP QUERY q1")
    deliver_all(deliverer(pond, sender))
    first, second, *_ = sender.sent
    assert {query for query, _ in first[1]} == {"q0", "q1"}
    assert {query for query, _ in second[1]} == {"q0"}
    assert first[0] != second[0]
    assert set(given(sender)) >= expected(pond)


def test_a_pending_delivery_of_which_nothing_is_left_is_over(pond: Pond) -> None:
    register(pond, "q0")
    register(pond, "q1")
    create(pond, batch=1)
    sender = Recorder()
    sender.failing = 1
    worker = deliverer(pond, sender)
    push(pond, "s", (1, 1), (9, 2))
    advance(pond)
    with pytest.raises(DeliveryError):
        worker.deliver()
    (query, _) = sender.sent[0][1][0]
    pond.execute(f"DROP QUERY {query}")
    worker = deliverer(pond, sender)
    deliver_all(worker)
    assert set(given(sender)) >= expected(pond)
    assert worker.find_sink().position.pending is None


def test_what_happens_to_queries_is_told(pond: Pond) -> None:
    register(pond, "q0")
    create(pond)
    sender = Recorder()
    worker = deliverer(pond, sender)
    deliver_all(worker)
    register(pond, "q1")
    deliver_all(worker)
    pond.execute("DROP QUERY q0")
    deliver_all(worker)
    assert [told for _, _, told in sender.sent] == [["came"], ["ended"]]


def test_a_sink_of_a_query_that_is_gone_cannot_go_on(pond: Pond) -> None:
    register(pond, "q0")
    create(pond, selected="QUERY q0")
    sender = Recorder()
    worker = deliverer(pond, sender)
    assert not worker.deliver()
    pond.execute("DROP QUERY q0")
    assert worker.deliver()
    with pytest.raises(Exception, match='its query "q0" was dropped'):
        worker.deliver()
    worker.die("why not")
    assert pond.status()["sinks"][0]["state"] == "dead: why not"
    pond.execute("DROP SINK k")
    with pytest.raises(StaleChange):
        worker.find_sink()


def test_large_changes_go_in_smaller_deliveries(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery is bounded in bytes as well: its changes are in memory, and once more as text."""
    monkeypatch.setattr(feed_pages, "PAGE_BYTES", 100)
    monkeypatch.setattr(shared_pages, "PAGE_BYTES", 100)
    register(pond, "q0")
    create(pond, batch=10_000)
    sender = Recorder()
    worker = deliverer(pond, sender)
    push(pond, "s", *((n, n) for n in range(40)))
    advance(pond)
    deliver_all(worker)
    assert set(given(sender)) == expected(pond)
    sizes = [len(changes) for _, changes, _ in sender.sent]
    assert 0 < max(sizes) < 10


def test_a_query_whose_answer_fails_is_named_with_the_reason(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that keeps a table begins with the whole answer."""

    def fail(*_: Any) -> None:
        raise MillpondError("POND-406", "Spark is being started")

    register(pond, "q0", follow=True)
    create(pond, selected="QUERY q0")
    push(pond, "s", (1, 1), (9, 2))
    advance(pond)
    delivers = deliverer(pond, Recorder())
    monkeypatch.setattr(pond._components.feeds._parts.needs, "invoke", fail)
    with pytest.raises(DeliveryError, match="no answer: POND-406: Spark is being started"):
        delivers._begin_with_answer(delivers.find_sink(), 0)
