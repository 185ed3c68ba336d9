"""A pond without Spark and an HTTP client to it without a network."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from millpond.api.app import create_app
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

sys.path.insert(0, str(Path(__file__).parent))

from local_http import local_client

#: The clock's time in these tests, 2026-03-01 12:00:00.
NOON = 1_772_366_400_000_000

SCHEMA = """
CREATE STREAM flights (ts TIMESTAMP, carrier STRING, origin STRING, delay DOUBLE, number BIGINT)
  TIMESTAMP BY ts;
CREATE RELATION planes (tailnum STRING, model STRING, PRIMARY KEY (tailnum));
"""

FLIGHTS_CSV = b"""ts,carrier,origin,delay,number
2026-03-01T11:00:00,AA,JFK,61.5,1
2026-03-01T11:30:00,UA,LGA,-3.25,2
2026-03-01T11:45:00,AA,JFK,120,9007199254740993
"""


@pytest.fixture(scope="session")
def flights_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a stream of three rows, to be copied."""
    store = tmp_path_factory.mktemp("flights") / "store"
    with open_local(store, clock=ManualClock(NOON)) as pond:
        pond.execute(SCHEMA)
        pond.ingest_text("flights", FLIGHTS_CSV, "csv")
        pond.catch_up()
    return store


@pytest.fixture
def pond(flights_store: Path, tmp_path: Path) -> Iterator[Pond]:
    """A pond whose stream has three rows."""
    store = tmp_path / "pond"
    shutil.copytree(flights_store, store)
    with open_local(store, clock=ManualClock(NOON)) as pond:
        yield pond


@pytest.fixture
def http(pond: Pond) -> Iterator[httpx.Client]:
    """A client of the application; what fails in it is answered, not raised."""
    with local_client(create_app(pond)) as client:
        yield client
