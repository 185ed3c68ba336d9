"""Everything at once over HTTP: each answer is the oracle's at the epoch it names.

Clients push to two streams, register, alter, drop, invoke and ask through a server on Spark. What
each epoch held is known by arrival numbers: the clocks of its version. So when all is over, every
answer can be compared with what its query means over exactly the elements of a prefix of what
happened (SEMANTICS, section 5: stream-prefix consistency).
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
import uvicorn
from tests.oracle.contents import Element
from tests.oracle.denotation import denote
from tests.oracle.history import StreamHistory
from tests.oracle.world import World

from millpond.api.app import create_app
from millpond.api.client import RemotePond, connect
from millpond.api.listening import bind, url_of
from millpond.cql import parse_query
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, Instant
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.service.events import EpochTimes
from millpond.service.pond import Pond
from millpond.service.results import Answer
from millpond.state.segment_file import global_seq, open_segment
from millpond.state.version import Version

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS = float(os.environ.get("MILLPOND_SOAK_SECONDS", "30"))
#: Answers compared with the oracle, which takes its time for each.
CHECKED = int(os.environ.get("MILLPOND_SOAK_CHECKED", "250"))
START = datetime(2024, 1, 1)

SCHEMA = """
CREATE STREAM bids (ts TIMESTAMP, item INTEGER, price INTEGER, who VARCHAR)
  TIMESTAMP BY ts DELAY INTERVAL 10 MINUTES;
CREATE STREAM asks (ts TIMESTAMP, item INTEGER, price INTEGER, who VARCHAR)
  TIMESTAMP BY ts DELAY INTERVAL 10 MINUTES;
"""

#: What is registered again and again, with other numbers and options.
SHAPES = (
    "SELECT item, price, who FROM bids WHERE price BETWEEN {a} AND {b}",
    "SELECT item, price FROM bids [RANGE {b} SECONDS] WHERE who = 'c{c}' OR price % 7 = {c}",
    "SELECT who, count(*) AS n, min(price) AS least FROM asks [RANGE {b} SECONDS] GROUP BY who",
    "SELECT item, who FROM asks [ROWS {c}5 WHERE price > {a}]",
    "SELECT DISTINCT item FROM bids [PARTITION BY who ROWS {c}] WHERE item > {a}",
    "SELECT b.item, b.price, a.price AS asked FROM bids [RANGE 20 SECONDS] b,"
    " asks [RANGE 20 SECONDS] a WHERE b.item = a.item AND b.price > a.price + {a}",
    "SELECT sum(price) AS s FROM bids WHERE item IN (SELECT item FROM asks [ROWS {c}0])",
    "SELECT item FROM bids WHERE price > {a} EXCEPT SELECT item FROM asks WHERE price < {b}",
    "SELECT price FROM bids WHERE who LIKE '%{c}' AND price > {a}"
    " BEGIN NOW - INTERVAL 30 SECONDS END NOW",
)
MODES = ("lazy", "none", "eager", "auto")


@dataclass(frozen=True)
class Seen:
    """An answer as a client got it."""

    text: str
    at: int | None
    answer: Answer


class Soak:
    """The server, its clients, and what they know of each other."""

    def __init__(self, pond: Pond, url: str) -> None:
        self.pond = pond
        self.url = url
        self.end = time.monotonic() + SECONDS
        self.ticks = itertools.count(1)
        self.names = itertools.count()
        self.seen: list[Seen] = []
        self.problems: list[BaseException] = []
        self.done: Counter[str] = Counter()
        self.standing: dict[str, str] = {}
        #: (epoch, number of elements of every stream) of every batch.
        self.held: list[tuple[int, dict[int, int]]] = [(0, {})]
        committed = pond._components.events.batch_committed

        def note_commit(version: Version, built: Sequence[BuiltSegment], times: EpochTimes) -> None:
            counts = {id: version.clock(id).next_seq for id in version.streams}
            self.held.append((version.epoch, counts))
            committed(version, built, times)

        pond._components.events.batch_committed = note_commit  # type: ignore[method-assign]

    def run(self, *works: Callable[[RemotePond, random.Random], None]) -> None:
        """Every work in a thread with a client of its own, until the time is up."""
        threads = [
            threading.Thread(target=self._repeat, args=(work, random.Random(seed)))
            for seed, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.problems:
            raise self.problems[0]

    def _repeat(
        self, work: Callable[[RemotePond, random.Random], None], pick: random.Random
    ) -> None:
        try:
            with connect(self.url) as client:
                while time.monotonic() < self.end and not self.problems:
                    work(client, pick)
                    self.done[work.__name__] += 1
        except BaseException as error:
            self.problems.append(error)

    def push(self, client: RemotePond, pick: random.Random) -> None:
        """Rows out of order within DELAY."""
        rows = []
        for _ in range(pick.choice([1, 3, 10, 40])):
            at = START + timedelta(seconds=next(self.ticks) / 10 - pick.randrange(0, 300) / 10)
            item, price = pick.randrange(20), pick.randrange(100)
            rows.append({"ts": at, "item": item, "price": price, "who": f"c{pick.randrange(5)}"})
        receipt = client.ingest(pick.choice(["bids", "asks"]), rows)
        assert receipt.rejected == 0, receipt
        time.sleep(0.05)

    def register(self, client: RemotePond, pick: random.Random) -> None:
        """Queries come, are altered, and go."""
        name = f"s{next(self.names)}"
        a, b, c = pick.randrange(0, 50), pick.randrange(50, 100), pick.randrange(1, 5)
        text = pick.choice(SHAPES).format(a=a, b=b, c=c)
        handle = client.register(text, name, materialize=pick.choice(MODES))
        self._note(text, None, handle.invoke())
        self.standing[name] = text
        if pick.random() < 0.3:
            handle.alter(materialize=pick.choice(MODES), weight=pick.choice([0.5, 1, 5]))
        if len(self.standing) > 12:
            name, _ = pick.choice(list(self.standing.items()))
            if self.standing.pop(name, None) is not None:
                client.query(name).unregister()

    def invoke(self, client: RemotePond, pick: random.Random) -> None:
        """Now, or at an instant not long ago."""
        if not self.standing:
            time.sleep(0.05)
            return
        name, text = pick.choice(list(self.standing.items()))
        at = None
        try:
            handle = client.query(name)
            answer = handle.invoke()
            self._note(text, None, answer)
            if pick.random() < 0.4 and answer.as_of > BEGINNING:
                at = answer.as_of - pick.randrange(0, 60_000_000)
                self._note(text, at, handle.invoke(at=at))
        except MillpondError as error:
            if error.code != "CQL-201":  # it was unregistered meanwhile
                raise

    def ask(self, client: RemotePond, pick: random.Random) -> None:
        """Asked once, as it stands or anew."""
        text = pick.choice([*self.standing.values(), "SELECT count(*) AS n FROM bids"])
        self._note(text, None, client.ask(text))

    def _note(self, text: str, at: int | None, answer: Answer) -> None:
        self.seen.append(Seen(text, at, answer))

    # -- afterwards ----------------------------------------------------------------------------

    def check(self, seen: Seen, elements: dict[str, list[Element]]) -> None:
        """An answer is what its query means over the elements up to its epoch."""
        place = bisect_right(self.held, seen.answer.epoch, key=lambda entry: entry[0]) - 1
        counts = self.held[place][1]
        world = World()
        for stream in self.pond.streams():
            prefix = elements[stream.name][: counts.get(stream.id, 0)]
            greatest = max((e.at for e in prefix), default=None)
            world.streams[stream.name] = StreamHistory(stream, prefix, greatest=greatest)
        meant = denote(world, parse_query(seen.text), seen.at)
        told = f"epoch {seen.answer.epoch}, at {seen.at}: {seen.text}"
        assert seen.answer.as_of == meant.as_of, told
        found = sorted(seen.answer.rows(), key=repr)
        columns = [column.to_pylist() for column in meant.table.columns]
        assert found == sorted(zip(*columns, strict=True), key=repr), told
        if seen.answer.final:  # then no later epoch may have changed it
            for name, every in elements.items():
                world.streams[name].elements = every
            later = denote(world, parse_query(seen.text), meant.as_of).table
            columns = [column.to_pylist() for column in later.columns]
            assert found == sorted(zip(*columns, strict=True), key=repr), f"final, {told}"


def every_element(pond: Pond) -> dict[str, list[Element]]:
    """All elements of all streams, in the order of their arrival."""
    found: dict[str, list[Element]] = {}
    version = pond._components.log.version
    for stream in pond.streams():
        own = []
        for segment in version.segments(stream.id):
            table = open_segment(pond._components._store.directory / segment.path, segment.checksum)
            order = global_seq(table["__seq"].to_numpy(), segment.seq_runs)
            stamps = table["__ts"].to_pylist()
            rows = table.select(list(stream.schema.names)).to_pylist()
            for row, at, number in zip(rows, stamps, order, strict=True):
                own.append(Element(row, Instant(at), int(number)))
        found[stream.name] = sorted(own, key=lambda e: e.seq)
        assert [e.seq for e in found[stream.name]] == list(range(len(own)))
    return found


@pytest.fixture
def url(pond: Pond) -> Iterator[str]:
    """The pond, served on a socket."""
    listener = bind("127.0.0.1", 0)
    config = uvicorn.Config(create_app(pond), log_config=None, lifespan="off", log_level="critical")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield url_of(listener)
    server.should_exit = True
    thread.join(timeout=30)


def test_every_answer_is_of_its_epoch(pond: Pond, url: str) -> None:
    pond.execute(SCHEMA)
    soak = Soak(pond, url)
    soak.run(soak.push, soak.push, soak.push, soak.register, soak.invoke, soak.invoke, soak.ask)
    pond.wait_until_matched(timeout=300)
    assert all(soak.done[what] > 3 for what in ("push", "register", "invoke", "ask")), soak.done
    elements = every_element(pond)
    assert pond.status()["problems"] == []
    pick = random.Random(1)
    chosen: list[Any] = pick.sample(soak.seen, min(CHECKED, len(soak.seen)))
    for seen in chosen:
        soak.check(seen, elements)
    epochs = {seen.answer.epoch for seen in soak.seen}
    counts: dict[str, int] = {name: len(own) for name, own in elements.items()}
    print(f"{counts}; {len(soak.seen)} answers of {len(epochs)} epochs, {len(chosen)} checked")
    print(dict(soak.done))
