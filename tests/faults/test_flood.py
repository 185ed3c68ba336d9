"""A flood with kill -9 in the middle: what was sent, accepted, rejected, refused and shed adds up.

Clients push more than may wait, to a stream of each kind, without pause. The server is killed at
random instants and started again over the same store; a push whose receipt did not come is sent
again under its key. In the end, the receipts say exactly what the store holds. Beside them files
come for a stream that reads a folder; of it, what the files have is what the store says.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.faults.test_kill_nine import Server

from millpond.api.client import connect

SCHEMA = """
ALTER SYSTEM SET (queue_memory = '15 KB');
CREATE STREAM random (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 1 DAY
  WITH (overload = 'shed random');
CREATE STREAM chunks (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 1 DAY
  WITH (overload = 'shed chunks');
CREATE STREAM lightest (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 1 DAY
  WITH (overload = 'shed lightest');
CREATE STREAM block (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 1 DAY;
CREATE STREAM quick (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 3 SECONDS;
CREATE QUERY heavy WITH (weight = 9) AS SELECT v FROM lightest WHERE v = 0;
CREATE QUERY light AS SELECT v FROM lightest WHERE v < 50;
CREATE QUERY part WITH (tolerate = 'window 1 second', changes = 'from beginning', follow = true,
  keep_changes = 100000000) AS SELECT v FROM quick [RANGE 10 SECONDS] WHERE v < 50;
CREATE QUERY strict WITH (changes = 'from beginning', follow = true, keep_changes = 100000000)
  AS SELECT v FROM quick [RANGE 10 SECONDS] WHERE v < 30;
"""
FILES = """
CREATE STREAM files (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY INTERVAL 1 DAY
  USING csv OPTIONS (path '{folder}', header 'true') WITH (overload = 'shed random');
CREATE QUERY of_files WITH (changes = 'from beginning', follow = true, keep_changes = 100000000)
  AS SELECT v FROM files [RANGE 10 SECONDS] WHERE v < 30;
"""
STREAMS = ("random", "chunks", "lightest", "block", "quick")
KILLS, ROWS, SECONDS = 2, 500, 8


class Flood(threading.Thread):
    """One client: pushes to one stream until it is told to stop."""

    def __init__(self, server: Server, stream: str, number: int) -> None:
        super().__init__(daemon=True)
        self.server, self.stream, self.number = server, stream, number
        self.counts: Counter[str] = Counter()
        self.stopping = threading.Event()
        self.wrong: list[Any] = []

    def run(self) -> None:
        chance = random.Random(self.number)
        pushes = 0
        while not self.stopping.is_set():
            pushes += 1
            lines = [
                f'{{"ts": "2026-01-01 00:{pushes // 60 % 60:02}:{pushes % 60:02}", "v": {v}}}'
                for v in (chance.randrange(100) for _ in range(ROWS - 1))
            ]
            body = "\n".join([*lines, '{"v": 1}']).encode()
            self.counts["sent"] += ROWS
            self.count(self.push(body, f"{self.stream}-{self.number}-{pushes}"))

    def push(self, body: bytes, key: str) -> httpx.Response:
        """Send a push until the server answers; it is killed now and then."""
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        url = f"{self.server.url}/v1/streams/{self.stream}/tuples"
        while True:
            try:
                answer = httpx.post(url, content=body, headers=headers, timeout=60)
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.status_code < 500:
                return answer
            time.sleep(0.05)

    def count(self, answer: httpx.Response) -> None:
        if answer.status_code == 429:
            self.counts["refused"] += ROWS
            return
        if answer.status_code != 200:
            self.wrong.append(answer.text)
            return
        receipt = answer.json()
        for name in ("accepted", "rejected", "shed"):
            self.counts[name] += receipt[name]


class Feeder(threading.Thread):
    """Puts files into the folder of a stream, and has them read, until it is told to stop."""

    def __init__(self, server: Server, folder: Path) -> None:
        super().__init__(daemon=True)
        self.server, self.folder = server, folder
        self.files = self.rejected = 0
        self.stopping = threading.Event()

    def write(self) -> None:
        """Write the next file; a hundredth of its rows are rejected."""
        self.files += 1
        at = f"2026-01-01 00:{self.files // 60 % 60:02}:{self.files % 60:02}"
        values = ("x" if n % 100 == 0 else str(n % 100) for n in range(ROWS))
        text = "ts,v\n" + "".join(f"{at},{value}\n" for value in values)
        part = self.folder / f".{self.files:06}.csv"
        part.write_text(text)
        part.rename(self.folder / f"{self.files:06}.csv")

    def run(self) -> None:
        while not self.stopping.is_set():
            self.write()
            with suppress(httpx.HTTPError):
                httpx.post(f"{self.server.url}/v1/catch-up", timeout=60)
            time.sleep(0.05)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "in").mkdir()
    server = Server(tmp_path / "store", on_spark=False)
    server.start()
    yield server
    server.stop()


def count(pond: Any, stream: str) -> tuple[int, int, int]:
    """How many elements, rejects and shed elements a stream has."""
    held, rejected, shed = (
        int(pond.ask(text).rows()[0][0])
        for text in (
            f"SELECT count(*) FROM {stream}",
            f"SELECT count(*) FROM {stream}$rejects",
            f"SELECT coalesce(sum(elements), 0)::BIGINT FROM {stream}$shed",
        )
    )
    return held, rejected, shed


@pytest.mark.slow
def test_in_a_flood_with_kills_everything_adds_up(server: Server) -> None:
    with connect(server.url) as pond:
        pond.execute(SCHEMA)
    feeder = Feeder(server, server.store.parent / "in")
    feeder.write()
    with connect(server.url) as pond:
        pond.execute(FILES.format(folder=feeder.folder))
    clients = [Flood(server, stream, n) for stream in STREAMS for n in range(2)]
    for client in (*clients, feeder):
        client.start()
    chance = random.Random(14)
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.3, 1.7) * SECONDS / KILLS)
        server.kill()
        server.start()
    time.sleep(2)
    for client in (*clients, feeder):
        client.stopping.set()
    feeder.join(120)
    assert not feeder.is_alive()
    for client in clients:
        client.join(120)
        assert not client.is_alive()
        assert not client.wrong
    with connect(server.url) as pond:
        pond.catch_up(120)
        shed_somewhere = refused_somewhere = 0
        for stream in STREAMS:
            counts: Counter[str] = sum(
                (client.counts for client in clients if client.stream == stream), Counter()
            )
            assert counts["sent"] == sum(
                counts[name] for name in ("accepted", "rejected", "refused", "shed")
            )
            held, rejected, shed = count(pond, stream)
            assert (held, rejected, shed) == (
                counts["accepted"],
                counts["rejected"],
                counts["shed"],
            )
            assert pond.ask(f"SELECT v FROM {stream}").exact == (shed == 0)
            shed_somewhere += shed
            refused_somewhere += counts["refused"]
        assert shed_somewhere
        assert refused_somewhere
        held, rejected, shed = count(pond, "files")
        assert (held + rejected + shed, rejected) == (
            feeder.files * ROWS,
            feeder.files * ROWS // 100,
        )
        assert shed
        steps = {action for (action,) in pond.ask("SELECT action FROM system$actions").rows()}
        assert steps >= {"shed", "hold back"}
        # Work is deferred, too, and one query tolerates to be reduced.
        assert steps <= {"shed", "hold back", "defer", "reduce"}
        # What followers were given adds up to the answer, reduced meanwhile or not.
        pond.execute("HEARTBEAT quick AT TIMESTAMP '2026-01-01 01:30:00'")
        pond.execute("HEARTBEAT files AT TIMESTAMP '2026-01-01 01:30:00'")
        for name in ("part", "strict", "of_files"):
            query = pond.query(name)
            given, cursor = Counter[tuple[Any, ...]](), None
            while page := query.fetch(cursor, limit=100_000):
                for _, _, sign, *row in page.rows():
                    given[tuple(row)] += 1 if sign == "+" else -1
                cursor = page.cursor
                assert page.exact or name != "strict"
            assert all(count >= 0 for count in given.values())
            assert +given == Counter(query.invoke(at="2026-01-01 01:29:59").rows())
        # Quiet: the next push of each stream finds the door open again.
        for stream in STREAMS:
            receipt = pond.ingest(stream, [{"ts": "2026-01-01 02:00:00", "v": 0}])
            assert (receipt.accepted, receipt.shed) == (1, 0)
