"""One Spark session for all tests of a run, and ponds that share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.demo.kafka_broker import Broker, Missing
from millpond.service.pond import Pond


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Millpond's own session: starting a JVM takes longer than most tests."""
    from millpond.runtime.spark.session import start_session

    directory = tmp_path_factory.mktemp("spark")
    given = {"spark.millpond.given": "by a user", "spark.driver.extraJavaOptions": "-Dgiven=1"}
    session = start_session(directory, "local[2]", directory / "spark.log", given)
    yield session
    session.stop()


@pytest.fixture
def open_store(spark: Any, tmp_path: Path) -> Iterator[Callable[..., Pond]]:
    """Opens a store of the test by name, on the shared session; what is left open is closed."""
    from millpond.runtime.spark.runtime import SparkRuntime

    opened: list[Pond] = []

    def open_one(name: str = "store", **options: Any) -> Pond:
        pond = Pond(tmp_path / name, SparkRuntime(spark=spark), **options)
        opened.append(pond)
        return pond

    yield open_one
    for pond in opened:
        pond.close()


@pytest.fixture
def pond(open_store: Callable[..., Pond]) -> Pond:
    """A pond whose sources are watched."""
    return open_store()


@pytest.fixture
def bounded(open_store: Callable[..., Pond]) -> Pond:
    """A pond whose sources are read to their end, as by `millpond run`."""
    return open_store(bounded=True)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Kafka broker for all tests of a run; a test that kills it starts it again."""
    pytest.importorskip("confluent_kafka", reason="pip install millpond[kafka]")
    try:
        broker = Broker(tmp_path_factory.mktemp("kafka"))
    except Missing as missing:
        pytest.skip(str(missing))
    broker.start()
    yield broker
    broker.stop()
