"""Bombs: short statements whose values would take all memory or all time.

Each is refused, ended or suspended with the reason within seconds; what the server's processes
hold stays within a gigabyte above what they held before, and others are answered meanwhile.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.faults.local_server import resident, serve_local

import millpond
from millpond.api.client import RemotePond
from millpond.errors import MillpondError

#: How long a bomb may burn: what is asked once has 30 seconds, and processes have to start.
SECONDS = 45.0
ROOM = 1 << 30
#: Scalars; each would take gigabytes or minutes.
SCALARS = {
    "range": "len(range(100000000))",
    "range of a column": "len(range(100000000 + n))",
    "generate_series": "len(generate_series(1, 100000000 + n))",
    "repeat": "length(repeat('x', 2000000000 + n))",
    "repeat of repeat": "length(repeat(repeat('x', 60000), 60000))",
    "lpad": "length(lpad('x', 2000000000, 'ab'))",
    "rpad": "length(rpad('x', 2000000000 + CAST(n AS INTEGER), 'ab'))",
    "list_resize": "len(list_resize([1], 1000000000 + n))",
    "array_resize": "len(array_resize([n], 1000000000))",
    "format": "length(format('{:>2000000000}', n))",
    "printf": "length(printf('%2000000000d', n))",
    "bar": "length(bar(n, 0, 10, 1000000000))",
    "bitstring": "bit_length(bitstring('1', 2000000000))",
    "to_base": "length(to_base(n, 2, 2000000000))",
    "replace": "length(replace(repeat('a', 50000), 'a', repeat('b', 50000)))",
    "regexp_replace": "length(regexp_replace(repeat('a', 50000), 'a', repeat('b', 50000), 'g'))",
    "array_to_string": "length(array_to_string(range(50000), repeat('b', 50000)))",
    "levenshtein": "levenshtein(repeat('ab', 100000), repeat('ba', 100000))",
    "damerau_levenshtein": "damerau_levenshtein(repeat('ab', 50000), repeat('ba', 50000))",
    "equi_width_bins": "len(equi_width_bins(0, 1000000000 + n, 1000000000, false))",
    "a pattern": "CAST(strptime('x', repeat('%Y', 300000000)) IS NULL AS BIGINT)",
}
#: What a bomb may be answered with: a limit, a failure, the suspension of its query, a constant
#: that is wrong.
CODES = ("POND-405", "POND-404", "POND-402", "CQL-205", "CQL-219")


@dataclass
class Watched:
    """What a server held at most, and how long others waited, while something burned."""

    pid: int
    client: RemotePond
    held: int = 0
    waited: float = 0.0
    _over: threading.Event = field(default_factory=threading.Event)

    def weigh(self) -> None:
        while not self._over.wait(0.02):
            self.held = max(self.held, resident(self.pid))

    def ask(self) -> None:
        while not self._over.wait(0.2):
            began = time.monotonic()
            assert self.client.ask("SELECT count(*) FROM quiet").rows() == [(0,)]
            self.waited = max(self.waited, time.monotonic() - began)

    def during(self, burn: Callable[[], None]) -> None:
        threads = [threading.Thread(target=work) for work in (self.weigh, self.ask)]
        for thread in threads:
            thread.start()
        try:
            burn()
        finally:
            self._over.set()
            for thread in threads:
                thread.join()


@dataclass
class Served:
    """A server that can be burned, and how to reach it."""

    process: subprocess.Popen[str]
    client: RemotePond
    idle: int = 0

    def burn(self, bomb: Callable[[], None]) -> None:
        """Let a bomb burn, and see what it did to others."""
        watched = Watched(self.process.pid, self.client)
        began = time.monotonic()
        watched.during(bomb)
        took, grown = time.monotonic() - began, watched.held - self.idle
        print(f"{took:.1f} s, {grown >> 20} MiB more; others waited {watched.waited:.2f} s")
        assert took < SECONDS
        assert grown < ROOM
        # A second on a machine that has it to itself; others stand still for seconds.
        assert watched.waited < 10.0
        assert self.process.poll() is None


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    store = tmp_path_factory.mktemp("bombs") / "store"
    with serve_local(store) as server, millpond.connect(server.url) as client:
        client.execute(
            "CREATE STREAM s (n BIGINT); CREATE STREAM quiet (n BIGINT);"
            "CREATE RELATION r (n BIGINT, t STRING); INSERT INTO s VALUES (1), (2);"
            "INSERT INTO r VALUES (1, 'a')"
        )
        client.catch_up(timeout=30)
        client.ask("SELECT count(*) FROM quiet")
        yield Served(server.process, client, resident(server.process.pid))


def each(*quick: str) -> list[object]:
    """Every scalar; those that are not quick are for `make slow`."""
    return [
        pytest.param(sql, id=name, marks=() if name in quick else pytest.mark.slow)
        for name, sql in SCALARS.items()
    ]


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(MillpondError) as raised:
        call()
    assert raised.value.code in CODES, str(raised.value)
    assert raised.value.detail is not None


@pytest.mark.parametrize("scalar", each("range", "repeat of repeat"))
def test_asked(served: Served, scalar: str) -> None:
    served.burn(lambda: refused(lambda: served.client.ask(f"SELECT {scalar} AS v FROM s")))


@pytest.mark.parametrize("scalar", each("repeat"))
def test_inserted(served: Served, scalar: str) -> None:
    constant = scalar.replace("CAST(n AS INTEGER)", "1").replace("+ n", "+ 1").replace("[n]", "[1]")
    constant = constant.replace("(n,", "(1,").replace(", n)", ", 1)").replace("i + n", "i + 1")
    constant = constant.replace("+ n", "+ 1")
    refusal = f"INSERT INTO r (n) VALUES ({constant})"
    served.burn(lambda: refused(lambda: served.client.execute(refusal)))


@pytest.mark.parametrize("scalar", each("generate_series"))
def test_invoked(served: Served, scalar: str) -> None:
    def invoke() -> None:
        handle = served.client.register(f"SELECT {scalar} AS v FROM s", max_seconds=3)
        try:
            handle.invoke()
        finally:
            served.client.execute(f"DROP QUERY {handle.name}")

    served.burn(lambda: refused(invoke))


def follow(served: Served, cql: str) -> None:
    """Register a bomb, give it an element, and read its changes and its answer."""
    client = served.client
    handle = client.register(cql, changes="from registration", max_seconds=3)
    try:
        client.ingest("s", [{"n": 3}])
        client.catch_up(timeout=30)
        handle.fetch()
        handle.invoke()
    finally:
        served.client.execute(f"DROP QUERY {handle.name}")


@pytest.mark.parametrize("scalar", each("range of a column"))
def test_followed(served: Served, scalar: str) -> None:
    cql = f"SELECT n, {scalar} AS v FROM s"
    served.burn(lambda: refused(lambda: follow(served, cql)))


@pytest.mark.parametrize("scalar", each("list_resize"))
def test_matched(served: Served, scalar: str) -> None:
    cql = f"SELECT n FROM s WHERE {scalar} > n"
    served.burn(lambda: refused(lambda: follow(served, cql)))


def test_texts_that_double_in_subqueries(served: Served) -> None:
    rows = "SELECT 'abcdefgh' AS x FROM s"
    for _ in range(9):
        rows = f"SELECT x || x || x || x || x || x || x || x AS x FROM ({rows}) t"
    cql = f"SELECT length(x) AS v FROM ({rows}) t"
    served.burn(lambda: refused(lambda: served.client.ask(cql)))


@pytest.mark.parametrize(
    "call",
    ["sleep_ms(60000)", "current_setting('memory_limit')", "getvariable('a')", "setseed(0.5)"],
)
def test_constants_call_what_queries_may_call(served: Served, call: str) -> None:
    with pytest.raises(MillpondError, match="CQL-213") as raised:
        served.client.execute(f"INSERT INTO r (n) VALUES ({call})")
    assert raised.value.span is not None


def test_constants_read_nothing(served: Served) -> None:
    with pytest.raises(MillpondError, match="CQL-103"):
        served.client.execute("INSERT INTO r (n) VALUES ((SELECT count(*) FROM duckdb_settings()))")
    with pytest.raises(MillpondError, match="CQL-301"):
        served.client.execute("INSERT INTO r (n) VALUES ((SELECT count(*) FROM duckdb_views))")
