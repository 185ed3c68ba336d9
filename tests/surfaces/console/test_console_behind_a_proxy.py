"""The console behind nginx, which has the server under a path, as docs/guide/people.md says."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from browser import Browser
from people import GRANTED, WORLD, make_token
from served import serve
from tests.waiting import wait_until

from millpond.api.access import Access
from millpond.service.pond import Pond

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "people.md"

CONFIG = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""


def find_location(server: str, takes_off: bool) -> str:
    """The block of the guide, for a server of these tests."""
    [block] = re.findall(r"location /pond/ \{.*?\n\}", GUIDE.read_text(), re.DOTALL)
    assert "http://127.0.0.1:6455;" in block
    return block.replace("http://127.0.0.1:6455;", f"{server}{'/' * takes_off};")


@contextmanager
def nginx_before(server: str, folder: Path, takes_off: bool) -> Iterator[str]:
    """Run nginx; give the URL under which it has the server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "nginx.conf"
    config.write_text(
        CONFIG.format(folder=folder, port=port, location=find_location(server, takes_off))
    )
    process = subprocess.Popen([str(NGINX), "-c", str(config)], stderr=subprocess.DEVNULL)

    def answers() -> bool:
        assert process.poll() is None, (folder / "error.log").read_text()
        try:
            return httpx.get(f"http://127.0.0.1:{port}/pond/healthz").is_success
        except httpx.TransportError:
            return False

    try:
        wait_until(answers)
        yield f"http://127.0.0.1:{port}/pond"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.skipif(NGINX is None, reason="needs nginx")
@pytest.mark.parametrize("takes_off", [False, True], ids=["leaves the prefix", "takes it off"])
def test_a_reader_logs_in_and_sees_own_queries(
    browser: Browser, pond: Pond, tmp_path: Path, takes_off: bool
) -> None:
    pond.execute(WORLD)
    tokens = tmp_path / "tokens.json"
    token = make_token(tokens, "alice", "reader", GRANTED)
    with (
        serve(pond, Access.of(tokens=tokens), prefix="/pond") as served,
        nginx_before(served.url, tmp_path, takes_off) as url,
    ):
        browser.forget(url)
        browser.open(f"{url}/#/queries")
        browser.find("#token").send_keys("not a token\n")
        browser.sees("does not know that token", "#token-wrong")
        browser.find("#token").send_keys(f"{token}\n")
        browser.sees("alice · reader", ".connection")
        browser.sees("of_alice")
        assert "of_bob" not in browser.text()
        browser.open(f"{url}/#/query/of_alice?live=1")  # its changes come through the proxy
        browser.sees("following", "#feed")
        browser.press("Sign out")
        browser.find("#token")
        assert browser.complaints() == []
