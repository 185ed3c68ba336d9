"""A server with tokens: what there is on it, and who calls it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from local_http import local_client
from starlette.types import ASGIApp

from millpond.api.rights.make_caller import make_caller
from millpond.api.rights.token_file import add_token

#: alice's and bob's queries, a stream and a relation for both, and some for nobody but the admin.
WORLD = """
CREATE STREAM payroll (ts TIMESTAMP, who STRING, amount DOUBLE) TIMESTAMP BY ts;
CREATE RELATION salaries (who STRING PRIMARY KEY, amount DOUBLE);
CREATE STREAM late AS ISTREAM(SELECT number FROM flights WHERE delay > 30);
CREATE STREAM raises AS ISTREAM(SELECT who FROM payroll WHERE amount > 30);
CREATE RELATION seen AS SELECT carrier FROM flights [RANGE 1 HOUR];
CREATE RELATION paid AS SELECT who FROM payroll [RANGE 1 HOUR];
CREATE SUMMARY by_number ON flights (number) WITH GRANULARITY '1 HOUR' AND COLLAPSE (2, 3);
CREATE SUMMARY by_amount ON payroll (amount) WITH GRANULARITY '1 HOUR' AND COLLAPSE (2, 3);
CREATE QUERY of_alice WITH (owner = 'alice', tags = 'x') AS SELECT carrier FROM flights;
CREATE QUERY of_bob WITH (owner = 'bob', tags = 'x') AS SELECT origin FROM flights;
CREATE QUERY of_nobody AS SELECT delay FROM flights;
CREATE QUERY beyond WITH (owner = 'alice') AS SELECT who FROM payroll;
"""

#: What alice and bob are granted.
GRANTED = ["flights", "planes", "late", "seen", "paid"]


def make_token(path: Path, owner: str, role: str, streams: list[str], **quotas: Any) -> str:
    """Add a token to a file, and return it."""
    token, _ = add_token(path, lambda id: make_caller(id, owner, role, streams, **quotas))
    return token


@contextmanager
def client_of(app: ASGIApp, token: str | None) -> Iterator[httpx.Client]:
    """A client that bears a token."""
    with local_client(app) as client:
        if token is not None:
            client.headers["Authorization"] = f"Bearer {token}"
        yield client
