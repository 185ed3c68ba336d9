"""DROP … CASCADE: all that reads an object goes with it in one epoch, and nothing else does."""

from __future__ import annotations

import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond

SCRIPT = """
CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE STREAM other (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE STREAM d AS SELECT v FROM s WHERE v > 1;
CREATE RELATION w AS SELECT v FROM d;
CREATE SUMMARY y ON s (v) WITH GRANULARITY 1 MINUTE AND COLLAPSE (4, 6);
CREATE QUERY q WITH (tags = 'x') AS SELECT v FROM w;
CREATE QUERY both AS SELECT s.v FROM s [ROWS 1], other [ROWS 1] WHERE s.v = other.v;
CREATE QUERY inner_one AS SELECT max(n) AS m
  FROM ISTREAM(SELECT count(*) AS n FROM s [ROWS 9]) [ROWS 2] AS c;
CREATE QUERY stays AS SELECT v FROM other WHERE v > 1;
CREATE SINK k USING http (url 'http://127.0.0.1:9/', key_env 'MILLPOND_DROP_KEY') FROM QUERY q;
CREATE SINK tagged USING http (url 'http://127.0.0.1:9/', key_env 'MILLPOND_DROP_KEY')
  FROM QUERIES TAGGED x
"""


@pytest.fixture
def full(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> Pond:
    monkeypatch.setenv("MILLPOND_DROP_KEY", "0123456789abcdef")
    pond.execute(SCRIPT)
    return pond


def names(pond: Pond) -> set[str]:
    found = {s.name for s in pond.streams()} | {r.name for r in pond.relations()}
    found |= {q.name for q in pond.queries()}
    for shown in pond.execute("SHOW SUMMARIES; SHOW SINKS"):
        assert shown.table is not None
        found |= set(shown.table["name"].to_pylist())
    return found


def test_a_stream_goes_with_all_that_reads_it_in_one_epoch(full: Pond) -> None:
    full.query("q").fetch()
    full.query("stays").fetch()
    with pytest.raises(MillpondError, match="POND-401") as refused:
        full.execute("DROP STREAM s")
    listed = (refused.value.detail or "").partition(": ")[2].rstrip(".")
    epoch = full.status()["epoch"]
    (done,) = full.execute("DROP STREAM s CASCADE")
    assert done.message == f"stream s: dropped, with {listed}"
    assert full.status()["epoch"] == epoch + 1
    gone = {"d", "w", "y", "q", "both", "inner_one", "k"}
    assert {name.split()[1] for name in listed.split(", ")} == gone
    assert names(full) == {"other", "stays", "tagged"}
    full.execute(
        SCRIPT.replace("CREATE STREAM other", "CREATE STREAM IF NOT EXISTS other")
        .replace("QUERY stays", "QUERY IF NOT EXISTS stays")
        .replace("SINK tagged", "SINK IF NOT EXISTS tagged")
    )
    full.execute("INSERT INTO s VALUES (TIMESTAMP '1970-01-01 00:00:01', 7)")
    full.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:09'")
    full.catch_up()
    assert full.query("q").invoke().rows() == [(7,)]


@pytest.mark.parametrize(
    ("statement", "gone"),
    [
        ("DROP STREAM d CASCADE", {"d", "w", "q", "k"}),
        ("DROP RELATION w CASCADE", {"w", "q", "k"}),
        ("DROP QUERY q CASCADE", {"q", "k"}),
        ("DROP QUERY q", {"q"}),
        ("DROP SUMMARY y CASCADE", {"y"}),
        ("DROP SINK k CASCADE", {"k"}),
        ("DROP QUERY IF EXISTS stays CASCADE", {"stays"}),
    ],
)
def test_nothing_goes_but_what_reads_it(full: Pond, statement: str, gone: set[str]) -> None:
    before = names(full)
    full.execute(statement)
    assert before - names(full) == gone


def test_a_relation_goes_with_its_records_and_their_readers(pond: Pond) -> None:
    pond.execute(
        "CREATE RELATION f (k INTEGER, PRIMARY KEY (k)) USING push OPTIONS (op_column 'op');"
        "CREATE QUERY records AS SELECT * FROM f$changes; CREATE QUERY rows AS SELECT k FROM f"
    )
    (done,) = pond.execute("DROP RELATION f CASCADE")
    assert done.message == "relation f: dropped, with query rows, query records"
    assert names(pond) == set()


def test_nothing_is_dropped_if_the_epoch_fails(full: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names(full)
    log = full._components.log

    def fail(_: object) -> None:
        raise MillpondError("STORE-603", "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(log, "commit", fail)
        with pytest.raises(MillpondError, match="STORE-603"):
            full.execute("DROP STREAM s CASCADE")
    assert names(full) == before
    assert full._components.sinks.describe()[0]["state"] != "inactive"
    assert len(full._components.sinks._workers) == 2


def test_what_is_not_there_is_not_dropped(pond: Pond) -> None:
    for kind in ("query", "stream", "relation", "summary", "sink"):
        (done,) = pond.execute(f"DROP {kind} IF EXISTS nothing CASCADE")
        assert done.message == f"{kind} nothing: is not there"
        with pytest.raises(MillpondError, match="CQL-201"):
            pond.execute(f"DROP {kind} nothing CASCADE")
