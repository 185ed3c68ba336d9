"""Streams that read Kafka: every record once, in order, with rejects that name their record."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from millpond.errors import MillpondError

pytestmark = pytest.mark.spark


@pytest.fixture
def topic(broker) -> Any:
    """Makes topics of names of their own, and writes to them."""
    return Topic(broker)


class Topic:
    """A topic of the test, and a producer of its records."""

    def __init__(self, broker: Any, partitions: int = 2) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        self.broker = broker
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.create(NewTopic(self.name, partitions, 1))
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})

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
        f"malformed row: it does not fit the declared columns {place}2)",
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
