"""Two servers of one shared store, while servers and the storage fail: nothing is lost or doubled.

Clients of both push, register and follow without pause; see `tests.tools.followed_life`. Servers
are killed, or stopped for longer than the other waits; an object store is slow, fails, loses
answers, refuses, is silent, is killed and stopped. A server that comes back after another has led
must not acknowledge anything.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.local_server import command_of_server
from tests.tools.faulty_object_store import BUCKET, FAULTS, FaultyObjectStore, serve_objects
from tests.tools.two_servers import SERVERS, TwoServers, survive
from tests.waiting import wait_until

ROUNDS = int(os.environ.get("MILLPOND_KILLS", "30"))
#: More seconds than a driver waits for an answer of the storage.
OUTAGE = 45.0
#: How many seconds a fault of the storage lasts: fewer and more than a leader may be silent.
PAUSES = (2, 9)


@pytest.fixture
def objects() -> Iterator[FaultyObjectStore]:
    with serve_objects() as store:
        yield store


def survive_faults(
    directory: Path, objects: FaultyObjectStore | None, faults: list[tuple[str, ...]]
) -> None:
    """Let so many faults befall the servers and the store, each of one or several at once."""
    place = str(directory / "shared") if objects is None else f"s3://{BUCKET}/store"
    environment = os.environ | ({} if objects is None else objects.environment)

    def command(store: Path, port: int) -> list[str]:
        return command_of_server(store, port, shared=place)

    servers = TwoServers(directory, command, environment)
    survive(servers, faults, lambda together, leads: befall(together, leads, servers, objects))


def befall(
    faults: tuple[str, ...], leads: int, servers: TwoServers, objects: FaultyObjectStore | None
) -> None:
    """Let the faults begin at about one time, and end; the storage answers again first."""
    of_store = [fault for fault in FAULTS if fault in faults]
    if objects is not None and of_store:
        [objects.fault] = of_store
        wait_until(objects.is_felt, 60, "nobody asks the store")
    harmed = [fault for fault in faults if fault in SERVERS]
    for fault in harmed:
        servers.harm(leads, fault)
    if "outage" in faults:
        time.sleep(OUTAGE)
    elif of_store:
        time.sleep(random.choice(PAUSES))
    if objects is not None:
        objects.fault = None
    if harmed:
        servers.bring_back(leads)


@pytest.mark.timeout(300)
def test_a_server_that_is_killed_or_stopped_is_followed_by_the_other(tmp_path: Path) -> None:
    survive_faults(tmp_path, None, [("kill",), ("stop",)])


@pytest.mark.timeout(300)
def test_an_object_store_may_fail_in_every_way(tmp_path: Path, objects: FaultyObjectStore) -> None:
    survive_faults(tmp_path, objects, [(fault,) for fault in FAULTS])


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", SERVERS)
def test_rounds_in_a_directory(tmp_path: Path, fault: str) -> None:
    survive_faults(tmp_path, None, [(fault,)] * ROUNDS)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", [*FAULTS, *SERVERS])
def test_rounds_in_an_object_store(tmp_path: Path, objects: FaultyObjectStore, fault: str) -> None:
    survive_faults(tmp_path, objects, [(fault,)] * ROUNDS)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("server", SERVERS)
def test_rounds_of_pairs(tmp_path: Path, objects: FaultyObjectStore, server: str) -> None:
    pairs = [(fault, server) for fault in FAULTS] * (ROUNDS // len(FAULTS))
    random.shuffle(pairs)
    survive_faults(tmp_path, objects, pairs)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS[1:])
def test_an_outage_ends_the_leader_and_not_what_it_said(
    tmp_path: Path, objects: FaultyObjectStore, fault: str
) -> None:
    survive_faults(tmp_path, objects, [(fault, "outage")])


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_leader_gives_up_what_the_log_has(tmp_path: Path, objects: FaultyObjectStore) -> None:
    """It is stopped while the log takes its record, for longer than it waits for the answer."""
    survive_faults(tmp_path, objects, [("stop", "outage")] * (ROUNDS // 4))
