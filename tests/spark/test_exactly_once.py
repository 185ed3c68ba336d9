"""A batch that fails, before its commit or after it, is in the answers exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.runtime.protocol import INBOX
from millpond.service.pond import Pond
from millpond.state.store import REFERENCED

pytestmark = pytest.mark.spark


class Failing:
    """The sequencer's `commit`, which fails for one source a few times."""

    def __init__(self, pond: Pond, source: str, when: str, times: int = 1) -> None:
        self.commit = pond._components.sequencer.commit
        self.source, self.when, self.left = source, when, times
        self.calls: list[tuple[str, int]] = []
        pond._components.sequencer.commit = self  # type: ignore[method-assign, assignment]

    def __call__(self, source: str, batch_id: int, *rest: Any) -> None:
        self.calls.append((source, batch_id))
        fails = source == self.source and self.left > 0
        self.left -= fails
        if fails and self.when == "before":
            raise OSError("the disk is away")
        self.commit(source, batch_id, *rest)
        if fails:
            raise OSError("the reply was lost")


def write(folder: Path, name: str, *numbers: int) -> None:
    (folder / f".{name}").write_text("".join(f"{n}\n" for n in numbers))
    (folder / f".{name}").rename(folder / f"{name}.csv")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_a_batch_of_files(open_store, folder, eventually, when):
    pond = open_store()
    failing = Failing(pond, "stream:1", when)
    pond.execute(f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}')")
    query = pond.register("SELECT count(*), sum(n), count(DISTINCT n) FROM s WHERE n > 0")
    write(folder, "a", 1, 2, 3)
    eventually(lambda: failing.left == 0)
    eventually(
        lambda: pond.status()["streams"][0]["reason"] is None and query.invoke().rows()[0][0]
    )
    write(folder, "b", 4, 5)
    eventually(lambda: query.invoke().rows() == [(5, 15, 5)])
    if when == "before":
        assert failing.calls[:2] == [("stream:1", 0)] * 2
    pond.close()
    again = open_store()
    again.catch_up()
    assert again.ask("SELECT count(*), sum(n) FROM s").rows() == [(5, 15)]
    nothing_left_over(again)


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.slow), "after"])
def test_a_batch_of_pushes(open_store, eventually, when):
    pond = open_store()
    # How many batches five pushes make is a matter of time; the first may hold them all.
    failing = Failing(pond, INBOX, when, times=2 if when == "before" else 1)
    pond.execute("CREATE STREAM s (n BIGINT); CREATE STREAM t (n BIGINT)")
    query = pond.register("SELECT count(*), sum(n) FROM s WHERE n > 0")
    for n in range(1, 6):
        pond.ingest("s", [{"n": n}, {"n": -n}], idempotency_key=f"k{n}")
        pond.ingest("t", [{"n": n}])
    pond.catch_up(timeout=120)
    assert failing.left == 0
    assert query.invoke().rows() == [(5, 15)]
    assert pond.ingest("s", [{"n": 1}, {"n": -1}], idempotency_key="k1").duplicate
    pond.catch_up(timeout=120)
    pond.close()
    again = open_store()
    again.catch_up(timeout=120)
    assert again.ask("SELECT count(*), sum(n) FROM s").rows() == [(10, 0)]
    assert again.ask("SELECT count(*), sum(n) FROM t").rows() == [(5, 15)]
    nothing_left_over(again)


def test_a_stream_says_why_it_fails_and_that_it_goes_on(open_store, folder, eventually):
    pond = open_store()
    Failing(pond, "stream:1", "before")
    pond.execute(
        f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}');CREATE STREAM t (n BIGINT)"
    )
    write(folder, "a", 1)
    stopped = eventually(
        lambda: next(s for s in pond.status()["streams"] if s["state"] == "stopped")
    )
    assert stopped["name"] == "s"
    assert "DATA-502" in stopped["reason"]
    assert "the disk is away" in stopped["reason"]
    pond.ingest("t", [{"n": 1}])
    eventually(lambda: pond.ask("SELECT n FROM t").rows() == [(1,)])
    eventually(lambda: pond.ask("SELECT n FROM s").rows() == [(1,)])
    eventually(lambda: [s["state"] for s in pond.status()["streams"]] == ["running", "running"])


def test_a_bounded_source_that_fails_is_read_again(open_store, folder):
    pond = open_store(bounded=True)
    failing = Failing(pond, "stream:1", "before")
    pond.execute(f"CREATE STREAM s (n BIGINT) USING csv OPTIONS (path '{folder}')")
    write(folder, "a", 1, 2, 3)
    with pytest.raises(MillpondError, match="the disk is away"):
        pond.ask("SELECT * FROM s")
    assert pond.ask("SELECT sum(n) FROM s").rows() == [(6,)]
    assert failing.calls == [("stream:1", 0)] * 2


def nothing_left_over(pond: Pond) -> None:
    """Every file of the store is one that an epoch refers to."""
    pond.wait_until_matched(timeout=120)
    store = pond._components._store.directory
    found = {f"{kind}/{file.name}" for kind in REFERENCED for file in (store / kind).iterdir()}
    assert found == pond._components.log.version.paths().keys()
