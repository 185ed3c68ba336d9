"""A client that a generator made of the OpenAPI document registers, pushes, invokes and follows.

The generator wants other versions of what Millpond wants, so it has an environment of its own,
which `make slow` makes (`.venv-generator`).
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from test_http_transport import serve

from millpond.api.app import create_app
from millpond.service.pond import Pond

BIN = Path(__file__).resolve().parents[4] / ".venv-generator" / "bin"

#: Runs with the generated package `trips` beside it; the server's URL is its argument.
PROGRAM = """
import sys

from trips import Client
from trips.api.queries import feed_v1_changes_get as feed
from trips.api.queries import invoke_v1_queries_query_result_get as invoke
from trips.api.queries import register_v1_queries_post as register
from trips.api.statements import run_statements_v1_statements_post as run
from trips.api.streams import alter_v1_streams_stream_patch as alter
from trips.api.streams import catch_up_v1_catch_up_post as catch_up
from trips.api.streams import ingest_v1_streams_stream_tuples_post as ingest
from trips.models import (
    AlterV1StreamsStreamPatchOptions as Options,
    IngestV1StreamsStreamTuplesPostJsonBodyItem as Row,
    Problem,
    RegistrationBody,
    StatementsBody,
)

client = Client(base_url=sys.argv[1], timeout=30)
text = "CREATE STREAM trips (ts TIMESTAMP, n INTEGER, city STRING) TIMESTAMP BY ts"
assert run.sync(client=client, body=StatementsBody(text=text)).results
asked = {
    "name": "far",
    "cql": "SELECT n, city FROM trips WHERE n > $least",
    "params": {"least": 3},
    "options": {"follow": True},
}
query = register.sync(client=client, body=RegistrationBody.from_dict(asked))
assert (query.name, query.cql) == ("far", "SELECT n, city FROM trips WHERE n > 3"), query
given = [(0, 5, "Bern"), (1, 2, "Genf"), (2, 7, "Wil, SG")]
rows = [Row.from_dict({"ts": f"2026-03-01 11:00:0{s}", "n": n, "city": c}) for s, n, c in given]
receipt = ingest.sync("trips", client=client, body=rows, idempotency_key="a")
assert (receipt.accepted, receipt.duplicate) == (3, False), receipt
assert ingest.sync("trips", client=client, body=rows, idempotency_key="a").duplicate
catch_up.sync_detailed(client=client)
assert invoke.sync("far", client=client).rows == [[5, "Bern"], [7, "Wil, SG"]]
page = feed.sync(client=client, queries="far")
changes = [e for e in page.to_dict()["events"] if e["event"] == "change"]
assert [c["row"] for c in changes] == [{"n": 5, "city": "Bern"}], page
refused = invoke.sync("near", client=client)
assert isinstance(refused, Problem) and refused.error.code == "CQL-201", refused
altered = alter.sync("trips", client=client, body=Options(delay="5 seconds"))
assert altered is None or not isinstance(altered, Problem), altered
print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif(not BIN.exists(), reason="make .venv-generator/.installed")
def test_a_generated_client_registers_pushes_invokes_and_follows(
    pond: Pond, tmp_path: Path
) -> None:
    document, config = tmp_path / "openapi.json", tmp_path / "config.yml"
    document.write_text(json.dumps(create_app(pond).openapi()))
    config.write_text("post_hooks: []")
    generate = [BIN / "openapi-python-client", "generate", "--path", document, "--meta", "none"]
    made = [*generate, "--output-path", tmp_path / "trips", "--config", config]
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done: list[subprocess.CompletedProcess[str]] = []

    def call(url: str) -> None:
        command = [BIN / "python", program, url]
        done.append(subprocess.run(command, capture_output=True, text=True, timeout=120))

    serve(pond, call)
    assert done[0].stdout == "done\n", done[0].stderr
