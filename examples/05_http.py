"""The same over HTTP: a server, and calls anything that speaks HTTP can make.

    python examples/05_http.py [URL]

Without the URL of a server it starts one of its own and ends it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

FLIGHTS = """
CREATE STREAM flights (ts TIMESTAMP, carrier STRING, origin STRING, delay DOUBLE)
  TIMESTAMP BY ts
"""

ROWS = [
    {"ts": "2013-01-01 06:30:00", "carrier": "B6", "origin": "JFK", "delay": 32},
    {"ts": "2013-01-01 07:00:00", "carrier": "AA", "origin": "JFK", "delay": 61},
    {"ts": "2013-01-01 07:15:00", "carrier": "DL", "origin": "JFK", "delay": "unknown"},
]


@contextmanager
def server() -> Iterator[str]:
    """A server on a free port, over a store that goes with it; gives its URL."""
    command = [sys.executable, "-m", "millpond.cli.main", "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"API (\S+)/v1", process.stdout.readline())
        assert found is not None, "the server did not start"
        yield found[1]
    finally:
        process.terminate()
        process.wait()


def visit(url: str) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        http.post("/v1/statements", json={"text": FLIGHTS}).raise_for_status()

        late = {"name": "late", "cql": "SELECT carrier, delay FROM flights WHERE delay > 30"}
        registered = http.post("/v1/queries", json=late)
        print(registered.status_code, registered.json()["columns"])

        # Acknowledged once durable. With the same key the same rows are not taken twice, so a
        # client that is not sure whether its push arrived sends it again.
        lines = "\n".join(json.dumps(row) for row in ROWS)
        for _ in range(2):
            headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": "morning"}
            pushed = http.post("/v1/streams/flights/tuples", content=lines, headers=headers)
            print(pushed.json())

        # A query in a statement waits for rows that statements inserted; rows that were pushed
        # are visible a moment after their receipt.
        rows: list[list[object]] = []
        while len(rows) < 2:
            answer = http.get("/v1/queries/late/result").json()
            rows = answer["rows"]
        print(answer["as_of"], answer["final"], rows)

        wrong = http.get("/v1/plan", params={"query": "SELECT dely FROM flights"})
        print(wrong.status_code, wrong.json()["error"]["hint"])

        print(http.delete("/v1/queries/late").status_code)


if len(sys.argv) > 1:
    visit(sys.argv[1])
else:
    with server() as url:
        visit(url)
