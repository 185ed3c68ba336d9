"""What clients do while servers are killed under them, and what must be there in the end."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.waiting import wait_until

from millpond.api.client import RemotePond, connect
from millpond.errors import MillpondError
from millpond.service.results import Change

#: What the followers follow: a stream, one derived from a derived one, and a window that forgets.
FOLLOWED = """
CREATE QUERY every AS SELECT id FROM s;
CREATE STREAM thirds AS SELECT id FROM s WHERE id % 3 = 0;
CREATE QUERY few AS ISTREAM(SELECT id FROM thirds [RANGE 10 SECONDS]);
CREATE QUERY recent AS SELECT id FROM s [RANGE 1 SECOND];
"""
FOLLOWERS = ("every", "few", "recent")

#: How long a server may take that says what it does: Spark has started in minutes on machines that
#: did much else, and the server itself gives up earlier (`runtime/spark/machine.py`).
PATIENCE = 900
ROWS = 5
#: What says that no server has answered, and nothing of what became of the request.
_NO_ANSWER = ("SERVE-705", "POND-410", "STORE-603", "STORE-606", "STORE-607")


class Client(threading.Thread):
    """Pushes and registers until told to stop; repeats what was not acknowledged."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.pushed, self.registered = url, 0, 0
        self.stopping = threading.Event()
        self.trouble: str | None = None

    def run(self) -> None:
        while not self.stopping.is_set() and self.trouble is None:
            try:
                with connect(self.url) as pond:
                    while not self.stopping.is_set():
                        self.push(pond)
                        if self.pushed % 3 == 0:
                            self.register(pond)
            except MillpondError as error:
                if error.code not in _NO_ANSWER:
                    self.trouble = str(error)
                self.stopping.wait(0.05)  # the server is down: the same again, soon
            except AssertionError as error:
                self.trouble = str(error)

    def get_further(self, pushes: int) -> None:
        """Wait until so many more pushes are acknowledged."""
        goal = self.pushed + pushes
        wait_until(
            lambda: self.pushed >= goal or self.trouble is not None, PATIENCE, "no push went on"
        )

    def push(self, pond: RemotePond) -> None:
        number = self.pushed
        rows = [{"id": number * ROWS + i} for i in range(ROWS)]
        accepted = pond.ingest("s", rows, f"push-{number}").accepted
        assert accepted == ROWS, accepted
        self.pushed += 1

    def register(self, pond: RemotePond) -> None:
        name, text = query(self.registered)
        try:
            pond.register(text, name)
        except MillpondError as error:
            # Taken: the registration before the kill was durable, only its answer was lost.
            if error.code != "CQL-208":
                raise
        self.registered += 1


class Follower(threading.Thread):
    """Follows a query over every life of the server, and writes down what it is told."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self.url, self.name = url, name
        self.told: list[Change] = []
        self.connections = 0
        #: Set when the life is over: another test's server may get the address.
        self.stopping = threading.Event()
        self.trouble: Exception | None = None

    def run(self) -> None:
        while self.trouble is None and not self.stopping.is_set():
            after = self.told[-1].cursor if self.told else None
            try:
                with connect(self.url) as remote:
                    self.connections += 1
                    for change in remote.query(self.name).subscribe(after, patience=0):
                        self.told.append(change)
            except MillpondError as error:
                if error.code not in _NO_ANSWER:
                    self.trouble = error
                time.sleep(0.1)
            except Exception as error:
                self.trouble = error


def query(number: int) -> tuple[str, str]:
    text = f"SELECT count(*) AS n, sum(id) AS total FROM s WHERE id % 7 = {number % 7}"
    return f"w{number}", f"{text} AND id >= {number}"


def expected(number: int, ids: range) -> list[int | None]:
    mine = [i for i in ids if i % 7 == number % 7 and i >= number]
    return [len(mine), sum(mine) if mine else None]


def check(url: str, client: Client) -> None:
    """All that was acknowledged is there once, and every answer is what Python computes."""
    ids = range(client.pushed * ROWS)
    with connect(url) as pond:

        def ask(text: str) -> list[list[Any]]:
            return [list(row.values()) for row in pond.ask(text).table.to_pylist()]

        everything = "SELECT count(*) a, count(DISTINCT id) b, min(id) c, max(id) d FROM s"
        whole = [[len(ids), len(ids), 0, len(ids) - 1]]
        wait_until(lambda: ask(everything) == whole, PATIENCE, f"{ask(everything)} is not {whole}")
        names = [known.name for known in pond.queries() if known.name not in FOLLOWERS]
        assert sorted(names) == sorted(query(n)[0] for n in range(client.registered))
        for number in range(client.registered):
            [found] = pond.query(query(number)[0]).invoke().table.to_pylist()
            assert list(found.values()) == expected(number, ids), (number, found)
    assert client.pushed > 0
    assert client.registered > 0


def check_followers(url: str, client: Client, followers: list[Follower]) -> None:
    """Each was told every change once and in order, whatever was killed under it."""
    with connect(url) as remote:
        for follower in followers:
            handle = remote.query(follower.name)
            ids = range(client.pushed * ROWS)
            wanted = len([i for i in ids if i % 3 == 0]) if follower.name == "few" else len(ids)

            def all_told(follower: Follower = follower, wanted: int = wanted) -> bool:
                came = [c for c in follower.told if c.sign == "+"]
                return len(came) >= wanted or follower.trouble is not None

            wait_until(
                all_told, PATIENCE, f"{follower.name}: {len(follower.told)} changes, not {wanted}"
            )
            assert follower.trouble is None, follower.trouble
            told = list(follower.told)
            came = sorted(c.row[0] for c in told if c.sign == "+")
            assert came == [i for i in ids if follower.name != "few" or i % 3 == 0]
            assert [c.number for c in told] == list(range(1, len(told) + 1))
            assert [c.at for c in told] == sorted(c.at for c in told)
            kept = list(handle.subscribe(follow=False))
            assert kept[: len(told)] == told
            follower.stopping.set()
