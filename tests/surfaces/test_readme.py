"""README's five minutes: its calls, sent as they stand there, end in an alert for the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from local_http import local_client

from millpond.api.app import create_app
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "examples" / "alert" / "alert.html").read_text()
#: 2026-11-23 12:00:00.
NOON = 1_795_435_200_000_000


def list_calls() -> list[list[str]]:
    """The arguments of the curl commands of the section, in order."""
    text = (ROOT / "README.md").read_text()
    section = re.search(r"## Five minutes.*?\n(.*?)\n## ", text, re.S)
    assert section is not None
    blocks = re.findall(r"```console\n(.*?)```", section[1], re.S)
    commands = [c for block in blocks for c in re.split(r"^\$ ", block, flags=re.M) if c]
    return [shlex.split(c)[1:] for c in commands if c.startswith("curl ")]


def send(http: httpx.Client, call: list[str]) -> httpx.Response:
    """Send what a curl command would."""
    url, *rest = call
    given = dict(zip(rest[::2], rest[1::2], strict=True))
    body = given.get("-d", given.get("--data-binary"))
    if body is not None and body.startswith("@"):
        body = (ROOT / body[1:]).read_text()
    headers = dict([given["-H"].split(": ")]) if "-H" in given else {}
    path = urlsplit(url).path
    answer = http.request("GET" if body is None else "POST", path, content=body, headers=headers)
    assert answer.status_code < 300, answer.text
    return answer


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[tuple[Pond, ManualClock]]:
    clock = ManualClock(NOON)
    with open_local(tmp_path / "pond", clock=clock) as pond:
        yield pond, clock


def test_the_five_minutes_end_in_an_alert(pond: tuple[Pond, ManualClock]) -> None:
    mp, clock = pond
    declare, register, push, ask, alarm = list_calls()
    default = re.search(r'get\("query"\) \?\? "(\w+)"', PAGE)
    path = re.search(r"path = `([^`?]+)", PAGE)
    assert default is not None
    assert path is not None
    followed = re.sub(r"\$\{.*\}", default[1], path[1])
    with local_client(create_app(mp)) as http:
        send(http, declare)
        send(http, register)
        assert send(http, push).json() | {"rejects": []} == {
            "accepted": 3,
            "rejected": 0,
            "shed": 0,
            "rejects": [],
            "duplicate": False,
        }
        mp.catch_up()
        (row,) = send(http, ask).json()["rows"]
        assert row[1:] == ["attic", 31.5]
        send(http, alarm)
        mp.catch_up()
        clock.advance(3_000_000)
        mp.catch_up()
        page = http.get(followed, headers={"Accept": "application/json"}).json()
        rows = [dict(zip(page["columns"], row, strict=True)) for row in page["rows"]]
    assert [(r["change"], r["place"]) for r in rows] == [
        ("+", "attic"),
        ("-", "attic"),  # it has been longer than the window
        ("+", "kitchen"),
    ]
