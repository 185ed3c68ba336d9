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

from flights import FLIGHTS_CSV, NOON, SCHEMA
from local_http import local_client


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
