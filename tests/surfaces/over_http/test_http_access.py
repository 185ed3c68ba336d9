"""Who may call a server: under which names, from which pages, with which bodies and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from calls import every_call, every_path
from fastapi import FastAPI
from local_http import local_client

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.errors import MillpondError
from millpond.service.pond import Pond

FORM = "application/x-www-form-urlencoded"
FRIEND = "https://dashboard.example.org"
ASK = {"text": "SELECT carrier FROM flights"}


@pytest.fixture
def app(pond: Pond) -> FastAPI:
    return create_app(pond, access=Access.of(hosts=["pond.example.org"], origins=[FRIEND]))


@pytest.fixture
def http(app: FastAPI) -> Iterator[httpx.Client]:
    with local_client(app) as client:
        yield client


def code_of(response: httpx.Response) -> str:
    return response.json()["error"]["code"]


def test_the_names_of_the_server(http: httpx.Client) -> None:
    for host in ("localhost", "LOCALHOST:6455", "127.0.0.1:80", "[::1]:6455", "pond.example.org"):
        assert http.get("/v1/streams", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.2", "[::2]", ""):
        refused = http.get("/v1/streams", headers={"Host": host})
        assert (refused.status_code, code_of(refused)) == (421, "SERVE-710"), host


def test_the_address_a_connection_came_to_is_a_name_of_the_server(app: FastAPI) -> None:
    with local_client(app, "http://192.0.2.7:6455") as http:
        assert http.get("/v1/streams").status_code == 200
    with local_client(app, "http://rebound.example:6455") as http:
        assert http.get("/v1/streams").status_code == 421


CROSS_SITE = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:3000"},
    {"Origin": "https://dashboard.example.org.evil.example"},
    {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
]


def test_pages_of_other_origins_make_no_call(app: FastAPI, http: httpx.Client) -> None:
    for call in every_call(app):
        for headers in CROSS_SITE:
            refused = http.request(call.method, call.url, headers=headers)
            assert (refused.status_code, code_of(refused)) == (403, "SERVE-711"), (call, headers)
            assert "access-control-allow-origin" not in refused.headers


def test_own_pages_and_programs_make_calls(http: httpx.Client) -> None:
    for headers in (
        {},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
    ):
        assert http.post("/v1/statements", json=ASK, headers=headers).status_code == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    for page in ("/", "/docs"):
        assert http.get(page, headers=link).status_code == 200


def test_pages_of_an_allowed_origin(app: FastAPI, http: httpx.Client) -> None:
    headers = {"Origin": FRIEND, "Sec-Fetch-Site": "cross-site"}
    answer = http.post("/v1/statements", json=ASK, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == FRIEND
    assert "Origin" in answer.headers["vary"]
    missing = http.get("/v1/queries/nope", headers=headers)
    assert missing.headers["access-control-allow-origin"] == FRIEND
    for call in every_call(app):
        asked = {"Access-Control-Request-Method": call.method}
        sent = "authorization, content-type, idempotency-key"
        asked["Access-Control-Request-Headers"] = sent
        before = http.options(call.url, headers=headers | asked)
        assert before.status_code == 200, call
        assert call.method in before.headers["access-control-allow-methods"]


def test_without_an_allowed_origin_nothing_is_asked_before(pond: Pond) -> None:
    asked = {"Origin": FRIEND, "Access-Control-Request-Method": "POST"}
    with local_client(create_app(pond)) as http:
        refused = http.options("/v1/statements", headers=asked)
        assert (refused.status_code, code_of(refused)) == (403, "SERVE-711")
        own = http.options("/v1/statements", headers=asked | {"Origin": "http://127.0.0.1"})
        assert own.status_code == 405


def test_an_allowed_origin_bears_the_token_too(pond: Pond) -> None:
    app = create_app(pond, access=Access.of("s3cret", origins=[FRIEND]))
    with local_client(app) as http:
        refused = http.get("/v1/streams", headers={"Origin": FRIEND})
        assert (refused.status_code, code_of(refused)) == (401, "SERVE-706")
        assert refused.headers["access-control-allow-origin"] == FRIEND


def test_a_body_comes_as_the_document_says(app: FastAPI, http: httpx.Client) -> None:
    with_bodies = [call for call in every_call(app) if call.bodies]
    assert len(with_bodies) >= 6
    for call in with_bodies:
        assert FORM not in call.bodies
        for media in (FORM, "text/plain", "multipart/form-data; boundary=x", "application/x+json"):
            headers = {"Content-Type": media}
            refused = http.request(call.method, call.url, content=b"{}", headers=headers)
            assert (refused.status_code, code_of(refused)) == (415, "SERVE-708"), (call, media)
        refused = http.request(call.method, call.url, content=b"{}")
        assert (refused.status_code, code_of(refused)) == (415, "SERVE-708"), call


def test_a_call_without_a_body_takes_none(app: FastAPI, http: httpx.Client) -> None:
    without = [call for call in every_call(app) if not call.bodies]
    assert ("POST", "/v1/catch-up") in {(call.method, call.path) for call in without}
    for call in without:
        tries: list[dict[str, Any]] = [
            {"content": b"{}"},
            {"content": b"{}", "headers": {"Content-Type": "application/json"}},
            {"content": iter([b"a=1"])},
            *(
                {"content": content, "headers": {"Content-Type": media}}
                for media in (FORM, "text/plain", "multipart/form-data; boundary=x")
                for content in (b"", b"a=1")
            ),
        ]
        for sent in tries:
            refused = http.request(call.method, call.url, **sent)
            assert (refused.status_code, code_of(refused)) == (400, "SERVE-703"), (call, sent)
            assert "takes no body" in refused.text


def test_query_parameters_are_those_of_the_document(app: FastAPI, http: httpx.Client) -> None:
    for call in every_call(app):
        headers = {"Content-Type": call.bodies[0]} if call.bodies else {}
        refused = http.request(call.method, f"{call.url}?limmit=1", content=b"{}", headers=headers)
        assert (refused.status_code, code_of(refused)) == (400, "SERVE-703"), call
        assert refused.json()["error"]["message"] == 'no query parameter "limmit"'


def test_halves_of_surrogate_pairs_are_no_texts(app: FastAPI, http: httpx.Client) -> None:
    for call in every_call(app):
        # Where rows are pushed, a row with such a text is a reject.
        if "application/json" not in call.bodies or "application/x-ndjson" in call.bodies:
            continue
        for body in (
            rb'{"text": "SELECT \ud800", "cql": "SELECT \ud800"}',
            rb'{"cql": "SELECT 1", "name": "\uDfff"}',
            rb'{"\udc00": true}',
            rb'[{"cql": "SELECT 1", "options": {"strategy": ["\ud83d"]}}]',
        ):
            headers = {"Content-Type": "application/json"}
            refused = http.request(call.method, call.url, content=body, headers=headers)
            assert (refused.status_code, code_of(refused)) == (400, "SERVE-703"), (call, body)
            assert "half of a surrogate pair" in refused.json()["error"]["detail"]
    whole = rb'{"text": "SELECT \u0027\ud83d\ude00\u0027 AS face FROM flights LIMIT 1"}'
    headers = {"Content-Type": "application/json"}
    answer = http.post("/v1/statements", content=whole, headers=headers)
    assert answer.json()["results"][0]["rows"] == [["😀"]]


def test_nobody_frames_an_answer(app: FastAPI, http: httpx.Client, pond: Pond, monkeypatch) -> None:
    paths = every_path(app)
    assert {"/", "/openapi.json", "/metrics", "/console/main.js"} <= set(paths)
    monkeypatch.setattr(type(pond), "streams", lambda self: 1 // 0)
    seen = {path: http.get(path) for path in [*paths, "/nothing/there"]}
    assert seen["/v1/streams"].status_code == 500
    seen["another host"] = http.get("/", headers={"Host": "evil.example"})
    seen["another site"] = http.get("/v1/streams", headers={"Origin": "https://evil.example"})
    for path, answer in seen.items():
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], path
        assert answer.headers["x-content-type-options"] == "nosniff", path


@pytest.mark.parametrize(
    ("origin", "kept"),
    [
        ("https://Example.org", "https://example.org"),
        ("https://example.org:443", "https://example.org"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_an_origin_is_kept_as_browsers_write_it(origin: str, kept: str) -> None:
    assert Access.of(origins=[origin]).origins == {kept}


@pytest.mark.parametrize(
    ("hosts", "origins"),
    [
        (["http://a"], []),
        (["a:80"], []),
        ([""], []),
        (["*"], []),
        ([], ["*"]),
        ([], ["null"]),
        ([], ["example.org"]),
        ([], ["https://example.org/"]),
        ([], ["https://*.example.org"]),
        ([], ["ftp://example.org"]),
        ([], ["https://example.org:x"]),
    ],
)
def test_what_is_no_name_and_no_origin(hosts: list[str], origins: list[str]) -> None:
    with pytest.raises(MillpondError, match="SERVE-712"):
        Access.of(hosts=hosts, origins=origins)
