"""The OpenAPI document says what the server does: every call, every answer, every error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import httpx
import pytest
import requests
import schemathesis
from calls import every_call
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_http import local_client
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.catalog.option import Scope
from millpond.catalog.options import list_options
from millpond.service.pond import Pond

#: What answers without a token.
OPEN = {"/healthz", "/readyz"}

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

#: Names and texts that reach further into a pond than drawn ones do.
NAMES = {
    "query": st.sampled_from(["q", "q", "q", "flights", "late", "none", "3", "9" * 30, "²"]),
    "stream": st.sampled_from(["late", "late", "flights", "planes", "q", "none"]),
    "part": st.sampled_from(["a", "b", "a/b", ""]),
    "backup": st.sampled_from(["1", "-1", "9" * 30, "q"]),
    "entity": st.sampled_from(["eddies:all", "joins:all", "changes:all", "answer:q", "none"]),
}
INSTANTS = st.sampled_from(
    ["2026-03-01T11:30:00", "2026-03-01T11:30:00+01:00", "infinity", "beginning of time", "1e9"]
    + [str(10**n) for n in (3, 16, 18, 19, 40)]
)
QUERY = "SELECT carrier, delay FROM flights [RANGE 1 HOUR] WHERE delay > 30"
STATEMENTS = st.sampled_from(
    [
        QUERY,
        "INVOKE q",
        "FETCH q AFTER 1 LIMIT 2",
        "SHOW STREAMS; SHOW ENTITIES; EXPLAIN q; DESCRIBE flights",
        "CREATE STREAM made (v INTEGER, ts TIMESTAMP) TIMESTAMP BY ts",
        "DROP STREAM made",
        "INSERT INTO planes VALUES ('N1', 'A320')",
        "INSERT INTO flights VALUES ('2026-03-01 12:30:00', 'AA', 'JFK', 1e308, 7)",
        "UPDATE planes SET model = 'B737' WHERE tailnum = 'N1'",
        "CREATE STREAM later AS ISTREAM(SELECT number FROM flights WHERE delay > 60)",
        "SELECT 'NaN'::DOUBLE AS x, DATE '2026-03-01' AS d, INTERVAL 1 DAY AS i FROM flights",
        "HEARTBEAT flights AT TIMESTAMP '2026-03-02 00:00:00'",
        "SELECT nothing FROM nowhere; SELEKT",
    ]
)


@pytest.fixture
def app(pond: Pond) -> FastAPI:
    pond.execute(f"CREATE QUERY q AS {QUERY}; FETCH q")
    pond.execute("CREATE STREAM late AS ISTREAM(SELECT number FROM flights WHERE delay > 30)")
    app = create_app(pond)
    app.state.followers.close()  # what is followed ends at once
    return app


@pytest.fixture
def http(app: FastAPI) -> Iterator[httpx.Client]:
    with local_client(app) as client:
        yield client


def list_calls() -> list[str]:
    """Every call by its name; asked of an application without a pond, before there are any."""
    return [f"{call.method} {call.path}" for call in every_call(create_app(cast(Pond, None)))]


@pytest.mark.parametrize("examples", [12, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("call", list_calls())
def test_no_server_error_and_nothing_undocumented(
    call: str, examples: int, app: FastAPI, http: httpx.Client
) -> None:
    method, path = call.split()
    operation = schemathesis.openapi.from_dict(app.openapi())[path][method]
    valid, invalid = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
    modes = st.sampled_from([valid, valid, invalid])

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(case=modes.flatmap(operation.as_strategy), data=st.data())
    def check(case: schemathesis.Case, data: st.DataObject) -> None:
        for name in case.path_parameters or {}:
            if data.draw(st.integers(0, 3)):
                case.path_parameters[name] = data.draw(NAMES[name])
        if "at" in (case.query or {}) and data.draw(st.booleans()):
            case.query["at"] = data.draw(INSTANTS)
        if isinstance(case.body, dict) and data.draw(st.integers(0, 3)):
            text = data.draw(STATEMENTS)
            case.body |= {key: text for key in ("text", "cql") if key in case.body}
        asked = requests.Request(**case.as_transport_kwargs("http://127.0.0.1")).prepare()
        headers = {name: value for name, value in asked.headers.items() if name != "Host"}
        answer = http.request(asked.method, asked.url, headers=headers, content=asked.body)
        answer.elapsed = timedelta()
        case.validate_response(answer, checks=CHECKS)

    check()


def test_every_answer_is_typed(app: FastAPI) -> None:
    components = app.openapi()["components"]["schemas"]

    def fields(schema: dict[str, Any]) -> list[set[str]]:
        if "$ref" in schema:
            named = components[schema["$ref"].rpartition("/")[2]]
            assert named["additionalProperties"] is False, schema
            return [set(named["properties"])]
        if "anyOf" in schema:
            return [found for part in schema["anyOf"] for found in fields(part)]
        assert schema["type"] == "array", schema
        return fields(schema["items"])

    for call in every_call(app):
        for status, answer in call.document["responses"].items():
            if status == "204" or (call.path, status) == ("/metrics", "200"):
                continue
            shapes = fields(answer["content"]["application/json"]["schema"])
            health = call.path in ("/healthz", "/readyz") and status == "503"
            assert all(shapes), (call, status)
            is_problem = "error" in shapes[0] and "backup" not in shapes[0]
            assert is_problem is (status >= "400" and not health), (call, status)
        assert {"400", "403", "421", "422", "500", "503"} <= set(call.document["responses"])
        assert ("415" in call.document["responses"]) is bool(call.bodies), call


def test_every_call_but_liveness_needs_the_token(pond: Pond) -> None:
    app = create_app(pond, access=Access("s3cret"))
    schemes = app.openapi()["components"]["securitySchemes"]
    assert schemes == {
        "HTTPBearer": {"type": "http", "scheme": "bearer", "description": "A token of the server."},
        "Ticket": {
            "type": "apiKey",
            "in": "query",
            "name": "ticket",
            "description": "Of POST /v1/tickets.",
        },
    }
    with local_client(app) as http:
        for call in every_call(app):
            is_open = call.path in OPEN
            needed = [] if is_open else [{"HTTPBearer": []}]
            if call.document["operationId"].startswith("feed"):
                needed.append({"Ticket": []})
            found = call.document.get("security", [])
            assert sorted(map(str, found)) == sorted(map(str, needed))
            # A ticket may be wrong too, where nothing else is needed.
            assert ("401" in call.document["responses"]) is not is_open
            for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "s3cret"}):
                refused = http.request(call.method, call.url, headers=headers)
                assert (refused.status_code == 401) is not is_open, call
        assert http.get("/openapi.json").status_code == 401
        assert http.get("/v1/nothing").status_code == 401


def test_every_body_refuses_unknown_fields(app: FastAPI, http: httpx.Client) -> None:
    bodies = {
        "/v1/statements": {"text": "SHOW STREAMS", "dry_run": True},
        "/v1/parse": {"text": "SHOW STREAMS", "dry_run": True},
        "/v1/queries": {"cql": QUERY, "dry_run": True},
        "/v1/queries/{query}": {"dry_run": True},
        "/v1/streams/{stream}": {"dry_run": True},
        "/v1/streams/{stream}/batches": {"writer": "w", "parts": [], "dry_run": True},
        "/v1/entities/{entity}": {"dry_run": True},
        "/v1/tickets": {"tag": "x", "dry_run": True},
        "/v1/plan/compare": {"form": 1, "dry_run": True},
        "/v1/plan/adopt": {"form": 1, "dry_run": True},
        "/v1/backups": {"to": "backups", "dry_run": True},
    }
    http.post("/v1/statements", json={"text": f"CREATE STREAM s AS ISTREAM({QUERY})"})
    names = {"{query}": "q", "{stream}": "s", "{entity}": "eddies:all"}
    for call in every_call(app):
        if call.bodies != ["application/json"]:
            continue
        path = call.path
        for part, name in names.items():
            path = path.replace(part, name)
        chosen = {"tag": "none"} if call.path == "/v1/queries" and call.method == "PATCH" else {}
        body = {"dry_run": True} if chosen else bodies[call.path]
        refused = http.request(call.method, path, json=body, params=chosen)
        assert refused.status_code in (400, 422), (call, refused.text)
        error = refused.json()["error"]
        assert "dry_run" in f"{error['message']} {error['detail']}", call
    nested = {"cql": QUERY, "options": {"dry_run": True}}
    refused = http.post("/v1/queries", json=[{"cql": QUERY}, nested])
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "CQL-214")


def test_the_document_has_every_option(app: FastAPI) -> None:
    [call] = [c for c in every_call(app) if (c.method, c.path) == ("PATCH", "/v1/queries/{query}")]
    schema = call.document["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == {*list_options(Scope.QUERY), "params"}


def test_a_path_has_one_spelling(app: FastAPI, http: httpx.Client) -> None:
    for call in every_call(app):
        assert http.request(call.method, f"{call.url}/").status_code == 404, call


def test_generators_of_clients_know_every_call(app: FastAPI) -> None:
    """They pass over a call whose body has no form they know, and constants without a type."""
    document = app.openapi()

    def find_constants(part: Any) -> Iterator[dict[str, Any]]:
        if isinstance(part, dict):
            if "const" in part:
                yield part
            part = list(part.values())
        for inner in part if isinstance(part, list) else ():
            yield from find_constants(inner)

    found = list(find_constants(document))
    assert found
    assert all(c.get("type") in ("string", "integer") for c in found), found
    for call in every_call(app):
        assert not call.bodies or "application/json" in call.bodies, call
        for answer in call.document["responses"].values():
            forms = list(answer.get("content", ()))
            assert "application/json" not in forms[1:], call
