"""A browser: a page on another port follows a feed by a ticket, with its EventSource."""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from people import GRANTED, WORLD, make_token

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.service.pond import Pond

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

#: The page: it follows the feed, and sends what it is given to its own server.
PAGE = """<!doctype html><title>follows</title><script>
const feed = new EventSource(%s);
for (const kind of ["change", "mark"])
  feed.addEventListener(kind, e => fetch("/seen", {method: "POST", body: e.data}));
feed.onerror = () => fetch("/seen", {method: "POST", body: '{"event": "error"}'});
</script>"""


class Pages(http.server.BaseHTTPRequestHandler):
    """Serves one page, and keeps what the page sends."""

    page = ""
    seen: list[dict]

    def do_GET(self) -> None:
        self._answer(self.page.encode() if self.path == "/" else b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(json.loads(body))
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def pages() -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_page_on_another_port_follows_a_feed(
    pond: Pond, pages: http.server.ThreadingHTTPServer, tmp_path: Path
) -> None:
    pond.execute(WORLD)
    tokens = tmp_path / "tokens.json"
    token = make_token(tokens, "alice", "reader", GRANTED)
    origin = f"http://127.0.0.1:{pages.server_address[1]}"
    app = create_app(pond, access=Access.of(tokens=tokens, origins=[origin]))
    config = uvicorn.Config(app, port=0, log_level="critical", log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    headers = {"Authorization": f"Bearer {token}"}
    made = httpx.post(f"{url}/v1/tickets", json={"queries": ["of_alice"]}, headers=headers)
    Pages.page = PAGE % json.dumps(url + made.json()["path"])
    browser = subprocess.Popen(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--remote-debugging-port=0",
            f"{origin}/",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def wait_for(text: str) -> None:
        deadline = time.monotonic() + 90
        while not any(text in json.dumps(event) for event in pages.seen):
            assert time.monotonic() < deadline, pages.seen
            time.sleep(0.05)

    try:
        wait_for('"mark"')
        pond.ingest("flights", [{"ts": "2026-03-01 11:50:00", "carrier": "ZZ"}])
        pond.execute("HEARTBEAT flights AT TIMESTAMP '2026-03-01 11:55:00'")
        wait_for('"ZZ"')
        assert {"event": "error"} not in pages.seen
    finally:
        browser.terminate()
        browser.wait()
        app.state.followers.close()
        server.should_exit = True
        thread.join()
