"""Streams that read Kafka: every record once, in order, with rejects that name their record."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from typing import Any

import pytest
from tests.waiting import wait_until

from millpond.errors import MillpondError

pytestmark = pytest.mark.spark


@pytest.fixture
def topic(broker) -> Any:
    """Makes topics of names of their own, and writes to them."""
    return Topic(broker)


class Topic:
    """A topic of the test, and a producer of its records."""

    def __init__(self, broker: Any, partitions: int = 2) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        self.broker = broker
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.create(NewTopic(self.name, partitions, 1))
        self.connect()

    def connect(self) -> None:
        """Make a producer, which knows the topic's partitions."""
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0})

    def create(self, topic: Any) -> None:
        for made in self.admin.create_topics([topic]).values():
            made.result(30)

    def send(self, *values: Any, partition: int = 0, **fields: Any) -> None:
        """Write values, of which other things than bytes are written as JSON."""
        for value in values:
            data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
            self._producer.produce(self.name, data, partition=partition, **fields)
        assert self._producer.flush(30) == 0

    def using(self, format: str = "json", **options: str) -> str:
        given = {"bootstrap": self.broker.bootstrap, "topic": self.name, "format": format}
        written = ", ".join(f"{k} '{v}'" for k, v in (given | options).items())
        return f"USING kafka OPTIONS ({written})"

    def make_anew(self) -> None:
        """Delete the topic, and make another of its name."""
        from confluent_kafka.admin import NewTopic

        for gone in self.admin.delete_topics([self.name]).values():
            gone.result(30)
        wait_until(lambda: self.name not in self.admin.list_topics(timeout=10).topics)
        self.create(NewTopic(self.name, 1, 1))

    def lose(self, partition: int) -> None:
        """Have the broker lose a partition's records, as one does that had not written them."""
        self.broker.kill()
        for file in (self.broker.data / f"{self.name}-{partition}").iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        self.broker.start()

    def add_partitions(self, count: int) -> None:
        from confluent_kafka.admin import NewPartitions

        for made in self.admin.create_partitions([NewPartitions(self.name, count)]).values():
            made.result(30)
        self.connect()

    def delete_before(self, offset: int, partition: int = 0) -> None:
        from confluent_kafka import TopicPartition

        asked = self.admin.delete_records([TopicPartition(self.name, partition, offset)])
        for done in asked.values():
            done.result(30)


READINGS = "CREATE STREAM s (at TIMESTAMP, sensor VARCHAR, celsius DOUBLE) TIMESTAMP BY at "


def reading(minute: int, sensor: str = "roof", celsius: float = 1.5) -> dict[str, Any]:
    return {"at": f"2026-03-01T10:{minute:02d}:00", "sensor": sensor, "celsius": celsius}


def rejects(pond: Any) -> list[tuple[Any, ...]]:
    return pond.ask("SELECT reason, raw FROM s$rejects").rows()


def test_records_become_elements_in_the_order_of_partition_and_offset(pond, topic):
    topic.send(reading(1), reading(2), partition=1)
    topic.send(reading(1, "attic"), reading(2, "attic"))
    pond.execute(READINGS + topic.using())
    pond.catch_up()
    rows = pond.ask("SELECT sensor, celsius FROM s [ROWS 3] ORDER BY at, sensor").rows()
    assert rows == [("roof", 1.5), ("attic", 1.5), ("roof", 1.5)]
    topic.send(reading(3))
    pond.catch_up()
    assert pond.ask("SELECT count(*) FROM s").rows() == [(5,)]


def test_records_have_a_column_that_was_added(open_store, topic):
    topic.send({"n": 1}, {"n": 2, "w": 20})
    pond = open_store()
    pond.execute(f"CREATE STREAM s (n INTEGER) {topic.using()}")
    pond.catch_up()
    pond.execute("ALTER STREAM s ADD COLUMN w INTEGER")
    topic.send({"n": 3, "w": 30}, {"n": 4})
    pond.catch_up()
    pond.close()
    topic.send({"n": 5, "w": 50})
    pond = open_store()
    pond.catch_up()
    expected = [(1, None), (2, None), (3, 30), (4, None), (5, 50)]
    assert sorted(pond.ask("SELECT * FROM s").rows(), key=repr) == expected
    assert rejects(pond) == []


def test_what_a_record_has_beside_its_value(pond, topic):
    topic.send(
        {"v": 1}, partition=1, key="k\u00e9y", timestamp=1772359200123, headers=[("trace", b"7")]
    )
    pond.execute(
        "CREATE STREAM s (v INTEGER, k VARCHAR, t VARCHAR, p INTEGER, o BIGINT, at TIMESTAMP,"
        " h JSON) TIMESTAMP BY at "
        + topic.using(
            key_column="k",
            topic_column="t",
            partition_column="p",
            offset_column="o",
            time_column="at",
            headers_column="h",
        )
    )
    pond.catch_up()
    ((v, k, t, p, o, at, h),) = pond.ask("SELECT v, k, t, p, o, at, h FROM s").rows()
    assert (v, k, t, p, o) == (1, "kéy", topic.name, 1, 0)
    assert at.isoformat() == "2026-03-01T10:00:00.123000"
    assert json.loads(h) == [{"key": "trace", "value": "7"}]


def test_rejects_name_topic_partition_and_offset(pond, topic):
    topic.send(reading(1), {"at": "2026-03-01T10:02:00", "celsius": "warm"}, b"{no", b"\xff{}")
    pond.execute(READINGS + topic.using())
    pond.catch_up()
    place = f'(topic "{topic.name}", partition 0, offset '
    assert [reason for reason, _ in rejects(pond)] == [
        f"column \"celsius\": 'warm' is not a DOUBLE {place}1)",
        f"malformed row: it cannot be read as a JSON object {place}2)",
        f"the record's bytes are not UTF-8 {place}3)",
    ]
    assert rejects(pond)[1][1] == "{no"


def test_partitions_in_order_give_no_late_records(pond, topic):
    """The heartbeat is the least of the partitions': one may be far behind another."""
    pond.execute(READINGS + topic.using())
    topic.send(*[reading(m) for m in range(30)], partition=0)
    pond.catch_up()
    assert heartbeat(pond) is None
    topic.send(*[reading(m, "attic") for m in range(20)], partition=1)
    pond.catch_up()
    assert heartbeat(pond) == "2026-03-01 10:19:00"
    assert rejects(pond) == []
    topic.send(reading(18, "attic"), partition=1)
    pond.catch_up()
    assert [reason.partition(" (")[0] for reason, _ in rejects(pond)] == [
        "late: its timestamp is before the heartbeat"
    ]


def heartbeat(pond: Any) -> Any:
    (stream,) = pond.status()["streams"]
    return stream["heartbeat"]


def test_the_partitions_are_known_after_a_restart(open_store, topic):
    pond = open_store()
    pond.execute(READINGS + topic.using())
    topic.send(*[reading(m) for m in range(30)], partition=0)
    topic.send(reading(10), partition=1)
    pond.catch_up()
    pond.close()
    pond = open_store()
    topic.send(reading(20), partition=1)
    pond.catch_up()
    assert heartbeat(pond) == "2026-03-01 10:20:00"
    assert pond.ask("SELECT count(*) FROM s").rows() == [(32,)]


@pytest.mark.parametrize(
    ("using", "words"),
    [
        ("format 'json', subscribe 'x'", '"subscribe"'),
        ("format 'json', sasl_password 'hunter2'", "config 'client.properties'"),
        ("format 'xml'", "'json' or 'csv'"),
        ("format 'json', start 'never'", "earliest"),
        ("format 'json', key_column 'q'", '"q"'),
        ("format 'raw'", '"at"'),
        ("format 'json', config '/no/such/file'", "No such file"),
        ("format 'avro'", "schema"),
    ],
)
def test_options_that_cannot_be(pond, broker, using, words):
    with pytest.raises(MillpondError) as refused:
        pond.execute(
            READINGS + f"USING kafka OPTIONS (bootstrap '{broker.bootstrap}', topic 't', {using})"
        )
    assert refused.value.code == "CQL-214"
    told = " ".join(filter(None, (refused.value.primary, refused.value.detail, refused.value.hint)))
    assert words in told
    assert "hunter2" not in told


def test_a_topic_that_is_not_there(pond, topic):
    with pytest.raises(MillpondError) as refused:
        pond.execute(READINGS + topic.using().replace(topic.name, "nothing"))
    assert refused.value.code == "DATA-502"
    assert "nothing" in refused.value.detail
    assert refused.value.hint == "Check the source and its options. Nothing was created."


def test_where_a_stream_starts(pond, topic):
    """By an instant, by offsets, and at the end; nothing before it is read."""
    for minute in range(4):
        topic.send({"v": minute}, timestamp=1772359200000 + minute * 60_000)
    column = "(v INTEGER) "
    offsets = json.dumps({topic.name: {"0": 3}})
    pond.execute("CREATE STREAM instant " + column + topic.using(start="2026-03-01 10:02:00"))
    pond.execute("CREATE STREAM given " + column + topic.using(start=offsets))
    pond.execute("CREATE STREAM latest " + column + topic.using(start="latest"))
    pond.catch_up()
    topic.send({"v": 9}, partition=1)
    pond.catch_up()
    found = {
        name: sorted(v for (v,) in pond.ask(f"SELECT v FROM {name}").rows())
        for name in ("instant", "given", "latest")
    }
    assert found == {"instant": [2, 3, 9], "given": [3, 9], "latest": [9]}


def test_a_start_behind_the_end(pond, topic):
    topic.send({"v": 1}, {"v": 2})
    offsets = {topic.name: {"0": 3}}
    with pytest.raises(MillpondError) as refused:
        pond.execute("CREATE STREAM s (v INTEGER) " + topic.using(start=json.dumps(offsets)))
    assert f'Partition 0 of topic "{topic.name}" ends at 2: it has no 3.' == refused.value.detail
    offsets[topic.name]["0"] = 2  # that is where the next record will be
    pond.execute("CREATE STREAM s (v INTEGER) " + topic.using(start=json.dumps(offsets)))


def test_a_partition_that_is_added_is_read_from_its_first_record(pond, topic, eventually):
    pond.execute("CREATE STREAM s (v INTEGER) " + topic.using(start="latest"))
    topic.add_partitions(3)
    topic.send({"v": 1}, partition=2)
    eventually(lambda: pond.ask("SELECT v FROM s").rows() == [(1,)])


def test_records_of_a_partition_that_is_added_are_not_late(pond, topic, eventually):
    pond.execute(READINGS + topic.using())
    topic.send(reading(1))
    topic.send(reading(1), partition=1)
    pond.catch_up()
    topic.add_partitions(3)
    topic.send(*[reading(minute) for minute in range(2, 9)], partition=2)
    topic.send(reading(9))
    topic.send(reading(9), partition=1)
    eventually(lambda: heartbeat(pond) == "2026-03-01 10:08:00")
    assert pond.ask("SELECT count(*) FROM s").rows() == [(11,)]
    assert rejects(pond) == []


def test_records_of_transactions(pond, topic):
    """What was aborted is not read, and marks of transactions are no records."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": topic.broker.bootstrap, "transactional.id": topic.name}
    )
    producer.init_transactions(60)
    for value, commits in ((1, True), (2, False), (3, True)):
        producer.begin_transaction()
        producer.produce(topic.name, json.dumps({"v": value}).encode(), partition=0)
        producer.flush(30)
        producer.commit_transaction(60) if commits else producer.abort_transaction(60)
    pond.execute("CREATE STREAM s (v INTEGER) " + topic.using())
    pond.catch_up()
    assert pond.ask("SELECT v FROM s ORDER BY v").rows() == [(1,), (3,)]


@pytest.mark.parametrize("on_loss", ["stop", pytest.param("continue", marks=pytest.mark.slow)])
def test_records_that_are_gone_are_named(open_store, topic, eventually, on_loss):
    pond = open_store()
    # All that is gone is named, however little of it a batch would have had.
    most = {"max_records": "1"} if on_loss == "stop" else {}
    pond.execute("CREATE STREAM s (v INTEGER) " + topic.using(on_loss=on_loss, **most))
    topic.send({"v": 0})
    pond.catch_up()
    pond.close()
    topic.send({"v": 1}, {"v": 2}, {"v": 3})
    topic.delete_before(3)
    pond = open_store()
    if on_loss == "stop":
        reason = eventually(lambda: pond.status()["streams"][0]["reason"])
        lost = f'Records 1 to 2 of partition 0 of topic "{topic.name}" were gone'
        assert lost in reason
        assert pond.ask("SELECT v FROM s").rows() == [(0,)]
        return
    pond.catch_up()
    assert pond.ask("SELECT v FROM s ORDER BY v").rows() == [(0,), (3,)]
    ((reason, _),) = rejects(pond)
    assert reason.startswith("records 1 to 2 were gone before they were read (topic")


@pytest.mark.parametrize("on_loss", ["stop", pytest.param("continue", marks=pytest.mark.slow)])
def test_a_topic_that_is_made_anew_is_another_one(open_store, topic, eventually, on_loss):
    """Its records have the offsets of those that were read, and are none of them."""
    topic.send({"v": 1}, {"v": 2})
    pond = open_store()
    pond.execute("CREATE STREAM s (v INTEGER) " + topic.using(on_loss=on_loss))
    pond.catch_up()
    pond.close()
    topic.make_anew()
    topic.send({"v": 3}, {"v": 4}, {"v": 5})
    pond = open_store()
    if on_loss == "stop":
        reason = eventually(lambda: pond.status()["streams"][0]["reason"])
        assert f'The topic "{topic.name}" was deleted and made anew' in reason
        assert pond.ask("SELECT v FROM s ORDER BY v").rows() == [(1,), (2,)]
        return
    pond.catch_up()
    assert pond.ask("SELECT v FROM s ORDER BY v").rows() == [(v,) for v in range(1, 6)]
    ((reason, _),) = rejects(pond)
    assert reason.startswith("the topic was made anew, records from 2 on were gone")


@pytest.mark.parametrize("on_loss", ["stop", "continue"])
def test_a_partition_whose_records_the_broker_lost(open_store, topic, eventually, on_loss):
    """What comes after has the offsets of what was read, and must not be taken for it."""
    topic.send({"v": 1}, {"v": 2}, {"v": 3})
    pond = open_store()
    pond.execute("CREATE STREAM s (v INTEGER) " + topic.using(on_loss=on_loss))
    pond.catch_up()
    pond.close()
    topic.lose(0)
    topic.send({"v": 4})
    pond = open_store()
    if on_loss == "stop":
        reason = eventually(lambda: pond.status()["streams"][0]["reason"])
        lost = f'Partition 0 of topic "{topic.name}" was read up to 3, and has what was read only'
        assert f"{lost} up to 0: the brokers have lost records" in reason
        return
    eventually(lambda: rejects(pond))
    topic.send({"v": 5})
    pond.catch_up()
    assert pond.ask("SELECT v FROM s ORDER BY v").rows() == [(v,) for v in range(1, 6)]
    ((reason, _),) = rejects(pond)
    assert reason.startswith("records 0 to 2 were lost after they were read")


@pytest.mark.parametrize("on_loss", ["stop", "continue"])
def test_records_that_came_in_the_places_of_others(open_store, topic, eventually, on_loss):
    """The partition is not shorter than what was read of it; only the leaders' epochs tell."""
    topic.send({"v": 1}, {"v": 2}, {"v": 3})
    pond = open_store()
    pond.execute("CREATE STREAM s (v INTEGER) " + topic.using(on_loss=on_loss))
    pond.catch_up()
    pond.close()
    topic.lose(0)
    topic.send(*({"v": v} for v in range(4, 9)))
    pond = open_store()
    if on_loss == "stop":
        reason = eventually(lambda: pond.status()["streams"][0]["reason"])
        lost = f'Partition 0 of topic "{topic.name}" was read up to 3, and has what was read only'
        assert f"{lost} up to 0: the brokers have lost records" in reason
        assert pond.ask("SELECT v FROM s ORDER BY v").rows() == [(1,), (2,), (3,)]
        return
    eventually(lambda: rejects(pond))
    pond.catch_up()
    topic.send({"v": 9})
    pond.catch_up()
    assert pond.ask("SELECT v FROM s ORDER BY v").rows() == [(v,) for v in range(1, 10)]
    ((reason, _),) = rejects(pond)
    assert reason.startswith("records 0 to 2 were lost after they were read; what")
    assert "comes in their places is read (topic" in reason


def test_a_broker_that_dies_and_comes_back(pond, topic, eventually):
    pond.execute("CREATE STREAM s (v INTEGER) " + topic.using())
    topic.send({"v": 1})
    pond.catch_up()
    topic.broker.kill()
    topic.broker.start()
    topic.send({"v": 2})
    eventually(lambda: pond.ask("SELECT v FROM s ORDER BY v").rows() == [(1,), (2,)])
    eventually(lambda: pond.status()["streams"][0]["state"] == "running")


def test_a_batch_has_no_more_records_than_it_may(bounded, topic):
    topic.send(*[{"v": v} for v in range(25)])
    bounded.execute("CREATE STREAM s (v INTEGER) " + topic.using(max_records="10"))
    assert bounded.ask("SELECT count(*), count(DISTINCT v) FROM s").rows() == [(25, 25)]
    kinds = [kind for _, kind, _ in bounded._components.log.epochs()]
    assert kinds.count("batch") == 3


_LIFE = """
import sys
import millpond
with millpond.open(sys.argv[1], master="local[1]") as pond:
    if len(sys.argv) > 2:
        pond.execute(sys.argv[2])
    print("up", flush=True)
    sys.stdin.read()
"""


def test_every_record_once_across_a_kill(open_store, tmp_path, topic):
    """Millpond is killed while it reads; the pond that is opened next has each record once."""
    create = "CREATE STREAM s (v INTEGER) " + topic.using(max_records="50")
    topic.send(*[{"v": v} for v in range(400)])
    command = [sys.executable, "-c", _LIFE, str(tmp_path / "store"), create]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as life:
        assert life.stdout is not None
        assert life.stdout.readline() == b"up\n"
        topic.send(*[{"v": v} for v in range(400, 1_000)], partition=1)
        time.sleep(1)
        life.kill()
    pond = open_store()
    pond.catch_up()
    ((count, distinct, least, most),) = pond.ask(
        "SELECT count(*), count(DISTINCT v), min(v), max(v) FROM s"
    ).rows()
    assert (count, distinct, least, most) == (1_000, 1_000, 0, 999)


def test_a_topic_that_has_too_much_is_shed_and_all_of_it_is_counted(pond, topic):
    topic.send(*[reading(minute) for minute in range(60)], b"no JSON", partition=1)
    with_options = " WITH (overload = 'shed random')"
    pond.execute(READINGS + topic.using(max_records="10") + with_options)
    pond.catch_up()
    assert pond.ask("SELECT max(at) FROM s").exact is False
    ((kept,),) = pond.ask("SELECT count(*) FROM s").rows()
    ((shed,),) = pond.ask("SELECT sum(elements)::BIGINT FROM s$shed").rows()
    assert (kept + shed, len(rejects(pond))) == (60, 1)
    steps = pond.ask("SELECT after FROM system$actions WHERE action = 'shed'").rows()
    assert steps[0] == (0.9,)
    assert steps[-1] == (0.0,)
    # Less waits now than may: nothing more is shed.
    topic.send(*[reading(59) for _ in range(10)], partition=1)
    pond.catch_up()
    assert pond.ask("SELECT count(*) FROM s").rows() == [(kept + 10,)]
