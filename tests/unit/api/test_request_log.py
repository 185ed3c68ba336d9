"""Ids of requests, in answers and in the log; the access log has no query strings."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from tests.surfaces.local_http import local_client

from millpond.api.access import Access
from millpond.api.app import create_app
from millpond.api.request_log import HEADER
from millpond.api.rights.make_caller import make_caller
from millpond.api.rights.token_file import add_token
from millpond.testing.local_runtime import open_local


@pytest.mark.parametrize("given", ["7f-3.a:b_C", "", "x" * 65, "a b"])
def test_an_answer_has_the_id_of_its_request(tmp_path: Path, given: str) -> None:
    with open_local(tmp_path / "store") as pond, local_client(create_app(pond)) as http:
        answers = [http.get("/healthz", headers={HEADER: given}), http.get("/nowhere")]
        ids = [answer.headers[HEADER] for answer in answers]
    if given == "7f-3.a:b_C":
        assert ids[0] == given
    else:
        assert re.fullmatch(r"[0-9a-f]{16}", ids[0])
    assert ids[0] != ids[1]


def test_the_access_log_has_a_line_for_each_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "millpond.access")
    with (
        open_local(tmp_path / "store") as pond,
        local_client(create_app(pond, access_log=True)) as http,
    ):
        http.get("/v1/status?secret=magpie", headers={HEADER: "r1"})
        http.get("/a%0Ab")
    lines = [record.getMessage() for record in caplog.records if record.name == "millpond.access"]
    assert len(lines) == 2
    assert re.search(r"GET /v1/status 400 \d+ bytes \d+\.\d ms", lines[0])
    assert "GET /a%0Ab 404" in lines[1]
    assert "magpie" not in "".join(lines)


@pytest.mark.parametrize("path", ["/v1/status", "/pond/v1/status"])
def test_a_line_has_the_owner_also_behind_a_proxy_with_a_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level(logging.INFO, "millpond.access")
    tokens = tmp_path / "tokens.json"
    token, _ = add_token(tokens, lambda id: make_caller(id, "alice", "reader", []))
    with (
        open_local(tmp_path / "store") as pond,
        local_client(
            create_app(pond, access=Access(tokens=tokens), prefix="/pond", access_log=True)
        ) as http,
    ):
        assert http.get(path, headers={"Authorization": f"Bearer {token}"}).is_success
    [line] = [record.getMessage() for record in caplog.records if record.name == "millpond.access"]
    assert " alice GET /v1/status 200 " in line


def test_without_an_access_log_no_line_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "millpond.access")
    with open_local(tmp_path / "store") as pond, local_client(create_app(pond)) as http:
        http.get("/healthz")
    assert [record for record in caplog.records if record.name == "millpond.access"] == []


def test_statements_are_in_no_log_without_an_audit_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # As a process begins; other tests of this one may have named a file.
    caplog.set_level(logging.WARNING, "millpond.audit")
    caplog.set_level(logging.INFO, "millpond")
    with (
        open_local(tmp_path / "store") as pond,
        local_client(create_app(pond, access_log=True)) as http,
    ):
        http.post("/v1/statements", json={"text": "SELECT 'magpie' AS bird"})
    assert "POST /v1/statements 200" in caplog.text
    assert "magpie" not in caplog.text
