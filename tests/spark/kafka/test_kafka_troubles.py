"""Brokers and registries that are away, or ask who it is; several topics; idle partitions."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.spark.kafka.test_kafka_sinks import Out
from tests.spark.kafka.test_kafka_sources import READINGS, Topic, heartbeat, reading, rejects
from tests.waiting import wait_until

from millpond.errors import MillpondError
from millpond.model.time import now
from millpond.runtime.kafka import client

pytestmark = pytest.mark.spark

WRONG = "heron-in-reeds"


@pytest.fixture
def topic(broker) -> Topic:
    return Topic(broker)


def test_several_topics_are_one_stream(pond, broker):
    """In order of topic, partition and offset; the heartbeat is the least of all partitions."""
    first, second = sorted((Topic(broker, 1), Topic(broker, 1)), key=lambda topic: topic.name)
    second.send(reading(1), reading(2))
    first.send(reading(1, "attic"), reading(5, "attic"))
    columns = READINGS.replace("celsius", "t VARCHAR, celsius")
    both = second.using(topic=f"{second.name}, {first.name}", topic_column="t")
    pond.execute(columns + both)
    pond.catch_up()
    found = pond.ask("SELECT t, sensor FROM s [ROWS 3]").rows()
    assert sorted(found) == [(first.name, "attic"), (second.name, "roof"), (second.name, "roof")]
    assert heartbeat(pond) == "2026-03-01 10:02:00"
    second.send(reading(3))
    pond.catch_up()
    assert heartbeat(pond) == "2026-03-01 10:03:00"
    assert rejects(pond) == []


def test_an_idle_partition_holds_nothing_back(pond, topic, eventually):
    """After the time of IDLE AFTER; also one that never had a record."""
    pond.execute(READINGS + "IDLE AFTER INTERVAL 2 SECONDS " + topic.using())
    topic.send(reading(7), partition=1)
    pond.catch_up()
    eventually(lambda: heartbeat(pond) >= "2026-03-01 10:07:00")  # and moves on when all are idle


def test_what_waited_while_nobody_read_is_not_late(open_store, topic, eventually):
    """IDLE AFTER counts the time in which records could come, not the time Millpond was down."""
    away = [0]
    pond = open_store(clock=lambda: now() + away[0])
    pond.execute(READINGS + "IDLE AFTER INTERVAL 1 SECOND " + topic.using())
    topic.send(reading(1))
    pond.catch_up()
    eventually(lambda: heartbeat(pond) > "2026-03-01 10:01:01")  # it is idle
    pond.close()
    topic.send(*[reading(minute) for minute in range(3, 30)])
    away[0] = 3_600_000_000
    pond = open_store(clock=lambda: now() + away[0])
    eventually(lambda: pond.ask("SELECT count(*) FROM s").rows() == [(28,)])
    assert rejects(pond) == []
    eventually(lambda: heartbeat(pond) > "2026-03-01 10:29:01")  # and idle again


@pytest.mark.parametrize("waits", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_broker_that_is_away_at_start(open_store, topic, eventually, monkeypatch, waits):
    """Nothing new can follow it; what followed it goes on once it is back, and all else now."""
    using = "CREATE STREAM s (v INTEGER) " + topic.using()
    pond = open_store()
    pond.execute(using)
    topic.send({"v": 1})
    pond.catch_up()
    pond.close()
    topic.send({"v": 2})
    topic.broker.kill()
    try:
        pond = open_store()
        with monkeypatch.context() as patch:
            patch.setattr(client, "_SECONDS", 0.5)
            with pytest.raises(MillpondError, match="DATA-502"):
                pond.execute(using.replace("STREAM s", "STREAM other"))
        pond.execute("CREATE STREAM pushed (v INTEGER); INSERT INTO pushed VALUES (7)")
        assert pond.ask("SELECT v FROM pushed").rows() == [(7,)]
        assert pond.ask("SELECT v FROM s").rows() == [(1,)]
        if waits:
            eventually(lambda: pond.status()["streams"][0]["reason"])
    finally:
        topic.broker.start()
    eventually(lambda: pond.ask("SELECT v FROM s ORDER BY v").rows() == [(1,), (2,)])
    assert [stream["name"] for stream in pond.status()["streams"]] == ["s", "pushed"]


SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}]}


class Registry:
    """A schema registry with one schema, that can be away, or want to know who asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.wanted: str | None = None
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                wanted = registry.wanted
                knows = wanted is None or self.headers.get("Authorization") == wanted
                self.send_response(200 if knows else 401)
                self.end_headers()
                self.wfile.write(json.dumps({"schema": json.dumps(SCHEMA)}).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._handler = Handler
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.stop()


def in_avro(value: int) -> bytes:
    fastavro = pytest.importorskip("fastavro")
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(SCHEMA), {"v": value})
    return b"\0\0\0\0\x05" + body.getvalue()


def test_a_registry_that_is_away(pond, topic, registry, eventually):
    """Refused at CREATE; while it runs the stream waits, says why, and no record is lost."""
    url = f"http://127.0.0.1:{registry.port}"
    create = "CREATE STREAM s (v INTEGER) " + topic.using("avro", registry=url)
    registry.stop()
    with pytest.raises(MillpondError, match="DATA-502") as refused:
        pond.execute(create)
    assert "The schema registry does not answer" in str(refused.value.detail)
    registry.start()
    pond.execute(create)
    topic.send(in_avro(1))
    pond.catch_up()
    registry.stop()
    topic.send(in_avro(2))
    eventually(lambda: "registry does not answer" in pond.status()["streams"][0]["reason"])
    assert pond.ask("SELECT v FROM s").rows() == [(1,)]
    registry.start()
    topic.send(in_avro(3))
    eventually(lambda: pond.ask("SELECT v FROM s ORDER BY v").rows() == [(1,), (2,), (3,)])
    assert pond.ask("SELECT count(*) FROM s$rejects").rows() == [(0,)]
    assert set(registry.asked) == {
        f"/subjects/{topic.name}-value/versions/latest",
        "/schemas/ids/5",
    }


@pytest.fixture
def log_in(broker, tmp_path, monkeypatch) -> Callable[[str], str]:
    """Writes settings of a client that logs in with a password; gives the option `config`.

    A source's stands in a file: Spark's processes are those of all tests, and know no secrets.
    """
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}

    def write(name: str, password: str) -> str:
        settings = {**client, "sasl.username": broker.user, "sasl.password": password}
        settings[REGISTRY_LOGIN] = USER
        file = tmp_path / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        secrets = tmp_path / "secrets.json"
        secrets.touch(mode=0o600)
        secrets.write_text(json.dumps({"kafka": settings}))
        monkeypatch.setenv("MILLPOND_SECRETS", str(secrets))
        return str(file)

    return write


REGISTRY_LOGIN = "schema.registry.basic.auth.user.info"
USER = "millpond:plover-in-mud"


def test_who_logs_in_shows_no_secret(open_store, broker, topic, registry, log_in, tmp_path, caplog):
    """A source with its registry, and a sink; the right words and wrong ones, on a real broker."""
    registry.wanted = f"Basic {base64.b64encode(USER.encode()).decode()}"
    out, said = Out(broker), []
    at = {"bootstrap": broker.login_bootstrap, "registry": f"http://127.0.0.1:{registry.port}"}
    pond = open_store()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_SECONDS", 2)
        wrong = topic.using("avro", **at, config=log_in("wrong", WRONG))
        with pytest.raises(MillpondError, match="DATA-502") as refused:
            pond.execute("CREATE STREAM no (v INTEGER) " + wrong)
        said.append(str(refused.value.to_json()))
        assert "Invalid username or password" in str(refused.value.detail)
        assert 1 <= caplog.text.count("Invalid username") < 10  # it tries three times a second
    right = topic.using("avro", **at, config=log_in("right", broker.password))
    pond.execute("CREATE STREAM s (v INTEGER) " + right)
    pond.execute("CREATE QUERY q AS ISTREAM (SELECT v FROM s [NOW])")
    sink = {**out.options, "bootstrap": broker.login_bootstrap}
    given = ", ".join(f"{name} '{value}'" for name, value in sink.items())
    given += ", config secret('kafka')"
    pond.execute(f"CREATE SINK k USING kafka ({given}) FROM QUERY q")
    topic.send(in_avro(1))
    wait_until(lambda: [change["row"]["v"] for change in out.read()] == [1])
    shown = ["SHOW SINKS", "SHOW STREAMS", "SHOW CREATE STREAM s", "SHOW CREATE SINK k"]
    said += [str(pond.execute(statement)) for statement in shown]
    said += [str(pond.status()), caplog.text]
    pond.close()
    store = tmp_path / "store"
    said += [p.read_bytes().decode("latin-1") for p in store.rglob("*") if p.is_file()]
    for secret in (broker.password, WRONG, USER, USER.partition(":")[2]):
        assert not [text for text in said if secret in text]


def test_a_registrys_password_is_no_part_of_its_address(pond, topic):
    with pytest.raises(MillpondError, match="CQL-214") as refused:
        pond.execute(
            "CREATE STREAM s (v INTEGER) " + topic.using("avro", registry=f"http://{USER}@h:1")
        )
    assert REGISTRY_LOGIN in str(refused.value.hint)
    assert "plover" not in f"{refused.value.primary} {refused.value.detail} {refused.value.hint}"
