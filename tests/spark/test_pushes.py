"""Pushed rows on Spark: their order, and streams and queries that come and go meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from millpond.runtime.protocol import INBOX
from millpond.runtime.spark import supervisor

pytestmark = pytest.mark.spark


def test_pushes_of_one_batch_keep_their_order_whatever_their_sizes(pond):
    """Spark deals out the largest files first; the last push is still the last."""
    pond.execute(
        "CREATE STREAM app (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts; CREATE STREAM sys (n BIGINT)"
    )
    for stream in ("app", "sys"):
        with pond._components.sequencer.stream_lock(
            INBOX
        ):  # nothing is planned while the lock is held
            for number, size in enumerate((1, 500, 3, 2000, 1, 40)):
                row = {"ts": "2024-01-01", "n": number}
                pond.ingest(stream, [row if stream == "app" else {"n": number}] * size)
        pond.catch_up(timeout=120)
        numbers = [n for (n,) in pond.ask(f"SELECT n FROM {stream}").rows()]
        assert numbers == sorted(numbers)
        assert len(numbers) == 2545
        for size in (1, 41, 42, 2042, 2544):
            last = pond.ask(f"SELECT n FROM {stream} [ROWS {size}]").rows()
            assert [n for (n,) in last] == numbers[-size:], size


def test_streams_and_queries_come_and_go_while_others_run(pond, tmp_path: Path):
    pond.execute("CREATE STREAM steady (n BIGINT)")
    steady = pond.register("SELECT count(*), sum(n) FROM steady WHERE n >= 0", "steady_sum")
    problems: list[BaseException] = []
    done = threading.Event()
    pushed = 0

    def push() -> None:
        nonlocal pushed
        try:
            while not done.wait(0.02):
                pond.ingest("steady", [{"n": pushed}])
                pushed += 1
        except BaseException as error:
            problems.append(error)

    pusher = threading.Thread(target=push)
    pusher.start()
    try:
        for number in range(5):
            (tmp_path / f"{number}.csv").write_text("1\n2\n3\n")
            pond.execute(
                f"CREATE STREAM filed (n BIGINT) USING csv"
                f" OPTIONS (path '{tmp_path / f'{number}.csv'}');"
                "CREATE STREAM pushed (n BIGINT);"
                "CREATE QUERY both AS SELECT f.n FROM filed f JOIN pushed p ON f.n = p.n;"
            )
            extra = pond.register(f"SELECT * FROM steady WHERE n % 7 = {number}")
            pond.ingest("pushed", [{"n": 2}])
            pond.catch_up(timeout=120)
            assert pond.query("both").invoke().rows() == [(2,)]
            extra.unregister()
            pond.ingest("pushed", [{"n": 3}])  # some of it on its way when its stream is dropped
            pond.execute("DROP QUERY both; DROP STREAM filed; DROP STREAM pushed")
    finally:
        done.set()
        pusher.join()
    assert problems == []
    pond.wait_until_matched(timeout=120)
    assert steady.invoke().rows() == [(pushed, pushed * (pushed - 1) // 2)]
    assert pushed > 5
    assert [s["name"] for s in pond.status()["streams"]] == ["steady"]
    assert pond._components.runtime.describe()["streaming_queries"] == 1


def test_many_pushes_over_the_inbox_s_renewal(pond, monkeypatch):
    from millpond.runtime.spark import inbox_query

    monkeypatch.setattr(inbox_query, "_INBOX_BATCHES", 2)
    pond.execute("CREATE STREAM s (n BIGINT)")
    for n in range(12):
        pond.ingest("s", [{"n": n}])
        if n % 2:
            pond.catch_up(timeout=120)
    pond.catch_up(timeout=120)
    assert pond.ask("SELECT count(*), sum(n) FROM s").rows() == [(12, 66)]


def test_a_store_may_lie_wherever_a_directory_may(open_store):
    pond = open_store("a b[1] {c} %20 ü*/store")
    pond.execute("CREATE STREAM s (n BIGINT)")
    with pond._components.sequencer.stream_lock(INBOX):  # one batch of several pushes
        for number in range(3):
            pond.ingest("s", [{"n": number}])
    pond.catch_up(timeout=60)
    assert pond.ask("SELECT n FROM s ORDER BY n").rows() == [(0,), (1,), (2,)]


def test_the_inbox_goes_on_after_an_error_that_has_much_to_say(pond, monkeypatch):
    commit, failures = pond._components.sequencer.commit, iter(range(2))

    def fail_twice(*arguments, **named):
        if next(failures, None) is not None:
            raise RuntimeError("what is wrong\n" * 20_000)
        return commit(*arguments, **named)

    monkeypatch.setattr(pond._components.sequencer, "commit", fail_twice)
    pond.execute("CREATE STREAM s (n BIGINT)")
    pond.ingest("s", [{"n": 1}])
    pond.catch_up(timeout=60)
    assert next(failures, None) is None
    assert pond.ask("SELECT n FROM s").rows() == [(1,)]


def test_a_streaming_query_whose_thread_died_is_started_again(pond, monkeypatch, eventually):
    pond.execute("CREATE STREAM s (n BIGINT)")
    pond.ingest("s", [{"n": 1}])
    pond.catch_up(timeout=60)
    inbox = pond._components.runtime._supervisor.get(None)
    first = inbox.query
    assert supervisor.is_alive(first)
    monkeypatch.setattr(supervisor, "is_alive", lambda query: query is not first)
    eventually(lambda: inbox.query is not first)
    pond.ingest("s", [{"n": 2}])
    pond.catch_up(timeout=60)
    assert pond.ask("SELECT n FROM s ORDER BY n").rows() == [(1,), (2,)]


def test_directories_are_looked_at_less_often_than_the_inbox(pond, tmp_path: Path):
    (tmp_path / "0.csv").write_text("1\n")
    pond.execute(f"CREATE STREAM filed (n BIGINT) USING csv OPTIONS (path '{tmp_path}')")
    pond.execute("CREATE STREAM pushed (n BIGINT)")
    pond.ingest("pushed", [{"n": 1}])
    pond.catch_up(timeout=120)
    kept = pond._components.runtime._supervisor
    delays = {
        name: kept.get(number).query._jsq.streamingQuery().pollingDelayMs()
        for name, number in (("inbox", None), ("filed", pond.streams()[0].id))
    }
    assert delays == {"inbox": 25, "filed": 100}
