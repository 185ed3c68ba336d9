"""CREATE, ALTER, DROP and SHOW SINK, and the threads that deliver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from tests.unit.service.changes.feeds.test_feed import SCHEMA, advance, open_pond, push, register
from tests.unit.service.sinks.receiver import KEY, Receiver, receiving
from tests.waiting import wait_until

from millpond.errors import MillpondError
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.service.pond import Pond
from millpond.service.sinks import delivery, sinks


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("HOOK_KEY", KEY.decode())
    monkeypatch.setenv("MILLPOND_SINK_KEY", KEY.decode())
    monkeypatch.setattr(delivery, "_FIRST_WAIT", 0.01)
    with receiving() as found:
        yield found


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_pond(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        yield pond


def create(pond: Pond, url: str, more: str = "", selected: str = "QUERIES TAGGED fed") -> None:
    pond.execute(
        f"CREATE SINK k USING http (url '{url}', key_env 'HOOK_KEY'{more}) FROM {selected}"
    )


def state(pond: Pond) -> str:
    return str(pond.status()["sinks"][0]["state"])


def fetched(pond: Pond) -> int:
    return sum(len(pond.query(query.id).fetch("oldest")) for query in pond.queries(tag="fed"))


def test_changes_arrive_as_they_come_and_after_failures(pond: Pond, receiver: Receiver) -> None:
    receiver.answers = [500, 302, 200, 503]
    register(pond, "q0")
    create(pond, receiver.url)
    push(pond, "s", (1, 1), (9, 2))
    advance(pond)
    receiver.wait(fetched(pond))
    register(pond, "q1")
    push(pond, "s", (19, 2))
    advance(pond)
    receiver.wait(fetched(pond))
    assert len(receiver.changes()) == len(set(map(str, receiver.changes())))
    wait_until(lambda: pond.status()["sinks"][0]["changes"] == fetched(pond))
    (sink,) = pond.status()["sinks"]
    assert (sink["name"], sink["of"], sink["failures"]) == ("k", "queries tagged fed", 3)
    assert state(pond) == "delivers"
    metrics = generate_latest(pond.metrics).decode()
    assert f'millpond_sink_changes_total{{sink="k"}} {float(sink["changes"])}' in metrics
    assert 'millpond_sink_failures_total{sink="k"} 3.0' in metrics
    assert pond.entities.one("sink:k").figures["changes"] == sink["changes"]
    (shown,) = pond.execute("SHOW SINKS")
    assert shown.table is not None
    assert shown.table.to_pylist()[0]["state"] == "delivers"


def test_a_sink_goes_on_where_it_was_after_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    with open_pond(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        register(pond, "q0")
        create(pond, receiver.url)
        push(pond, "s", (1, 1), (9, 2))
        advance(pond)
        receiver.wait(fetched(pond))
    with open_pond(tmp_path / "store") as pond:
        push(pond, "s", (19, 2))
        advance(pond)
        receiver.wait(fetched(pond))
        assert len(receiver.changes()) == fetched(pond)


def test_a_sink_begins_after_a_cursor(pond: Pond, receiver: Receiver) -> None:
    """Where another one was, which DESCRIBE says."""
    register(pond, "q0")
    create(pond, receiver.url)
    push(pond, "s", (1, 1), (9, 2))
    advance(pond)
    receiver.wait(seen := fetched(pond))
    wait_until(lambda: pond.status()["sinks"][0]["changes"] == seen)
    (described,) = pond.execute("DESCRIBE k")
    cursor = described.facts["cursor"]
    pond.execute("DROP SINK k")
    create(pond, receiver.url, f", after '{cursor}'")
    push(pond, "s", (19, 2))
    advance(pond)
    receiver.wait(fetched(pond))
    assert len(set(map(str, receiver.changes()))) == fetched(pond) == len(receiver.changes())
    with pytest.raises(MillpondError, match="where a sink begins cannot be altered"):
        pond.execute("ALTER SINK k SET (after = 'another')")
    pond.execute(f"ALTER SINK k SET (after = '{cursor}', batch = 7)")
    with pytest.raises(MillpondError, match="POND-412"):
        pond.execute(f"CREATE SINK j {made_after('zzzzzz' + cursor[6:], receiver.url)}")
    assert [sink["name"] for sink in pond.status()["sinks"]] == ["k"]


def made_after(cursor: str, url: str) -> str:
    return f"USING http (url '{url}', key_env 'HOOK_KEY', after '{cursor}') FROM QUERIES TAGGED fed"


def test_a_dead_sink_says_so_and_is_brought_back(pond: Pond, receiver: Receiver) -> None:
    receiver.answers = [500, 500, 500]
    register(pond, "q0")
    create(pond, receiver.url, ", attempts 3")
    push(pond, "s", (1, 1), (9, 2))
    advance(pond)
    wait_until(lambda: state(pond).startswith("dead"))
    assert state(pond) == "dead: the receiver answered 500 (3 attempts failed)"
    (problem,) = pond.status()["problems"]
    assert (problem["code"], problem["message"]) == ("POND-418", 'sink "k" is dead')
    assert 'millpond_sink_dead{sink="k"} 1.0' in generate_latest(pond.metrics).decode()
    pond.execute("ALTER SINK k SET (active = true)")
    receiver.wait(fetched(pond))
    assert len(set(receiver.ids)) == 1
    assert pond.status()["problems"] == []


def test_gone_is_the_end_at_once(pond: Pond, receiver: Receiver) -> None:
    receiver.answers = [410]
    register(pond, "q0")
    create(pond, receiver.url)
    push(pond, "s", (1, 1), (9, 2))
    advance(pond)
    wait_until(lambda: state(pond) == "dead: the receiver answered 410")
    assert len(receiver.ids) == 1


def test_an_inactive_sink_waits_and_a_pond_closes_while_one_hangs(
    pond: Pond, receiver: Receiver
) -> None:
    register(pond, "q0")
    create(pond, receiver.url, ", active false")
    push(pond, "s", (1, 1), (9, 2))
    advance(pond)
    assert (state(pond), receiver.ids) == ("inactive", [])
    receiver.answers = [0]
    pond.execute("ALTER SINK k SET (active = true, timeout = '60 s')")
    wait_until(lambda: len(receiver.ids) == 1)
    began = time.monotonic()
    pond.close()
    assert time.monotonic() - began < 45


def refused(pond: Pond, text: str, policy: AccessPolicy | None = None) -> MillpondError:
    with pytest.raises(MillpondError) as caught:
        list(pond.run(text, policy))
    return caught.value


OPEN = "USING http (url 'http://h/', key_env 'HOOK_KEY') FROM QUERIES TAGGED fed"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE SINK a USING smoke (url 'http://h') FROM QUERY q0", "CQL-301"),
        ("CREATE SINK a USING http (key_env 'HOOK_KEY') FROM QUERY q0", "CQL-214"),
        ("CREATE SINK a USING http (url 'http://h') FROM QUERY q0", "CQL-214"),
        ("CREATE SINK a USING http (url 'http://h', key_env 'NONE') FROM QUERY q0", "CQL-214"),
        ("CREATE SINK a USING http (url 'h', key_env 'HOOK_KEY') FROM QUERY q0", "CQL-214"),
        ("CREATE SINK a USING http (url 'http://h', colour 'red') FROM QUERY q0", "CQL-214"),
        (
            "CREATE SINK a USING http (url 'http://h', key_env 'HOOK_KEY', key_file '/k')"
            " FROM QUERY q0",
            "CQL-214",
        ),
        ("CREATE SINK a USING http (url 'http://h', key_env 'HOOK_KEY') FROM QUERY q", "CQL-201"),
        ("CREATE SINK a USING http (url 'http://h') FROM q0", "CQL-103"),
        ("ALTER SINK a SET (active = true)", "CQL-201"),
        ("ALTER SINK k SET (batch = 0)", "CQL-214"),
        ("ALTER SINK k SET (url = 'mailto:x')", "CQL-214"),
        ("DROP SINK a", "CQL-201"),
        (f"CREATE SINK K {OPEN}", "CQL-208"),
    ],
)
def test_what_is_no_sink(pond: Pond, receiver: Receiver, text: str, code: str) -> None:
    register(pond, "q0")
    pond.execute(f"CREATE SINK k {OPEN}")
    error = refused(pond, text)
    assert error.code == code
    assert error.hint
    pond.execute("DROP SINK k")
    assert pond.status()["sinks"] == []


def test_there_are_not_more_sinks_than_threads_are_wanted(
    pond: Pond, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "MOST_SINKS", 1)
    pond.execute(f"CREATE SINK k {OPEN}")
    assert refused(pond, f"CREATE SINK l {OPEN}").code == "POND-405"


def test_a_secret_in_a_url_is_not_listed(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write on the machine may have one; lists and the status do not show it."""
    monkeypatch.setenv("HOOK_KEY", KEY.decode())
    url = "http://127.0.0.1:9/?token=hunter2"
    pond.execute(f"CREATE SINK k {OPEN.replace('http://h/', url)}")
    listed = f"{pond.execute('SHOW SINKS')} {pond.execute('DESCRIBE k')} {pond.status()}"
    assert "hunter2" not in listed
    assert "127.0.0.1 (the rest" in listed
    assert "hunter2" in str(pond.execute("SHOW CREATE SINK k"))


def test_clients_deliver_where_the_operator_lets_them(pond: Pond, receiver: Receiver) -> None:
    host = receiver.url.removeprefix("http://").split("/")[0]
    mine = f"USING http (url '{receiver.url}', key_env 'MILLPOND_SINK_KEY') FROM QUERIES TAGGED fed"
    assert refused(pond, f"CREATE SINK k {mine}", AccessPolicy()).code == "POND-414"
    policy = AccessPolicy.of(hosts=[host])
    foreign = mine.replace("MILLPOND_SINK_KEY", "HOOK_KEY")
    assert refused(pond, f"CREATE SINK k {foreign}", policy).code == "POND-414"
    filed = mine.replace("key_env 'MILLPOND_SINK_KEY'", "key_file '/etc/hostname'")
    assert refused(pond, f"CREATE SINK k {filed}", policy).code == "POND-414"
    list(pond.run(f"CREATE SINK k {mine}", policy))
    for change in ("url = 'http://127.0.0.1:1/'", "key_env = 'HOOK_KEY'", "key_file = '/k'"):
        assert refused(pond, f"ALTER SINK k SET ({change})", policy).code == "POND-414"
    list(pond.run("ALTER SINK k SET (batch = 2)", policy))
    register(pond, "q0")
    push(pond, "s", (1, 1), (9, 2))
    advance(pond)
    receiver.wait(fetched(pond))
