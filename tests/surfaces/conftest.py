"""A pond and an HTTP client to it, without a network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from millpond.api.app import create_app

sys.path.insert(0, str(Path(__file__).parent))

from fake_pond import FakePond
from local_http import local_client

FLIGHTS_CSV = b"""ts,carrier,origin,delay,number
2026-03-01T11:00:00,AA,JFK,61.5,1
2026-03-01T11:30:00,UA,LGA,-3.25,2
2026-03-01T11:45:00,AA,JFK,120,9007199254740993
"""


@pytest.fixture
def pond() -> FakePond:
    """A pond whose stream has three rows."""
    pond = FakePond()
    pond.ingest_text("flights", FLIGHTS_CSV, "csv")
    return pond


@pytest.fixture
def http(pond: FakePond) -> Iterator[httpx.Client]:
    """A client of the application; what fails in it is answered, not raised."""
    with local_client(create_app(pond)) as client:
        yield client
