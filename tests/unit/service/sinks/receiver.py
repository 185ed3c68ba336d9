"""A receiver of webhooks for tests: answers as it is told to, and keeps what it was sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

from millpond.service.sinks.webhook import sign

KEY = b"0123456789abcdef"


class Receiver:
    """What came, and what is answered next.

    Attributes:
        answers: The statuses of the next answers; 200 once they are used up. 0 hangs up.
        bodies: The bodies of what was answered with 200.
        ids: The ids of all attempts, in order.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/hook"
        self.answers: list[int] = []
        self.bodies: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.came = threading.Condition()
        self.let_go = threading.Event()

    def take(self, headers: Any, body: bytes) -> int:
        """Check the signature and keep the body; return the status of the answer."""
        id, stamp = headers["webhook-id"], int(headers["webhook-timestamp"])
        assert headers["webhook-signature"] == sign(KEY, id, stamp, body)
        with self.came:
            status = self.answers.pop(0) if self.answers else 200
            self.ids.append(id)
            if status == 200:
                self.bodies.append(orjson.loads(body))
            self.came.notify_all()
        return status

    def wait(self, count: int, seconds: float = 20.0) -> None:
        """Wait until so many changes came."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.changes()) >= count, seconds), self.bodies

    def changes(self) -> list[tuple[str, str, str, Any]]:
        """The changes that came, each id's once: as a receiver does that looks at ids."""
        known = {body["delivery"]: body for body in self.bodies}
        return [
            (c["query"], c["timestamp"], c["change"], c["row"])
            for body in known.values()
            for c in body["changes"]
        ]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take(self.headers, body)
            if not status:
                receiver.let_go.wait(30)
                self.close_connection = True
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", receiver.url + "/elsewhere")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.let_go.set()
        server.shutdown()
        thread.join()
        server.server_close()
