"""An object store of S3's protocol on loopback, whose answers can be made to fail.

It keeps objects in memory and asks nobody who they are. It knows what `obstore` asks: GET, PUT
(only if absent, too), DELETE, uploads in parts, lists. What it keeps outlives a kill, like a disk.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, get_args
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

#: What may befall a request: it takes a while; it fails and nothing is done; it is done, and its
#: answer is lost; the store says that too much is asked of it; nothing answers; the store is killed
#: and nobody listens until it is started again; it is stopped, and does what it was asked when it
#: goes on, though whoever asked may have given up.
Fault = Literal["slow", "fails", "lost answer", "refused", "silent", "killed", "stopped"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
BUCKET = "pond"


class FaultyObjectStore:
    """The store; `fault` befalls each request as long as it is set.

    Attributes:
        url: Where it is.
        delay: How long a slow or silent request takes, in seconds.
        befallen: How many requests the last fault has befallen, or connections it has cut.
        reads: How often each object was read.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._fault: Fault | None = None
        self._goes_on = threading.Event()
        self._goes_on.set()
        self.delay = 0.4
        self.befallen = 0
        self.reads: Counter[str] = Counter()
        self._parts: dict[str, dict[int, bytes]] = {}
        self._lock = threading.Lock()
        store = self

        class Handler(_Handler):
            objects = store

        self._handler = Handler
        self._server = self._listen(0)
        self._port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self._port}"

    def _listen(self, port: int) -> _Server:
        server = _Server(("127.0.0.1", port), self._handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    @property
    def fault(self) -> Fault | None:
        """What befalls requests now; None for nothing."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault | None) -> None:
        before, self._fault = self._fault, fault
        if fault is not None:
            self.befallen = 0
        if fault == "stopped":
            self._goes_on.clear()
        else:
            self._goes_on.set()
        if fault == "killed":
            self.close()
            self.befallen += self._server.cut()
        elif before == "killed":
            self._server = self._listen(self._port)

    def is_felt(self) -> bool:
        """Whether the fault has befallen somebody; who waits for an answer asks nothing more."""
        return self.befallen > (0 if self._fault in ("killed", "stopped") else 4)

    def wait_while_stopped(self) -> None:
        """Return once the store is not stopped."""
        self._goes_on.wait()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to know it by."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()

    def put(self, key: str, data: bytes, only_if_absent: bool) -> bool:
        """Keep an object; False if there is one that must not be replaced."""
        with self._lock:
            if only_if_absent and key in self.objects:
                return False
            self.objects[key] = data
            return True

    def begin_parts(self) -> str:
        """Begin an upload in parts; return its name."""
        with self._lock:
            name = str(len(self._parts))
            self._parts[name] = {}
            return name

    def put_part(self, upload: str, number: int, data: bytes) -> None:
        """Keep a part of an upload."""
        self._parts[upload][number] = data

    def end_parts(self, upload: str, key: str) -> None:
        """Make an object of an upload's parts."""
        parts = self._parts[upload]
        self.put(key, b"".join(parts[n] for n in sorted(parts)), False)


@contextmanager
def serve_objects() -> Iterator[FaultyObjectStore]:
    """An object store for the length of the block."""
    store = FaultyObjectStore()
    try:
        yield store
    finally:
        store.close()


class _Server(ThreadingHTTPServer):
    """Knows its connections, to cut them as the end of a process does."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut(self) -> int:
        """Cut every connection; return how many there were."""
        cut = list(self._open)
        for connection in cut:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return len(cut)


class _Handler(BaseHTTPRequestHandler):
    objects: FaultyObjectStore
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, ValueError):  # cut, or closed meanwhile
            self.close_connection = True

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.objects.fault
        if fault is not None:
            self.objects.befallen += 1
        match fault:
            case "slow":
                time.sleep(self.objects.delay)
            case "stopped":
                self.objects.wait_while_stopped()
            case "silent":
                time.sleep(self.objects.delay)
                self.close_connection = True
                return
            case "fails":
                self._send(500, b"<Error><Code>InternalError</Code></Error>")
                return
            case "refused":
                self._send(503, b"<Error><Code>SlowDown</Code></Error>")
                return
        status, body, etag = self._do(data)
        if fault == "lost answer":
            self.close_connection = True
        else:
            self._send(status, body, etag)

    def _do(self, data: bytes) -> tuple[int, bytes, str | None]:
        split = urlsplit(self.path)
        asked = parse_qs(split.query, keep_blank_values=True)
        key = unquote(split.path.removeprefix(f"/{BUCKET}").lstrip("/"))
        store = self.objects
        match self.command:
            case "PUT" if "uploadId" in asked:
                store.put_part(asked["uploadId"][0], int(asked["partNumber"][0]), data)
                return 200, b"", "part"
            case "PUT":
                absent = self.headers.get("If-None-Match") == "*"
                if not store.put(key, data, absent):
                    return 412, b"<Error><Code>PreconditionFailed</Code></Error>", None
                return 200, b"", "whole"
            case "POST" if "uploads" in asked:
                name = store.begin_parts()
                return (
                    200,
                    _xml("InitiateMultipartUploadResult", f"<UploadId>{name}</UploadId>"),
                    None,
                )
            case "POST" if "delete" in asked:
                names = [
                    e.text or "" for e in ElementTree.fromstring(data).iter() if e.tag[-3:] == "Key"
                ]
                for name in names:
                    store.objects.pop(name, None)
                gone = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names)
                return 200, _xml("DeleteResult", gone), None
            case "POST":
                store.end_parts(asked["uploadId"][0], key)
                return 200, _xml("CompleteMultipartUploadResult", "<ETag>whole</ETag>"), None
            case "DELETE":
                store.objects.pop(key, None)
                return 204, b"", None
            case _ if not key:
                return 200, self._list(asked), None
        if key not in store.objects:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", None
        if self.command == "GET":
            store.reads[key] += 1
        return 200, store.objects[key], "whole"

    def _list(self, asked: dict[str, list[str]]) -> bytes:
        prefix = asked.get("prefix", [""])[0]
        after = asked.get("continuation-token", asked.get("start-after", [""]))[0]
        with self.objects._lock:
            found = sorted(k for k in self.objects.objects if k.startswith(prefix) and k > after)
            sizes = {key: len(self.objects.objects[key]) for key in found[:1000]}
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z"
            f"</LastModified><ETag>whole</ETag><Size>{size}</Size></Contents>"
            for key, size in sizes.items()
        )
        more = ""
        if len(found) > len(sizes):
            more = f"<NextContinuationToken>{escape(max(sizes))}</NextContinuationToken>"
        return _xml(
            "ListBucketResult",
            f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}{entries}",
        )

    def _send(self, status: int, body: bytes, etag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if etag is not None:
            self.send_header("ETag", quote(etag))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _xml(name: str, inside: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{name}>{inside}</{name}>'.encode()
