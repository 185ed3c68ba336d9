"""What clients may have a server read over HTTP: nothing, or what the operator allowed."""

from __future__ import annotations

import httpx
import pytest
from local_http import local_client

from millpond.api.app import create_app
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.pond import Pond

CREATE = "CREATE STREAM s (ts TIMESTAMP, v INTEGER) USING {using}"
WANTED = (
    "csv OPTIONS (path '/etc/passwd')",
    "json OPTIONS (path '/etc')",
    "text OPTIONS (path '/proc/self/environ')",
    "parquet OPTIONS (path 'http://127.0.0.1:9/x')",
    "kafka OPTIONS (subscribe 'x')",
    "socket OPTIONS (host '127.0.0.1', port '9')",
    "jdbc OPTIONS (url 'jdbc:postgresql://127.0.0.1:9/x', dbtable 't')",
    "rate",
    "dataframe",
)


def refused(http: httpx.Client, text: str) -> None:
    answer = http.post("/v1/statements", json={"text": text})
    assert answer.status_code == 403, text
    assert answer.json()["error"]["code"] == "POND-414"
    assert "root:" not in answer.text


@pytest.mark.parametrize("using", WANTED)
@pytest.mark.parametrize("kind", ["STREAM", "RELATION"])
def test_a_client_has_the_server_read_nothing(http: httpx.Client, using: str, kind: str) -> None:
    refused(http, CREATE.format(using=using).replace("STREAM", kind))
    assert "s" not in [s["name"] for s in http.get("/v1/streams").json()["streams"]]


def test_a_client_may_name_files_below_a_root(pond: Pond, tmp_path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / "a.csv").write_text("2026-03-01 11:00:00,1\n")
    (tmp_path / "other.csv").write_text("2026-03-01 11:00:00,2\n")
    app = create_app(pond, policy=AccessPolicy.of([root]))
    with local_client(app) as http:
        refused(http, CREATE.format(using=f"csv OPTIONS (path '{tmp_path}/other.csv')"))
        refused(http, CREATE.format(using=f"csv OPTIONS (path '{root}/../other.csv')"))
        made = http.post(
            "/v1/statements",
            json={"text": CREATE.format(using=f"csv OPTIONS (path '{root}/a.csv')")},
        )
        assert made.status_code == 200, made.text
    (stream,) = [s for s in pond.streams() if s.name == "s"]
    assert stream.source is not None
    assert stream.source.within == str(root.resolve())


def test_the_process_itself_is_not_limited(pond: Pond, tmp_path) -> None:
    (tmp_path / "a.csv").write_text("2026-03-01 11:00:00,1\n")
    pond.execute(CREATE.format(using=f"csv OPTIONS (path '{tmp_path}/a.csv')"))
    (stream,) = [s for s in pond.streams() if s.name == "s"]
    assert stream.source is not None
    assert stream.source.within is None
