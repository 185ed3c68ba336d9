"""CQL over HTTP, and what is common to all calls: errors, tokens, limits."""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pytest
from local_http import local_client

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.api.problems import STATUSES, status_of
from millpond.errors import CODES, MillpondError

ASK = "SELECT carrier, number FROM flights WHERE delay > 100"


def run(http, text, **headers):
    return http.post("/v1/statements", json={"text": text}, headers=headers)


def test_statements(http):
    text = f"CREATE QUERY late AS {ASK};\nINVOKE late; SHOW QUERIES; EXPLAIN late"
    results = run(http, text).json()["results"]
    assert isinstance(results[1].pop("epoch"), int)
    assert results[0] == {
        "statement": "create query",
        "query": "late",
        "message": "query late: registered",
    }
    assert results[1] == {
        "statement": "invoke",
        "query": "late",
        "as_of": "2026-03-01T11:45:00.000000",
        "final": False,
        "exact": True,
        "loss": [],
        "bounds": None,
        "part": None,
        "estimated": [],
        "columns": ["carrier", "number"],
        "types": ["VARCHAR", "BIGINT"],
        "rows": [["AA", 9007199254740993]],
    }
    assert results[2] == {
        "statement": "show",
        "query": None,
        "as_of": None,
        "final": None,
        "columns": ["name", "state", "materialize", "query"],
        "types": ["VARCHAR"] * 4,
        "rows": [["late", "active", "lazy", ASK]],
    }
    assert "stream flights" in results[3]["text"]


def test_statements_as_ndjson(http):
    lines = run(http, f"{ASK}; SHOW QUERIES", Accept="application/x-ndjson").text.splitlines()
    assert [json.loads(line)["statement"] for line in lines] == ["ask", "show"]


def test_statements_as_arrow(http):
    accept = "application/vnd.apache.arrow.stream"
    response = run(http, ASK, Accept=accept)
    table = pa.ipc.open_stream(response.content).read_all()
    assert table.column("number").to_pylist() == [9007199254740993]
    response = run(http, f"{ASK}; {ASK}", Accept=accept)
    assert response.status_code == 406
    assert response.json()["error"]["code"] == "SERVE-709"


def test_an_error_has_its_place_in_the_whole_text(http):
    text = f"{ASK};\nSELECT *\nFROM fligths"
    response = run(http, text)
    assert response.status_code == 400
    body = response.json()
    place = body["error"]["place"]
    assert (place["line"], place["column"]) == (3, 6)
    assert text[place["start"] : place["end"]] == "fligths"
    assert [r["statement"] for r in body["results"]] == ["ask"]


def test_an_error_of_grammar_does_nothing(http, pond):
    response = run(http, f"CREATE QUERY a AS {ASK}; SELEKT 1")
    assert response.status_code == 400
    assert response.json()["error"]["code"].startswith("CQL-1")
    assert pond.queries() == []


def test_an_unforeseen_failure_tells_nothing(http, pond, monkeypatch, caplog):
    def fail(*arguments):
        raise RuntimeError("the secret inner state")

    monkeypatch.setattr(pond._components.registrar, "find", fail)
    with caplog.at_level(logging.ERROR, logger="millpond.api"):
        response = run(http, f"{ASK}; INVOKE late")
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "INTERNAL-901"
    assert "secret" not in response.text
    assert len(response.json()["results"]) == 1
    assert "the secret inner state" in caplog.text


def test_an_unforeseen_failure_elsewhere_tells_nothing(http, pond, monkeypatch, caplog):
    monkeypatch.setattr(pond, "list_queries", lambda *_, **__: 1 // 0)
    response = http.get("/v1/queries")
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "INTERNAL-901"
    assert "Traceback" not in response.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        (b"{", 400, "The body is not JSON"),
        (b'{"text": 1}', 422, "body.text:"),
        (b'{"text": "", "more": 1}', 422, "body.more:"),
        (b"{}", 422, "body.text:"),
        (b"", 422, "body:"),
    ],
)
def test_malformed_requests(http, body, status, part):
    response = http.post(
        "/v1/statements", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == status
    error = response.json()["error"]
    assert error["code"] == "SERVE-703"
    assert error["detail"].startswith(part)


def test_nothing_there(http):
    response = http.get("/v1/nothing")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "SERVE-704"


def test_another_method(http):
    response = http.delete("/v1/statements")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json()["error"]["message"] == '"/v1/statements" does not take DELETE'
    response = http.put("/v1/queries/q")
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET, PATCH")
    assert response.json()["error"]["detail"] == "It takes DELETE, GET, PATCH."


def test_every_code_has_a_status():
    assert set(STATUSES) <= set(CODES)
    for code in CODES:
        assert 400 <= status_of(MillpondError(code, "")) < 600


def test_the_token(pond):
    with local_client(create_app(pond, access=Access("s3cret"))) as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
            response = http.get("/v1/queries", headers=headers)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.json()["error"]["code"] == "SERVE-706"
        assert http.get("/metrics").status_code == 401
        assert http.get("/openapi.json").status_code == 401
        assert http.get("/healthz").status_code == 200
        assert http.get("/").status_code == 200
        allowed = http.get("/v1/queries", headers={"Authorization": "bearer s3cret"})
        assert allowed.status_code == 200


def chunks(size):
    yield b'{"text": "'
    yield b"x" * size
    yield b'"}'


@pytest.mark.parametrize("body", [b'{"text": "' + b"x" * 2000 + b'"}', chunks(2000)])
def test_a_body_that_is_too_large(pond, body):
    headers = {"Content-Type": "application/json"}
    with local_client(create_app(pond, max_body=1000)) as http:
        response = http.post("/v1/statements", content=body, headers=headers)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "SERVE-707"


def test_health(http, pond):
    assert http.get("/healthz").json() == {"status": "alive"}
    for call in ("/readyz", "/healthz?ready"):
        assert http.get(call).json() == {"status": "ready"}
    pond.close()
    for call in ("/readyz", "/healthz?ready"):
        assert http.get(call).status_code == 503
    assert http.get("/healthz").status_code == 200


def test_health_while_spark_is_away(http, pond):
    reason = MillpondError("POND-415", "Spark has ended", hint="Try again.")
    pond._components.runtime.trouble = reason
    for call in ("/readyz", "/healthz?ready"):
        answer = http.get(call)
        assert answer.status_code == 503
        assert answer.json() == {"status": "not ready", "reason": "POND-415: Spark has ended"}
    status = http.get("/v1/status").json()
    assert status["ready"] is False
    assert status["problems"][0] == reason.to_json()["error"]
    pond._components.runtime.trouble = None
    for call in ("/readyz", "/healthz?ready"):
        assert http.get(call).status_code == 200


def test_what_waits_for_spark_says_when_to_come_again(http, pond):
    components = pond._components
    components.runtime.wake_inbox = lambda: None
    components.runtime.trouble = MillpondError("POND-415", "Spark has ended", hint="Try again.")
    text = "CREATE STREAM t (n BIGINT); INSERT INTO t VALUES (1); SELECT n FROM t"
    answer = http.post("/v1/statements", json={"text": text})
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "POND-415"
    assert answer.headers["retry-after"] == "5"
    assert http.post("/v1/catch-up").status_code == 503


def test_metrics(http):
    response = http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    assert "# TYPE millpond" in response.text


def test_status(http):
    body = http.get("/v1/status").json()
    assert body["epoch"] >= 1
    assert body["ready"] is True
    assert body["streams"][0]["heartbeat"] == "2026-03-01T11:45:00.000000"
