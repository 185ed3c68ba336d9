"""Webhooks: what arrives is signed, and nothing leads elsewhere or takes for ever."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.sinks.receiver import KEY, Receiver, receiving

from millpond.service.sinks.sender import Delivery, DeliveryError
from millpond.service.sinks.webhook import Webhook, read_key

EMPTY = Delivery("3f2a9c.7.1", "s", "3f2a9c.feed", [], [])


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("HOOK_KEY", KEY.decode())
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with receiving() as found:
        yield found
    while OPENED:
        OPENED.pop().close()


OPENED: list[Webhook] = []


def sender(url: str, timeout: str = "5 SECONDS", hosts: Any = None) -> Webhook:
    OPENED.append(Webhook({"url": url, "key_env": "HOOK_KEY", "timeout": timeout}, hosts))
    return OPENED[-1]


def test_a_delivery_is_signed_and_says_what_it_is(receiver: Receiver) -> None:
    sent = sender(receiver.url)
    sent.send(EMPTY)
    sent.send(EMPTY)
    assert receiver.ids == ["3f2a9c.7.1"] * 2
    assert receiver.bodies[0] == {
        "sink": "s",
        "delivery": "3f2a9c.7.1",
        "cursor": "3f2a9c.feed",
        "changes": [],
        "events": [],
    }


@pytest.mark.parametrize(
    ("status", "said", "is_final"),
    [
        (500, "the receiver answered 500", False),
        (302, "the receiver answered 302; redirects are not followed", False),
        (410, "the receiver answered 410", True),
        (413, "the receiver answered 413: a body of 84 bytes is too large for it", False),
    ],
)
def test_other_answers_are_failures(
    receiver: Receiver, status: int, said: str, is_final: bool
) -> None:
    receiver.answers = [status]
    with pytest.raises(DeliveryError, match=said) as caught:
        sender(receiver.url).send(EMPTY)
    assert caught.value.is_final == is_final
    assert len(receiver.ids) == 1


def test_who_does_not_answer_costs_no_more_than_the_timeout(receiver: Receiver) -> None:
    receiver.answers = [0]
    began = time.monotonic()
    with pytest.raises(DeliveryError, match=r"no answer within 0\.5 s"):
        sender(receiver.url, "500 ms").send(EMPTY)
    assert time.monotonic() - began < 30


def test_who_answers_a_byte_at_a_time_costs_no_more_either(receiver: Receiver) -> None:
    with socket.socket() as slow:
        slow.bind(("127.0.0.1", 0))
        slow.listen()
        sent = sender(f"http://127.0.0.1:{slow.getsockname()[1]}/", "500 ms")

        def drip() -> None:
            there, _ = slow.accept()
            with there:
                try:
                    for _ in range(1_000):
                        there.sendall(b"H")
                        time.sleep(0.05)
                except OSError:
                    pass

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        with pytest.raises(DeliveryError):
            sent.send(EMPTY)
        assert time.monotonic() - began < 30
        thread.join()


def test_an_interrupted_delivery_fails(receiver: Receiver) -> None:
    sent = sender(receiver.url)
    sent.interrupt()
    with pytest.raises(DeliveryError, match="closed"):
        sent.send(EMPTY)


def test_the_address_is_checked_as_it_is_connected_to(receiver: Receiver) -> None:
    port = receiver.url.split(":")[2].split("/")[0]
    named = receiver.url.replace("127.0.0.1", "localhost")
    with pytest.raises(DeliveryError, match="leads to no address that sinks may connect to"):
        sender(named, hosts=[f"localhost:{port}"]).send(EMPTY)
    assert not receiver.ids
    sender(named, hosts=[f"localhost:{port}", "127.0.0.0/8"]).send(EMPTY)
    assert receiver.ids
    with pytest.raises(DeliveryError, match="not known"):
        sender("http://no-such-host.invalid/").send(EMPTY)


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY + b"\n")
    assert read_key({"key_file": str(file)}) == KEY
    monkeypatch.setenv("K", "whsec_" + base64.b64encode(KEY).decode())
    assert read_key({"key_env": "K"}) == KEY
    for text, said in [("whsec_!", "no base64"), ("short", "no key of 16"), ("", "not set")]:
        monkeypatch.setenv("K", text)
        with pytest.raises(DeliveryError, match=said):
            read_key({"key_env": "K"})
    with pytest.raises(DeliveryError, match="cannot be read: No such file"):
        read_key({"key_file": str(tmp_path / "none")})
