"""Every call by which the console changes something is in the audit log, with what it changes."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from millpond.api.rights.audit import log, write_audit_to
from millpond.service.pond import Pond

SOURCES = Path(__file__).parents[3] / "console" / "src"
_CALLS = re.compile(r'call\(\s*"(post|patch|delete|put)",\s*"([^"]+)"')

#: Calls by POST that change nothing.
READS = {("post", "/v1/parse"), ("post", "/v1/plan/compare"), ("post", "/v1/tickets")}

#: Each call that changes something: its address, its body, and what the log says it did.
CHANGES = {
    ("post", "/v1/statements"): (
        "/v1/statements",
        {"text": "CREATE QUERY made AS SELECT ts FROM flights"},
        "CREATE QUERY made",
    ),
    ("post", "/v1/queries"): (
        "/v1/queries",
        {"cql": "SELECT delay FROM flights", "name": "other"},
        "SELECT delay FROM flights",
    ),
    ("patch", "/v1/queries"): ("/v1/queries?queries=late", {"weight": 7}, '["late"]} SET {"weight'),
    ("patch", "/v1/queries/{query}"): ("/v1/queries/late", {"active": False}, '"active"'),
    ("patch", "/v1/entities/{entity}"): ("/v1/entities/eddies:all", {"routing": "fixed"}, "fixed"),
    ("post", "/v1/plan/adopt"): ("/v1/plan/adopt", None, "ADOPT PLAN {"),
    ("post", "/v1/plan/undo"): ("/v1/plan/undo", None, "UNDO PLAN"),
    ("delete", "/v1/queries/{query}"): ("/v1/queries/other", None, None),
    ("delete", "/v1/queries"): ("/v1/queries?queries=late", None, 'DROP {"names": ["late"]}'),
}


def list_calls() -> set[tuple[str, str]]:
    every = "".join(path.read_text() for path in sorted(SOURCES.rglob("*.ts*")))
    return set(_CALLS.findall(every)) - READS


@pytest.fixture
def audit(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    write_audit_to(path)
    yield lambda: [json.loads(line) for line in path.read_text().splitlines()]
    for handler in log.handlers:
        handler.close()
    log.handlers, log.propagate = [], True
    log.setLevel(logging.NOTSET)


def test_every_change_is_in_the_audit_log(http, pond: Pond, audit) -> None:
    assert set(CHANGES) == list_calls()
    pond.execute("CREATE QUERY late AS SELECT DISTINCT carrier FROM flights [RANGE 1 HOUR]")
    pond.query("late").fetch()
    for (method, path), (address, body, said) in CHANGES.items():
        if path == "/v1/plan/adopt":
            body = http.get("/v1/plan/document").json()
        if path == "/v1/plan/undo":
            assert pond.adopted_plans()
        response = http.request(method.upper(), address, json=body)
        assert response.is_success, (path, response.text)
        line = audit()[-1]
        assert (line["method"], line["path"]) == (method.upper(), address.split("?")[0])
        if said is not None:  # else the path says it
            assert said in line["statements"][0], line
    assert len(audit()) == len(CHANGES)
