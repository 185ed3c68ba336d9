"""Tokens that come and go, quotas, and tickets: over HTTP as people and programs send it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from people import GRANTED, WORLD, client_of, make_token

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.api.rights.token_file import read_entries, revoke_token
from millpond.errors import MillpondError
from millpond.service.pond import Pond

PAGE = "http://127.0.0.1:3000"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.json"
    make_token(path, "root", "admin", [])
    return path


@pytest.fixture
def app(pond: Pond, tokens: Path) -> FastAPI:
    pond.execute(WORLD)
    return create_app(pond, access=Access.of(tokens=tokens, origins=[PAGE]))


@pytest.fixture
def url(app: FastAPI) -> Iterator[str]:
    """The URL of the application on a real port: responses come piece by piece."""
    config = uvicorn.Config(app, port=0, log_level="critical", log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    app.state.followers.close()
    server.should_exit = True
    thread.join()


def id_of(token: str) -> str:
    return token.split("_")[1]


def code_of(answer: httpx.Response) -> str:
    return answer.json()["error"]["code"]


def test_a_token_is_kept_as_its_hash(tokens: Path) -> None:
    token = make_token(tokens, "alice", "reader", ["flights"])
    text = tokens.read_text()
    assert token not in text
    assert token.split("_", 2)[2] not in text
    assert tokens.stat().st_mode & 0o777 == 0o600
    with pytest.raises(MillpondError, match="no token"):
        revoke_token(tokens, "nothing")


def test_tokens_come_and_go_while_the_server_runs(app: FastAPI, tokens: Path) -> None:
    token = make_token(tokens, "alice", "reader", ["flights"])
    with client_of(app, token) as client:
        assert client.get("/v1/streams").is_success
        new = make_token(tokens, "alice", "reader", ["flights"])
        revoke_token(tokens, id_of(token))
        with client_of(app, new) as other:
            assert other.get("/v1/streams").is_success
        time.sleep(1.05)
        refused = client.get("/v1/streams")
        assert (refused.status_code, code_of(refused)) == (401, "SERVE-706")


def test_a_token_that_is_almost_one_is_none(app: FastAPI, tokens: Path) -> None:
    token = make_token(tokens, "alice", "reader", ["flights"])
    for wrong in (token[:-1], token + "x", f"mp_{id_of(token)}_", id_of(token), "mp__", "mp"):
        with client_of(app, wrong) as client:
            assert client.get("/v1/streams").status_code == 401, wrong


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"tokens": [{}]}',
        '{"tokens": 1}',
        None,
    ],
)
def test_a_file_that_cannot_be_read_lets_nobody_in(
    content: str | None, app: FastAPI, tokens: Path
) -> None:
    token = make_token(tokens, "alice", "reader", ["flights"])
    with client_of(app, token) as client:
        assert client.get("/v1/streams").is_success
        if content is None:
            tokens.chmod(0o640)
        else:
            tokens.write_text(content)
        time.sleep(1.05)
        assert client.get("/v1/streams").status_code == 401
        with pytest.raises(MillpondError, match="SERVE-712"):
            read_entries(tokens)


def test_a_token_ends_when_it_says(app: FastAPI, tokens: Path) -> None:
    token = make_token(tokens, "alice", "reader", ["flights"])
    body = json.loads(tokens.read_text())
    body["tokens"][-1]["expires_at"] = time.time() - 1
    tokens.write_text(json.dumps(body))
    with client_of(app, token) as client:
        assert client.get("/v1/streams").status_code == 401


@pytest.mark.parametrize(
    ("role", "owner", "streams", "quotas"),
    [
        ("boss", "a", [], {}),
        ("reader", "", [], {}),
        ("reader", "a", ["*x"], {}),
        ("reader", "a", [""], {}),
        ("reader", "a", [], {"queries": 0}),
        ("reader", "a", [], {"queries": True}),
        ("reader", "a", [], {"nothing": 1}),
    ],
)
def test_what_is_no_token(
    role: str, owner: str, streams: list[str], quotas: dict, tokens: Path
) -> None:
    with pytest.raises(ValueError, match=r"There|An owner|A stream|The quota"):
        make_token(tokens, owner, role, streams, **quotas)
    assert len(read_entries(tokens)) == 1


def test_probes_need_no_token(app: FastAPI) -> None:
    with client_of(app, None) as client:
        for path in ("/healthz", "/readyz"):
            assert client.get(path).is_success
            head = client.head(path)
            assert (head.status_code, head.content) == (200, b"")
        assert client.head("/v1/streams").status_code == 401


def test_quotas_of_an_owner(app: FastAPI, tokens: Path, pond: Pond) -> None:
    quotas = {"queries": 4, "followed": 1, "kept_changes": 7, "rows": 2}
    token = make_token(tokens, "alice", "writer", GRANTED, **quotas)
    other = make_token(tokens, "alice", "writer", GRANTED, **quotas)
    body = {"cql": "SELECT ts FROM flights"}
    with client_of(app, token) as client, client_of(app, other) as same_owner:
        assert client.post("/v1/queries", json={**body, "name": "third"}).is_success
        refused = client.post("/v1/queries", json=[body, body])
        assert (refused.status_code, code_of(refused)) == (429, "SERVE-714")
        assert int(refused.headers["retry-after"]) >= 1
        assert same_owner.post("/v1/queries", json=body).is_success
        for full in (
            same_owner.post("/v1/queries", json=body),
            client.post("/v1/statements", json={"text": f"CREATE QUERY q AS {body['cql']}"}),
        ):
            assert (full.status_code, code_of(full)) == (429, "SERVE-714")
        assert client.get("/v1/queries/third").json()["options"]["keep_changes"] == 7
        for more in (
            client.patch("/v1/queries/third", json={"keep_changes": 8}),
            client.patch("/v1/queries?tag=x", json={"keep_changes": 8}),
        ):
            assert code_of(more) == "SERVE-714"
        assert client.get("/v1/queries/of_alice/changes").is_success
        assert client.get("/v1/queries/of_alice/changes").is_success
        for second in (
            client.get("/v1/queries/third/changes"),
            client.post("/v1/statements", json={"text": "FETCH third"}),
            client.patch("/v1/queries/third", json={"follow": True}),
            client.get("/v1/changes?queries=third"),
            client.get("/v1/changes?containing=SELECT"),
            client.post("/v1/statements", json={"text": "ALTER QUERY third SET (follow = true)"}),
        ):
            assert code_of(second) == "SERVE-714", second.text
        large = client.get("/v1/queries/third/result")
        assert (large.status_code, code_of(large)) == (422, "POND-405")
        asked = client.post("/v1/statements", json={"text": "SELECT * FROM flights"})
        assert code_of(asked) == "POND-405"
        assert client.post("/v1/statements", json={"text": "SELECT 1 AS x"}).is_success


def test_nothing_is_followed_beyond_the_quota_however_it_is_asked_for(
    app: FastAPI, tokens: Path, pond: Pond
) -> None:
    token = make_token(tokens, "carl", "writer", GRANTED, followed=1)
    body = {"cql": "SELECT ts FROM flights"}
    with client_of(app, token) as client:

        def state(text: str) -> httpx.Response:
            return client.post("/v1/statements", json={"text": text})

        assert client.post(
            "/v1/queries", json={**body, "name": "first", "options": {"follow": True}}
        ).is_success
        assert client.post("/v1/queries", json={**body, "name": "awake"}).is_success
        asleep = {**body, "name": "asleep", "options": {"active": False}}
        assert client.post("/v1/queries", json=asleep).is_success
        for second in (
            client.post("/v1/queries", json={**body, "options": {"Follow": True}}),
            client.patch("/v1/queries/awake", json={"FOLLOW": True}),
            client.patch("/v1/queries?queries=awake", json={"Follow": True}),
            client.patch("/v1/queries/asleep", json={"follow": True}),
            client.patch("/v1/queries/asleep", json={"follow": True, "active": True}),
            client.patch("/v1/queries?queries=asleep", json={"follow": True, "active": True}),
            state("ALTER QUERY asleep SET (follow = true, active = true)"),
        ):
            assert (second.status_code, code_of(second)) == (429, "SERVE-714"), second.text
        followed = pond.followed_among(pond.queries(owner="carl"))
        assert [query.name for query in followed] == ["first"]
        assert client.get("/v1/changes?queries=first,asleep").is_success


def test_a_statement_that_makes_no_query_needs_no_place_in_the_quota(
    app: FastAPI, tokens: Path
) -> None:
    token = make_token(tokens, "dora", "writer", GRANTED, queries=1, followed=1)
    made = "one WITH (follow = true) AS SELECT ts FROM flights"
    with client_of(app, token) as client:
        for create in ("CREATE QUERY", "CREATE QUERY IF NOT EXISTS", "CREATE OR REPLACE QUERY"):
            done = client.post("/v1/statements", json={"text": f"{create} {made}"})
            assert done.is_success, done.text
        refused = client.post("/v1/statements", json={"text": "CREATE QUERY x AS SELECT 1 AS n"})
        assert code_of(refused) == "SERVE-714"


def test_a_token_sends_so_many_requests_a_second(app: FastAPI, tokens: Path) -> None:
    token = make_token(tokens, "alice", "reader", GRANTED, rate=0.5)
    with client_of(app, token) as client:
        assert client.get("/v1/streams").is_success
        refused = client.get("/v1/streams")
        assert (refused.status_code, code_of(refused)) == (429, "SERVE-714")


def test_work_under_way_is_counted_by_owner(url: str, tokens: Path) -> None:
    tokens_of_alice = [make_token(tokens, "alice", "reader", GRANTED, running=1) for _ in "ab"]
    first, second = ({"Authorization": f"Bearer {token}"} for token in tokens_of_alice)
    with httpx.stream("GET", f"{url}/v1/changes?tag=x&follow=true", headers=first) as open_feed:
        assert open_feed.is_success
        assert httpx.get(f"{url}/v1/streams", headers=second).status_code == 429
    deadline = time.monotonic() + 5
    while httpx.get(f"{url}/v1/streams", headers=second).status_code == 429:
        assert time.monotonic() < deadline


#: What a browser's EventSource sends from a page of another port.
EVENT_SOURCE = {
    "Accept": "text/event-stream",
    "Cache-Control": "no-cache",
    "Origin": PAGE,
    "Referer": f"{PAGE}/",
    "Sec-Fetch-Dest": "empty",
    "Sec-Fetch-Mode": "cors",
    "Sec-Fetch-Site": "same-site",
}


def test_an_event_source_follows_by_a_ticket(url: str, tokens: Path, pond: Pond) -> None:
    token = make_token(tokens, "alice", "reader", GRANTED)
    made = httpx.post(
        f"{url}/v1/tickets",
        json={"queries": ["of_alice"]},
        headers={"Authorization": f"Bearer {token}", "Origin": PAGE, "Sec-Fetch-Site": "same-site"},
    )
    assert made.status_code == 201
    assert made.headers["access-control-allow-origin"] == PAGE
    path = made.json()["path"]
    with httpx.stream("GET", url + path, headers=EVENT_SOURCE) as feed:
        assert feed.is_success
        assert feed.headers["access-control-allow-origin"] == PAGE
        assert feed.headers["content-type"].startswith("text/event-stream")
        lines = feed.iter_lines()
        first = next(line for line in lines if line.startswith("id:"))
        pond.ingest("flights", [{"ts": "2026-03-01 11:50:00", "carrier": "ZZ"}])
        pond.execute("HEARTBEAT flights AT TIMESTAMP '2026-03-01 11:55:00'")
        assert any('"ZZ"' in line for line in lines)
    again = {**EVENT_SOURCE, "Last-Event-ID": first.removeprefix("id:").strip()}
    with httpx.stream("GET", url + path, headers=again) as feed:
        assert any('"ZZ"' in line for line in feed.iter_lines())


def test_a_ticket_is_for_its_feed_and_for_nothing_else(app: FastAPI, tokens: Path) -> None:
    token = make_token(tokens, "alice", "writer", GRANTED)
    with client_of(app, token) as client, client_of(app, None) as browser:
        text = client.post("/v1/tickets", json={"tag": "x"}).json()["ticket"]
        page = {"ticket": text, "follow": "false"}
        assert browser.get("/v1/changes", params=page).is_success
        other = browser.get("/v1/changes", params={**page, "queries": "beyond"})
        assert code_of(other) == "SERVE-703"
        for method, path in (
            ("GET", "/v1/queries"),
            ("GET", "/v1/status"),
            ("POST", "/v1/changes"),
            ("POST", "/v1/statements"),
            ("POST", "/v1/tickets"),
            ("GET", "/v1/queries/of_alice/changes"),
        ):
            assert browser.request(method, path, params={"ticket": text}).status_code == 401
        for wrong in ("", "x", text[:-1], id_of(token), token):
            refused = browser.get("/v1/changes", params={"ticket": wrong, "tag": "x"})
            assert refused.status_code == 401
        for body in ({}, {"queries": ["of_bob"]}, {"queries": ["nothing"]}):
            refused = client.post("/v1/tickets", json=body)
            assert refused.status_code == (404 if body else 400)
        revoke_token(tokens, id_of(token))
        time.sleep(1.05)
        assert browser.get("/v1/changes", params=page).status_code == 401


def test_an_open_feed_ends_with_its_token(url: str, tokens: Path) -> None:
    token = make_token(tokens, "alice", "reader", GRANTED)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.stream("GET", f"{url}/v1/changes?tag=x&follow=true", headers=headers) as feed:
        revoke_token(tokens, id_of(token))
        began = time.monotonic()
        for _ in feed.iter_lines():
            pass
    assert time.monotonic() - began < 10


def test_tickets_without_tokens(pond: Pond) -> None:
    pond.execute(WORLD)
    with client_of(create_app(pond), None) as client:
        text = client.post("/v1/tickets", json={"tag": "x"}).json()["ticket"]
        page = {"ticket": text, "follow": "false"}
        assert client.get("/v1/changes", params=page).is_success
        wrong = client.get("/v1/changes", params={**page, "ticket": "x"})
        assert (wrong.status_code, code_of(wrong)) == (401, "SERVE-706")


def test_an_adopted_plan_names_its_owner(app: FastAPI, tokens: Path) -> None:
    with client_of(app, make_token(tokens, "ann", "admin", [])) as ann:
        ann.post("/v1/plan/adopt", json={"form": 1}).raise_for_status()
        assert [plan["by"] for plan in ann.get("/v1/plan/adopted").json()["plans"]] == ["ann"]
