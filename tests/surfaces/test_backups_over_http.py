"""Backups over HTTP: whole, below the operator's directories only, told of, cancelled."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from local_http import local_client

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.api.client import connect, connect_async
from millpond.api.rights.audit import log, write_audit_to
from millpond.api.rights.make_caller import make_caller
from millpond.api.rights.token_file import add_token
from millpond.errors import MillpondError
from millpond.runtime.spark.checkpoint import cut_back
from millpond.service import backups
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.pond import Pond
from millpond.state.backup.kept import Kept, list_kept
from millpond.state.backup.progress import BackupProgress
from millpond.state.backup.restore import restore_store
from millpond.testing.local_runtime import open_local


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The directory below which backups may be made."""
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM s (n BIGINT)")
        for n in range(3):
            pond.ingest("s", [{"n": n}])
        pond.catch_up()
        yield pond


@pytest.fixture
def http(pond: Pond, kept: Path) -> Iterator[httpx.Client]:
    with local_client(create_app(pond, policy=AccessPolicy.of(backups=[kept]))) as client:
        yield client


def wait(http: httpx.Client, number: int) -> dict[str, Any]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        told = http.get(f"/v1/backups/{number}").json()
        if told["state"] != "running":
            return dict(told)
        time.sleep(0.01)
    raise AssertionError("the backup takes more than a minute")


def test_a_backup_is_made_and_restored(http: httpx.Client, kept: Path, tmp_path: Path) -> None:
    begun = http.post("/v1/backups", json={"to": "nightly", "copy": True})
    assert begun.status_code == 202, begun.text
    number = begun.json()["backup"]
    told = wait(http, number)
    assert (told["state"], told["error"], told["to"]) == ("done", None, str(kept / "nightly"))
    assert told["files"] == told["of"] > 0
    assert told["new_bytes"] >= told["bytes"] > 0
    (listed,) = list_kept(kept / "nightly")
    assert (listed.epoch, listed.files, listed.bytes) == (
        told["epoch"],
        told["files"],
        told["bytes"],
    )
    assert listed.new_bytes == told["new_bytes"]
    assert http.get("/v1/backups").json() == {"backups": [told]}
    restore_store(kept / "nightly", tmp_path / "again", cut_checkpoint=cut_back)
    with open_local(tmp_path / "again") as again:
        assert sorted(again.ask("SELECT n FROM s").table["n"].to_pylist()) == [0, 1, 2]
    # The next one, by its whole path, has only what is new.
    second = http.post("/v1/backups", json={"to": str(kept / "nightly")}).json()
    assert second["backup"] == number + 1
    assert wait(http, second["backup"])["new_bytes"] < told["new_bytes"]


@pytest.mark.parametrize(
    "to", ["/elsewhere", "../x", "a/../../x", "", "link/x", ".", "\0", "x" * 5000, "a" * 300]
)
def test_other_directories_are_refused(
    http: httpx.Client, kept: Path, tmp_path: Path, to: str
) -> None:
    (tmp_path / "outside").mkdir()
    (kept / "link").symlink_to(tmp_path / "outside")
    answer = http.post("/v1/backups", json={"to": to})
    if to == "a" * 300:  # allowed, but no file system takes the name
        told = wait(http, answer.json()["backup"])
        assert (told["state"], told["error"]["code"]) == ("failed", "STORE-603")
        return
    assert answer.json()["error"]["code"] in ("POND-414", "SERVE-703"), answer.text
    assert answer.status_code in (403, 422)
    assert list((tmp_path / "outside").iterdir()) == []


def test_without_a_directory_none_is_allowed(pond: Pond) -> None:
    with local_client(create_app(pond)) as http:
        answer = http.post("/v1/backups", json={"to": "x"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (403, "POND-414")
    assert "--backup-root" in error["hint"]
    with pytest.raises(MillpondError, match="CQL-214"):
        AccessPolicy.of(backups=["/no/such/directory"])


def test_a_backup_is_cancelled_and_one_is_made_at_a_time(
    http: httpx.Client, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, going = threading.Event(), threading.Event()

    def stand_still(*args: Any, progress: BackupProgress, **named: Any) -> Kept:
        begun.set()
        while not going.wait(0.01):
            progress.check()
        raise AssertionError("the backup was not cancelled")

    monkeypatch.setattr(backups, "backup_store", stand_still)
    number = http.post("/v1/backups", json={"to": "x"}).json()["backup"]
    assert begun.wait(60)
    busy = http.post("/v1/backups", json={"to": "y"})
    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "POND-401")
    told = http.delete(f"/v1/backups/{number}").json()
    assert told["state"] == "cancelled"
    assert http.delete(f"/v1/backups/{number}").json() == told
    missing = http.get(f"/v1/backups/{number + 1}")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "SERVE-704")


def test_only_admins_make_backups_and_the_audit_log_says_who(
    pond: Pond, kept: Path, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.json"
    given = {
        role: add_token(tokens, lambda id, role=role: make_caller(id, f"a {role}", role, []))[0]
        for role in ("reader", "writer", "admin")
    }
    app = create_app(pond, access=Access(tokens=tokens), policy=AccessPolicy.of(backups=[kept]))
    write_audit_to(tmp_path / "audit.jsonl")
    try:
        for role, token in given.items():
            with local_client(app) as http:
                http.headers["Authorization"] = f"Bearer {token}"
                # Who may not is not told which directories are allowed.
                wrong = http.post("/v1/backups", json={"to": "/elsewhere"})
                assert wrong.json()["error"]["code"] == (
                    "POND-414" if role == "admin" else "SERVE-713"
                )
                answer = http.post("/v1/backups", json={"to": "mine"})
                assert answer.status_code == (202 if role == "admin" else 403)
                if role == "admin":
                    wait(http, answer.json()["backup"])
                    http.delete("/v1/backups/1")
    finally:
        log.handlers[0].close()
        log.handlers, log.propagate = [], True
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(line["owner"], line["status"], line["statements"]) for line in lines] == [
        ("a reader", 403, []),
        ("a reader", 403, []),
        ("a writer", 403, []),
        ("a writer", 403, []),
        ("a admin", 403, ['BACKUP "/elsewhere"']),
        ("a admin", 202, ['BACKUP "mine"']),
        ("a admin", 200, ["CANCEL BACKUP 1"]),
    ]


def test_both_clients_make_backups(http: httpx.Client, pond: Pond, kept: Path) -> None:
    with connect("http://127.0.0.1", http=http) as remote:
        number = remote.begin_backup("mine")["backup"]
        assert wait(http, number)["state"] == "done"
        assert remote.backup(number) == pond.backup(number)
        assert remote.cancel_backup(number)["state"] == "done"
        assert remote.backups() == pond.backups()
        with pytest.raises(MillpondError, match="SERVE-704"):
            remote.backup(number + 1)

    async def use() -> dict[str, Any]:
        app = create_app(pond, policy=AccessPolicy.of(backups=[kept]))
        transport = httpx.ASGITransport(app)
        client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        async with await connect_async(http=client) as remote:
            begun = await remote.begin_backup("mine", copy=True)
            while (told := await remote.backup(begun["backup"]))["state"] == "running":
                await asyncio.sleep(0.01)
            return dict(told)

    told = asyncio.run(use())
    assert (told["state"], told["copy"]) == ("done", True)
