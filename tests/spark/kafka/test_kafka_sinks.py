"""Sinks to Kafka: readers of committed records see every change once, whoever dies when."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.kafka.out_topic import Out, rows_of
from tests.waiting import start_until_there

from millpond.catalog.sink_def import SinkDef
from millpond.errors import MillpondError
from millpond.service.sinks import kafka
from millpond.service.sinks.sender import Delivery, DeliveryError
from millpond.testing.local_runtime import open_local

pytestmark = pytest.mark.spark


@pytest.fixture
def out(broker) -> Out:
    return Out(broker)


def make_sender(options: dict[str, Any], key: tuple[str, ...] = ()) -> kafka.KafkaSender:
    return kafka.KafkaSender(SinkDef(7, "s", "kafka", options, key=key), options)


@pytest.fixture
def senders(out, monkeypatch) -> Iterator[Callable[[], kafka.KafkaSender]]:
    """Makes senders of one sink, whose changes are numbers."""
    monkeypatch.setattr(kafka, "write_changes", lambda changes: changes)
    made: list[kafka.KafkaSender] = []

    def make() -> kafka.KafkaSender:
        made.append(make_sender(out.options))
        return made[-1]

    yield make
    for sender in made:
        sender.close()


def delivery(number: int) -> Delivery:
    """The delivery of a number: two changes."""
    changes: Any = [{"query": "q", "n": 2 * number + k} for k in (0, 1)]
    cursor = f"3f2a9c.feed.{number}"
    return Delivery(f"3f2a9c.7.{number}", "s", cursor, changes, [], received=number - 1)


def send_at_last(sender: kafka.KafkaSender, delivery: Delivery) -> None:
    """Send a delivery as a sink does, again and again until it arrives."""
    for _ in range(20):
        try:
            return sender.send(delivery)
        except DeliveryError as error:
            failure = error
        assert not failure.is_final, failure
    raise failure


def numbers(out: Out) -> list[int]:
    return [change["n"] for change in out.read()]


#: A process that makes deliveries 1, 2, …; before or after the commit of delivery 2 it ends or
#: stops, and it prints how that went on.
_LIFE = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
import test_kafka_sinks as here
from millpond.service.sinks import kafka
kafka.write_changes = lambda changes: changes
sender = here.make_sender(json.loads(sys.argv[2]))
how, place = sys.argv[3:]
sender.send(here.delivery(1))
producer = sender._connection
class Watched:
    def __getattr__(self, name):
        return getattr(producer, name)
    def commit_transaction(self, seconds):
        if place == "before":
            print("there", flush=True)
            os.kill(os.getpid(), getattr(signal, how))
        producer.commit_transaction(seconds)
        if place == "after":
            print("there", flush=True)
            os.kill(os.getpid(), getattr(signal, how))
sender._connection = Watched()
for _ in range(2):
    try:
        sender.send(here.delivery(2))
        print("sent", flush=True)
    except here.DeliveryError as error:
        print(error.is_final, error, flush=True)
"""


def live(out: Out, how: str, place: str) -> subprocess.Popen[str]:
    """Start the process, and return when it is at the place."""
    folder = str(Path(__file__).parent)
    command = [sys.executable, "-c", _LIFE, folder, json.dumps(out.options), how, place]
    return start_until_there(command)


@pytest.mark.parametrize("place", ["after", pytest.param("before", marks=pytest.mark.slow)])
def test_a_sender_that_is_killed(out, senders, place):
    with live(out, "SIGKILL", place) as life:
        assert life.wait(30) == -signal.SIGKILL
    sender = senders()
    for number in (2, 3):
        sender.send(delivery(number))
    assert numbers(out) == [2, 3, 4, 5, 6, 7]


def test_a_zombie_is_fenced(out, senders):
    """A process that stood still while another took over commits nothing when it goes on."""
    with live(out, "SIGSTOP", "before") as zombie:
        try:
            sender = senders()
            for number in (2, 3):
                sender.send(delivery(number))
            zombie.send_signal(signal.SIGCONT)
            assert zombie.stdout is not None
            assert zombie.stdout.readline() == "False the brokers have ended its transaction\n"
            assert zombie.stdout.readline() == "True another Millpond has taken this sink over\n"
            sender.send(delivery(4))
            assert numbers(out) == [2, 3, 4, 5, 6, 7, 8, 9]
            assert len(out.read("read_uncommitted")) == 10
        finally:
            zombie.kill()


def test_a_transaction_that_was_open_for_too_long_is_made_again(out, senders, monkeypatch):
    """Brokers fence its producer, too; nobody has taken the sink over."""
    monkeypatch.setattr(kafka, "_TRANSACTION_MS", 5_000)
    sender = senders()
    sender.send(delivery(1))
    producer = sender._connection

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(producer, name)

        def commit_transaction(self, seconds: float) -> None:
            assert out.has_open_transaction()
            _await(lambda: not out.has_open_transaction())
            producer.commit_transaction(seconds)

    monkeypatch.setattr(sender, "_connection", Slow())
    with pytest.raises(DeliveryError, match="ended its transaction") as failed:
        sender.send(delivery(2))
    assert not failed.value.is_final
    for number in (2, 3):
        sender.send(delivery(number))
    assert numbers(out) == [2, 3, 4, 5, 6, 7]


def test_who_has_taken_over_has_the_sink_before_it_delivers(out, senders, monkeypatch):
    """An earlier sender, fenced, does not take the sink back; it did not time out."""
    earlier, later = senders(), senders()
    earlier.send(delivery(1))
    with monkeypatch.context() as patch:
        patch.setattr(later, "_commit", lambda *_: later._stop_if_interrupted())
        later.send(delivery(2))
    for final in (False, True):
        with pytest.raises(DeliveryError) as stopped:
            earlier.send(delivery(2))
        assert stopped.value.is_final is final
    later._last = kafka.Delivered(
        1, "3f2a9c.feed.1"
    )  # what the patch said it had delivered, it had not
    later.send(delivery(2))
    assert numbers(out) == [2, 3, 4, 5]


def test_a_broker_that_dies_between_deliveries(out, senders):
    sender = senders()
    sender.send(delivery(1))
    out.broker.kill()
    out.broker.start()
    for number in (2, 3):
        send_at_last(sender, delivery(number))
    assert numbers(out) == [2, 3, 4, 5, 6, 7]


def test_a_cursor_that_is_gone_stops_the_sink(out, senders):
    sender = senders()
    sender.send(delivery(1))
    (done,) = out.admin.delete_topics([out.cursors]).values()
    done.result(30)
    _await(lambda: out.cursors not in out.admin.list_topics(timeout=30).topics)
    with pytest.raises(DeliveryError, match="is gone from topic") as stopped:
        senders().send(delivery(2))
    assert stopped.value.is_final
    assert numbers(out) == [2, 3]


def test_a_store_that_is_older_than_the_topic_stops_the_sink(out, senders):
    sender = senders()
    for number in (1, 2, 3):
        sender.send(delivery(number))
    with pytest.raises(DeliveryError, match="older than the topic") as stopped:
        senders().send(delivery(2))
    assert stopped.value.is_final
    send_at_last(sender, delivery(4))  # whose id was taken, but not the sink
    assert numbers(out) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_another_sinks_open_transaction_hides_no_cursor(out, senders):
    """Readers of committed records stop at the first open transaction; the cursor is behind it."""
    from confluent_kafka import Producer

    senders().send(delivery(1))
    other = Producer(
        {
            "bootstrap.servers": out.broker.bootstrap,
            "transactional.id": out.topic,
            "transaction.timeout.ms": 5_000,
        }
    )
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(out.cursors, b"{}", b"another")
    other.flush(30)
    senders().send(delivery(2))
    senders().send(delivery(2))
    assert numbers(out) == [2, 3, 4, 5]


def test_changes_of_a_query_across_restarts(out, tmp_path):
    """From CREATE SINK to the topic: each change once, in order, in JSON."""
    given = ", ".join(f"{name} '{value}'" for name, value in out.options.items())
    for life in range(2):
        with open_local(tmp_path / "store") as pond:
            if not life:
                pond.execute(
                    "CREATE STREAM s (at TIMESTAMP, v INTEGER) TIMESTAMP BY at;"
                    "CREATE QUERY big AS ISTREAM (SELECT v FROM s [NOW] WHERE v > 1);"
                    f"CREATE SINK k USING kafka ({given}) FROM QUERY big;"
                )
            for minute in range(3):
                at = f"2026-03-01 1{life}:0{minute}:00"
                pond.execute(f"INSERT INTO s VALUES ('{at}', {10 * life + minute + 2})")
            pond.execute(f"HEARTBEAT s AT TIMESTAMP '2026-03-01 1{life}:30:00'")
            _await(lambda life=life: len(out.read()) == 3 * (life + 1))
    changes = out.read()
    assert [change["row"]["v"] for change in changes] == [2, 3, 4, 12, 13, 14]
    assert {change["query"] for change in changes} == {"big"}


def test_a_topic_is_kept_equal_to_an_answer(broker, tmp_path):
    """From CREATE SINK … KEY to the topic: over restarts, with rows that come, change and go."""
    out = Out(broker, "compact")
    given = ", ".join(f"{name} '{value}'" for name, value in out.options.items())
    expected = [
        {'{"k":"a"}': {"k": "a", "n": 2}, '{"k":"b"}': {"k": "b", "n": 1}},
        {'{"k":"a"}': {"k": "a", "n": 1}},
    ]
    for life in range(2):
        with open_local(tmp_path / "store") as pond:
            if not life:
                pond.execute(
                    "CREATE STREAM s (at TIMESTAMP, k STRING) TIMESTAMP BY at;"
                    "CREATE QUERY n AS SELECT k, count(*) AS n FROM s [RANGE 1 HOUR] GROUP BY k;"
                    f"CREATE SINK t USING kafka ({given}) FROM QUERY n KEY (k);"
                )
                for key in "aab":
                    pond.execute(f"INSERT INTO s VALUES ('2026-03-01 10:00:00', '{key}')")
                pond.execute("HEARTBEAT s AT TIMESTAMP '2026-03-01 10:30:00'")
            else:
                pond.execute("INSERT INTO s VALUES ('2026-03-01 11:30:00', 'a')")
                pond.execute("HEARTBEAT s AT TIMESTAMP '2026-03-01 11:40:00'")
            _await(lambda life=life: rows_of(out.read_records()) == expected[life])
    assert (b'{"k":"b"}', None) in out.read_records()


def test_a_topic_with_rows_of_others_and_one_that_deletes(broker):
    others = Out(broker, "compact")
    make = pa.table({"k": ["a"], "v": [1]})
    first = Delivery("3f2a9c.7.1", "s", "c", [], [], make)
    sender = make_sender(others.options, ("k",))
    sender.send(first)
    sender.close()
    again = make_sender({**others.options, "cursor_topic": f"{others.cursors}2"}, ("k",))
    for options, said in ((None, "has not written"), (Out(broker).options, "cleanup.policy")):
        refusing = again if options is None else make_sender(options, ("k",))
        with pytest.raises(DeliveryError, match=said) as stopped:
            refusing.send(first)
        assert stopped.value.is_final
        refusing.close()


def test_a_topic_that_was_made_anew_stops_the_sink_that_keeps_it(broker):
    """Rows that do not change are not written again: the topic would lack them for ever."""
    out = Out(broker, "compact")
    answer = pa.table({"k": ["a", "b"], "v": [1, 1]})
    sender = make_sender(out.options, ("k",))
    sender.send(Delivery("3f2a9c.7.1", "s", "c1", [], [], answer))
    sender.send(Delivery("3f2a9c.7.2", "s", "c2", [], [], answer.slice(1), received=1))
    sender.close()
    third = Delivery("3f2a9c.7.3", "s", "c3", [], [], answer, received=2)
    make_sender(out.options, ("k",)).send(third)  # the topic is as the record says
    out.make_anew()
    fourth = Delivery("3f2a9c.7.4", "s", "c4", [], [], received=3)
    with pytest.raises(DeliveryError, match="has 0 rows, and this sink has made them 2") as stopped:
        make_sender(out.options, ("k",)).send(fourth)
    assert stopped.value.is_final


def _await(condition: Callable[[], bool]) -> None:
    import time

    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_options_that_a_sink_cannot_have(tmp_path):
    with open_local(tmp_path / "store") as pond:
        pond.execute("CREATE STREAM s (v INTEGER); CREATE QUERY q AS SELECT v FROM s")
        for given in ("topic 't'", "bootstrap 'b'", "bootstrap 'b', topic 't', url 'http://x'"):
            with pytest.raises(MillpondError) as refused:
                pond.execute(f"CREATE SINK k USING kafka ({given}) FROM QUERY q")
            assert refused.value.code == "CQL-214"


def test_a_record_that_is_too_large_is_named_with_the_limit(out, tmp_path, monkeypatch):
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    monkeypatch.setattr(kafka, "write_changes", lambda changes: changes)
    large: Any = [{"query": "q", "n": 0}, {"query": "q", "n": 1, "text": "x" * 1_200_000}]
    config = tmp_path / "kafka.properties"
    config.write_text("linger.ms=1\n")
    sender = make_sender({**out.options, "config": str(config)})
    sent = Delivery("3f2a9c.7.1", "s", "3f2a9c.feed.1", large, [])
    with pytest.raises(
        DeliveryError, match=r"1,200,0\d\d bytes.*message\.max\.bytes=1000000"
    ) as no:
        sender.send(sent)
    assert not no.value.is_final
    config.write_text("message.max.bytes=3000000\n")
    with pytest.raises(DeliveryError, match=r"raise max\.message\.bytes of the topic") as no:
        sender.send(sent)
    assert not no.value.is_final
    assert out.read() == []
    limit = ConfigEntry("max.message.bytes", "3000000", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, out.topic, incremental_configs=[limit])
    for changed in out.admin.incremental_alter_configs([topic]).values():
        changed.result(30)
    send_at_last(sender, sent)
    sender.close()
    assert numbers(out) == [0, 1]
