"""Webhooks: batches of changes posted to a URL, signed as the Standard Webhooks specification says.

The headers are `webhook-id` (the delivery's id), `webhook-timestamp` (seconds since 1970) and
`webhook-signature`: `v1,` and the base64 of an HMAC-SHA256, by the key, of id, timestamp and body
with dots between them. So receivers check it with any library of that specification.

The address is checked as it is connected to, whatever the name led to before; redirects are not
followed, and no proxy of the environment is used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpcore

from millpond.model.durations import parse_duration
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.definitions.allowed_hosts import allows_address
from millpond.service.json_values import change_objects, dumps, to_json_value
from millpond.service.sinks.sender import Delivery, DeliveryError

#: The shortest key that batches are signed with, in bytes.
SHORTEST_KEY = 16
_LONGEST_KEY = 4_096
#: How much of an answer is read so that its connection can be used again, in bytes.
_ANSWER_READ = 16_384
#: How much is written at a time, in bytes.
_WRITTEN = 4_096
#: How often who waits for an answer looks whether the pond is being closed, in seconds.
_LOOK_SECONDS = 0.25


def read_key(options: Mapping[str, Any]) -> bytes:
    """The key of a sink's options, from the environment or from a file.

    A text that begins with `whsec_` is base64 behind that, as the specification has it.

    Raises:
        DeliveryError: there is none, or it is too short or too long.
    """
    if "key_env" in options:
        where = f"the environment variable {options['key_env']}"
        text = os.environ.get(options["key_env"], "")
    else:
        where = f'the file "{options.get("key_file")}"'
        try:
            with Path(options.get("key_file", "")).open("rb") as file:
                text = file.read(_LONGEST_KEY + 1).decode(errors="surrogateescape").strip()
        except OSError as error:
            raise DeliveryError(f"{where} cannot be read: {error.strerror}") from error
    try:
        key = _decode(text)
    except (binascii.Error, ValueError):
        raise DeliveryError(f"{where} holds no base64 behind whsec_") from None
    if not SHORTEST_KEY <= len(key) <= _LONGEST_KEY:
        raise DeliveryError(
            f"{where} holds no key of {SHORTEST_KEY} to {_LONGEST_KEY} bytes"
            if text
            else f"{where} is not set or empty"
        )
    return key


def _decode(text: str) -> bytes:
    if text.startswith("whsec_"):
        return base64.b64decode(text.removeprefix("whsec_"), validate=True)
    return text.encode(errors="surrogateescape")


def sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`.

    >>> sign(b"0123456789abcdef", "3f2a9c.7.1", 0, b"{}")
    'v1,M8jVGIHQMMo1Kn0dOFqKXez5Eh5aj+UF4fHhCixWgUM='
    """
    signed = f"{id}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def encode_delivery(delivery: Delivery) -> bytes:
    """The body of a delivery: JSON; equal for deliveries with one id but for `events`."""
    body = {
        "sink": delivery.sink,
        "delivery": delivery.id,
        "cursor": delivery.cursor,
        "changes": write_changes(delivery.changes),
        "events": [
            {"event": e.kind, "query": e.query, "id": e.id, **to_json_value(e.facts)}
            for e in delivery.told
        ],
    }
    return dumps(body)


def write_changes(events: Sequence[FeedEvent]) -> list[dict[str, Any]]:
    """The changes as objects of JSON: query, id, and what a change is anywhere over HTTP."""
    pages: dict[int, list[dict[str, Any]]] = {}
    found = []
    for event in events:
        assert event.changes is not None
        page = pages.get(id(event.changes))
        if page is None:
            page = pages[id(event.changes)] = change_objects(event.changes)
        found.append({"query": event.query, "id": event.id, **page[event.index]})
    return found


class Webhook:
    """The sender of sinks of the format 'http'."""

    def __init__(self, options: Mapping[str, Any], hosts: Sequence[str] | None) -> None:
        """Prepare; nothing is connected to yet.

        Args:
            options: The sink's options.
            hosts: What may be connected to; None for everything.
        """
        self._options = options
        self._seconds = parse_duration(options["timeout"]) / 1e6
        self._backend = _CheckedBackend(hosts)
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl.create_default_context(),
            max_connections=1,
            keepalive_expiry=30.0,
            network_backend=self._backend,
        )

    def send(self, delivery: Delivery) -> None:
        """Post a delivery; any status of 200 to 299 says that it arrived, 410 that none is wanted.

        Raises:
            DeliveryError: as `Sender.send`.
        """
        body, now = encode_delivery(delivery), int(time.time())
        headers: dict[bytes | str, bytes | str] = {
            "Content-Type": "application/json",
            "User-Agent": "millpond",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(now),
            "webhook-signature": sign(read_key(self._options), delivery.id, now, body),
        }
        self._backend.deadline = time.monotonic() + self._seconds
        url, seconds = self._options["url"], self._seconds
        limits = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), seconds)}
        try:
            with self._pool.stream(
                "POST", url, headers=headers, content=body, extensions=limits
            ) as answer:
                self._judge(answer, len(body))
        except httpcore.TimeoutException as error:
            raise DeliveryError(f"no answer within {seconds:g} s") from error
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            raise DeliveryError(str(error) or type(error).__name__) from error

    def _judge(self, answer: httpcore.Response, size: int) -> None:
        status = answer.status
        if status == 413:
            said = f"the receiver answered 413: a body of {size:,} bytes is too large for it"
            raise DeliveryError(said, is_too_large=True)
        if not 200 <= status < 300:
            more = "; redirects are not followed" if 300 <= status < 400 else ""
            raise DeliveryError(f"the receiver answered {status}{more}", is_final=status == 410)
        read = 0
        for part in answer.iter_stream():
            read += len(part)
            if read > _ANSWER_READ:
                break

    def interrupt(self) -> None:
        """Have `send` fail soon."""
        self._backend.is_closed.set()

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


class _CheckedBackend(httpcore.NetworkBackend):
    """Connects to allowed addresses only, and lets nothing take longer than the deadline."""

    def __init__(self, hosts: Sequence[str] | None) -> None:
        self._hosts = hosts
        self._sockets = httpcore.SyncBackend()
        self.deadline = 0.0
        self.is_closed = threading.Event()

    def left(self) -> float:
        """The seconds that are left. Raises ReadTimeout, or ReadError once all is closed."""
        if self.is_closed.is_set():
            raise httpcore.ReadError("the pond is being closed")
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout
        return left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f'the host "{host}" is not known') from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        allowed = [a for a in addresses if allows_address(a, port, self._hosts)]
        if not allowed:
            raise httpcore.ConnectError(
                f'"{host}" leads to no address that sinks may connect to (--sink-host)'
            )
        failure: Exception | None = None
        for address in allowed:
            try:
                stream = self._sockets.connect_tcp(
                    address, port, min(self.left(), timeout or self.left()), local_address
                )
                return _BoundedStream(stream, self)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore.ConnectError(host)


class _BoundedStream(httpcore.NetworkStream):
    """A connection whose every step ends with the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, backend: _CheckedBackend) -> None:
        self._stream = stream
        self._backend = backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            try:
                return self._stream.read(max_bytes, min(self._backend.left(), _LOOK_SECONDS))
            except httpcore.ReadTimeout:
                self._backend.left()

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # A receiver that takes little at a time may not take longer than one that takes nothing.
        for start in range(0, len(buffer), _WRITTEN):
            self._stream.write(buffer[start : start + _WRITTEN], self._backend.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        secured = self._stream.start_tls(ssl_context, server_hostname, self._backend.left())
        return _BoundedStream(secured, self._backend)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
