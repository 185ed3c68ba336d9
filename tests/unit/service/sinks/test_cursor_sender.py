"""Senders whose receiver keeps the cursor, with a receiver in memory."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.service.sinks.cursor_sender import CursorSender, Delivered
from millpond.service.sinks.sender import Delivery, DeliveryError


class ClientError(Exception):
    """What the client of the receiver raises."""


class Receiver:
    """What several senders deliver to."""

    def __init__(self) -> None:
        self.last = Delivered()
        self.committed: list[int] = []
        self.owner: object = None
        self.trouble: BaseException | None = None
        self.is_trouble_after_commit = False


class ToReceiver(CursorSender):
    """A sender with a receiver in memory."""

    receivers, receiver = "receivers", "receiver"

    def __init__(self, to: Receiver, is_confined: bool = False) -> None:
        super().__init__(is_confined)
        self.to = to
        self.ended: list[Any] = []

    def _load_client(self) -> None:
        pass

    def _take_over(self, identity: str) -> Delivered:
        self._stop_if_interrupted()
        self._connection = self.to.owner = object()
        return self.to.last

    def _commit(self, identity: str, delivery: Delivery, number: int) -> None:
        if self.to.owner is not self._connection:
            raise DeliveryError("another has taken over", is_final=True)
        trouble, self.to.trouble = self.to.trouble, None
        if trouble is not None and not self.to.is_trouble_after_commit:
            raise trouble
        self.to.committed.append(number)
        self.to.last = Delivered(number, delivery.cursor)
        if trouble is not None:
            raise trouble

    def _explain(self, error: BaseException) -> DeliveryError | None:
        return DeliveryError(f"it said {error}") if isinstance(error, ClientError) else None

    def _disconnect(self, connection: Any) -> None:
        self.ended.append(connection)

    def _say_cursor_gone(self, identity: str, delivery: Delivery) -> str | None:
        return None if delivery.answer is not None else f"the cursor of {identity} is gone"


def delivery(
    number: int, answer: Any = None, received: int | None = None, filled: int = 0
) -> Delivery:
    known = number - 1 if received is None else received
    cursor = f"3f2a9c.feed.{number}"
    return Delivery(f"3f2a9c.7.{number}", "s", cursor, [], [], answer, "", known, filled)


def test_each_delivery_is_committed_once() -> None:
    to = Receiver()
    first = ToReceiver(to)
    for number in (1, 1, 2):
        first.send(delivery(number))
    first.close()
    second = ToReceiver(to)
    for number in (2, 3):
        second.send(delivery(number))
    assert to.committed == [1, 2, 3]
    assert len(first.ended) == 1


@pytest.mark.parametrize("is_after_commit", [False, True])
def test_a_delivery_whose_outcome_is_unknown_is_settled_by_the_cursor(is_after_commit) -> None:
    to = Receiver()
    to.trouble, to.is_trouble_after_commit = ClientError("timed out"), is_after_commit
    sender = ToReceiver(to)
    with pytest.raises(DeliveryError, match="it said timed out") as failed:
        sender.send(delivery(1))
    assert not failed.value.is_final
    assert len(sender.ended) == 1
    sender.send(delivery(1))
    assert to.committed == [1]


def test_who_stood_still_while_another_took_over_commits_nothing() -> None:
    to = Receiver()
    zombie, other = ToReceiver(to), ToReceiver(to)
    zombie.send(delivery(1))
    other.send(delivery(2))
    with pytest.raises(DeliveryError, match="another has taken over") as stopped:
        zombie.send(delivery(2))
    assert stopped.value.is_final
    assert to.committed == [1, 2]


@pytest.mark.parametrize(
    ("last", "number", "words"),
    [
        (Delivered(), 2, r"the cursor of 3f2a9c\.7 is gone"),
        (Delivered(2, "another"), 2, "it is older than the receiver"),
        (Delivered(5, "another"), 2, "has delivery 5"),
    ],
)
def test_a_receiver_that_does_not_fit_the_store_stops_the_sink(last, number, words) -> None:
    to = Receiver()
    to.last = last
    with pytest.raises(DeliveryError, match=words) as stopped:
        ToReceiver(to).send(delivery(number))
    assert stopped.value.is_final
    assert to.committed == []


@pytest.mark.parametrize(
    ("last", "received", "filled"),
    [
        (Delivered(2, "3f2a9c.feed.2"), 2, 2),
        (Delivered(2, "b20fd4.feed.2"), 2, 2),  # the store was restored since
        (Delivered(2, "3f2a9c.feed.9"), 1, 1),  # an attempt that arrived, and nobody knew
        (Delivered(1, "3f2a9c.feed.1"), 2, 1),  # what came behind it had nothing to be kept
    ],
)
def test_a_receiver_that_fits_the_store_goes_on(last, received, filled) -> None:
    to = Receiver()
    to.last = last
    ToReceiver(to).send(delivery(3, received=received, filled=filled))
    assert to.committed == [3]


@pytest.mark.parametrize("number", [1, 3, 4, 9])
def test_a_store_that_was_restored_is_older_however_often_it_tries(number) -> None:
    """Each attempt at a whole answer has another number, and what it has to pass was undone."""
    to = Receiver()
    to.last = Delivered(3, "3f2a9c.feed.3")
    restored = Delivery(
        f"b20fd4.7.{number}",
        "s",
        "b20fd4.feed.3",
        [],
        [],
        object(),
        "3f2a9c",
        0,
        0,  # type: ignore[arg-type]
    )
    with pytest.raises(DeliveryError, match="it is older than the receiver") as stopped:
        ToReceiver(to).send(restored)
    assert stopped.value.is_final
    assert to.committed == []


def test_a_receiver_that_was_put_back_stops_the_sink() -> None:
    """Such as a replica that took over without the last transactions."""
    to = Receiver()
    to.last = Delivered(3, "3f2a9c.feed.3")
    with pytest.raises(DeliveryError, match="it has taken delivery 5 once: it is older") as stopped:
        ToReceiver(to).send(delivery(6, filled=5))
    assert stopped.value.is_final
    assert to.committed == []


def test_a_whole_answer_does_without_the_cursor() -> None:
    to = Receiver()
    ToReceiver(to).send(delivery(4, answer=object()))
    assert to.committed == [4]


def test_what_is_not_an_error_of_the_client_goes_on_as_it_is() -> None:
    to = Receiver()
    to.trouble = KeyboardInterrupt()
    sender = ToReceiver(to)
    with pytest.raises(KeyboardInterrupt):
        sender.send(delivery(1))
    assert len(sender.ended) == 1


def test_an_error_of_millpond_says_its_detail_and_may_be_tried_again() -> None:
    to = Receiver()
    to.trouble = MillpondError("POND-417", "there is no room", detail="three wait")
    with pytest.raises(DeliveryError, match="there is no room: three wait") as failed:
        ToReceiver(to).send(delivery(1))
    assert isinstance(failed.value.__cause__, MillpondError)
    assert not failed.value.is_final


def test_a_client_has_no_such_sinks() -> None:
    with pytest.raises(DeliveryError, match="clients may not have sinks to receivers") as stopped:
        ToReceiver(Receiver(), is_confined=True).send(delivery(1))
    assert stopped.value.is_final


def test_who_closes_the_pond_does_not_wait() -> None:
    closing = ToReceiver(Receiver())
    closing.interrupt()
    with pytest.raises(DeliveryError, match="being closed"):
        closing.send(delivery(1))
