"""Ranges of Kafka's records: how far a batch goes, and who reads what of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.runtime.kafka.options import kafka_options
from millpond.runtime.kafka.read_range import OffsetRange
from millpond.runtime.spark import kafka_source
from millpond.runtime.spark.kafka_source import (
    EPOCHS,
    IDS,
    WAITING,
    RangesReader,
    deal_ranges,
    limit_offsets,
)

numbers = st.integers(0, 50_000)
ranges = st.lists(st.tuples(numbers, numbers), max_size=6).map(
    lambda pairs: [OffsetRange("t", n, min(p), max(p)) for n, p in enumerate(pairs)]
)


@given(ranges, st.integers(1, 8))
def test_every_record_is_dealt_once_and_in_order(given: list[OffsetRange], slots: int) -> None:
    dealt = [part for share in deal_ranges(given, slots) for part in share]
    for whole in given:
        own = [part for part in dealt if part.partition == whole.partition]
        assert own[0].first == whole.first
        assert own[-1].stop == whole.stop
        assert [part.stop for part in own[:-1]] == [part.first for part in own[1:]]
    assert len(deal_ranges(given, slots)) <= slots + 1


def test_a_range_whose_beginning_is_unknown_stays_whole() -> None:
    ((found,),) = deal_ranges([OffsetRange("t", 0, -1, 900_000)], 4)
    assert (found.first, found.stop) == (-1, 900_000)


@pytest.mark.parametrize(
    ("start", "ends", "most", "limited"),
    [
        ({"t": {"0": 10}}, {"t": {"0": 20}}, 100, {"t": {"0": 20}}),
        ({"t": {"0": 10}}, {"t": {"0": 5}}, 100, {"t": {"0": 10}}),  # the brokers know less
        ({"t": {"0": 10, "1": 4}}, {"t": {"0": 20}}, 100, {"t": {"0": 20, "1": 4}}),
        ({}, {"t": {"0": 1_000, "1": 0}}, 10, {"t": {"0": 10, "1": 0}}),
    ],
)
def test_a_batch_ends_where_it_has_enough(
    start: dict[str, dict[str, int]],
    ends: dict[str, dict[str, int]],
    most: int,
    limited: dict[str, dict[str, int]],
) -> None:
    assert limit_offsets(start, ends, most) == limited


def test_an_offset_says_what_waited_and_is_no_batch_by_that_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"bootstrap": "b:1", "topic": "t", "format": "json", "max_records": "100"}
    options = kafka_options(StreamDef(0, "s", Schema(()), source=SourceDef("kafka", given)))
    reader = RangesReader(options, {"t": {"0": 50}}, 2)
    monkeypatch.setattr(reader, "_ask", lambda: {"t": {"0": 200, "1": 30}})
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first[WAITING] == {"all": 180, "left": 180 - 101}
    ranges = [r for part in reader.partitions(reader.initialOffset(), first) for r in part.value]
    assert sum(r.stop - max(r.first, 0) for r in ranges) == 101
    assert {r.topic for r in ranges} == {"t"}
    second = reader.latestOffset(first, limit)
    assert second[WAITING] == {"all": 79, "left": 0}
    assert reader.latestOffset(second, limit) is second
    assert [r.first for part in reader.partitions(first, second) for r in part.value] == [134, 17]


@pytest.mark.parametrize("on_loss", ["stop", "continue"])
def test_a_topic_that_was_made_anew_is_read_from_its_first_record_or_stops_the_stream(
    monkeypatch: pytest.MonkeyPatch, on_loss: str
) -> None:
    given = {"bootstrap": "b:1", "topic": "t,u", "format": "json", "on_loss": on_loss}
    options = kafka_options(StreamDef(0, "s", Schema(()), source=SourceDef("kafka", given)))
    start = {"t": {"0": 50}, "u": {"0": 7}, IDS: {"t": "old", "u": "same"}}
    reader = RangesReader(options, start, 2)
    monkeypatch.setattr(reader, "_ask", lambda: {"t": {"0": 60}, "u": {"0": 7}})
    reader._ids = {"t": "new", "u": "same"}
    limit = reader.getDefaultReadLimit()
    if on_loss == "stop":
        with pytest.raises(MillpondError, match="DATA-502") as refused:
            reader.latestOffset(start, limit)
        assert '"t" was deleted and made anew' in str(refused.value.detail)
        return
    end = reader.latestOffset(start, limit)
    assert end[WAITING] == {"all": 60, "left": 0}
    found = [r for part in reader.partitions(start, end) for r in part.value]
    assert [(r.topic, r.old_end, r.stop) for r in found] == [("t", 50, 60), ("u", None, 7)]
    assert reader.latestOffset(end, limit) is end


@pytest.mark.parametrize("on_loss", ["stop", "continue"])
def test_a_partition_that_became_shorter_stops_the_stream_or_is_read_from_its_end(
    monkeypatch: pytest.MonkeyPatch, on_loss: str
) -> None:
    """What comes in the places of records that were read would else be passed over in silence."""
    given = {"bootstrap": "b:1", "topic": "t", "format": "json", "on_loss": on_loss}
    options = kafka_options(StreamDef(0, "s", Schema(()), source=SourceDef("kafka", given)))
    start = {"t": {"0": 9, "1": 4}}
    reader = RangesReader(options, start, 2)
    monkeypatch.setattr(kafka_source, "_SHORT_SECONDS", 0.05)
    monkeypatch.setattr(reader, "_ask", lambda: {"t": {"0": 5, "1": 6}})
    limit = reader.getDefaultReadLimit()
    if on_loss == "stop":
        with pytest.raises(MillpondError, match="DATA-502") as refused:
            reader.latestOffset(start, limit)
        assert 'Partition 0 of topic "t" was read up to 9 and ends at 5' in str(
            refused.value.detail
        )
        return
    end = reader.latestOffset(start, limit)
    assert end["t"] == {"0": 5, "1": 6}
    found = [r for part in reader.partitions(start, end) for r in part.value]
    assert [(r.partition, r.first, r.stop) for r in found] == [(0, 9, 5), (1, 4, 6)]
    assert reader.latestOffset(end, limit) is end


def test_a_partition_that_is_short_for_a_moment_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"bootstrap": "b:1", "topic": "t", "format": "json"}
    options = kafka_options(StreamDef(0, "s", Schema(()), source=SourceDef("kafka", given)))
    start = {"t": {"0": 9}}
    reader = RangesReader(options, start, 2)
    asked = iter([{"t": {"0": 5}}, {"t": {"0": 8}}, {"t": {"0": 12}}])
    monkeypatch.setattr(kafka_source, "_SHORT_SECONDS", 0.2)
    monkeypatch.setattr(reader, "_ask", lambda: next(asked))
    assert reader.latestOffset(start, reader.getDefaultReadLimit())["t"] == {"0": 12}


def test_commas_alone_name_no_topic() -> None:
    given = {"bootstrap": "b:1", "topic": " , ", "format": "json"}
    with pytest.raises(MillpondError, match="the Kafka source has no topic"):
        kafka_options(StreamDef(0, "s", Schema(()), source=SourceDef("kafka", given)))


class Brokers:
    """Topics that are asked for; each question first lets something happen."""

    def __init__(self, *happens: Callable[[Brokers], object]) -> None:
        self.ends = {"0": 5}
        self.id = "first"
        self.epochs = {"t": {"0": 3}}
        self.lost: dict[str, dict[str, int]] = {}
        self.asked: list[object] = []
        self._happens = iter(happens)

    def latest(self, partitions: list[tuple[str, int]]) -> dict[str, dict[str, int]]:
        found = {str(number): self.ends[str(number)] for _, number in partitions}
        next(self._happens, lambda _: None)(self)
        return {"t": found} if found else {}

    def list_partitions(self) -> list[tuple[str, int]]:
        return [("t", int(number)) for number in self.ends]

    def find_lost(self, read: object) -> dict[str, dict[str, int]]:
        self.asked.append(read)
        return self.lost

    def find_ids(self) -> dict[str, str]:
        return {"t": self.id}


def reader_of(brokers: Brokers) -> RangesReader:
    given = {"bootstrap": "b:1", "topic": "t", "format": "json", "on_loss": "continue"}
    options = kafka_options(StreamDef(0, "s", Schema(()), source=SourceDef("kafka", given)))
    reader = RangesReader(options, {"t": {"0": 0}}, 2)
    reader._topics = cast(Any, brokers)
    return reader


def test_a_partition_that_is_added_is_in_the_batch_with_what_came_before_it() -> None:
    """Else the batch's heartbeat would make them late."""

    def nothing(_: Brokers) -> None: ...

    def add(brokers: Brokers) -> None:
        brokers.ends |= {"0": 6, "1": 3}

    reader = reader_of(Brokers(nothing, nothing, add))
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first["t"] == {"0": 5}
    reader._topics.latest([])  # something is written meanwhile
    assert reader.latestOffset(first, limit)["t"] == {"0": 6, "1": 3}


def elect(brokers: Brokers) -> None:
    brokers.ends, brokers.epochs, brokers.lost = {"0": 30_000}, {"t": {"0": 4}}, {"t": {"0": 2}}


def test_what_another_leader_has_lost_is_read_from_where_it_was_lost() -> None:
    reader = reader_of(Brokers(lambda _: None, lambda _: None, elect))
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first[EPOCHS] == {"t": {"0": 3}}
    reader._topics.latest([])  # a leader is elected meanwhile
    second = reader.latestOffset(first, limit)
    assert second[WAITING] == {"all": 29_998, "left": 0}
    third = reader.latestOffset(second, limit)
    assert third is second
    assert cast(Any, reader._topics).asked == [{("t", 0): (5, 3)}]
    for start, end, read in (({"t": {"0": 0}}, first, [(0, -1)]), (first, second, [(2, 5)])):
        parts = reader.partitions(start, end)
        found = [r for part in parts for r in part.value]
        assert [(r.first, r.read) for r in found][:1] == read
        assert [r.read for r in found][1:] == [-1] * (len(found) - 1)


def test_a_partition_that_became_shorter_is_read_from_where_it_lost_records() -> None:
    def shrink(brokers: Brokers) -> None:
        elect(brokers)
        brokers.ends = {"0": 4}

    reader = reader_of(Brokers(lambda _: None, lambda _: None, shrink))
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    reader._topics.latest([])
    second = reader.latestOffset(first, limit)
    ((found,),) = [part.value for part in reader.partitions(first, second)]
    assert (found.first, found.stop, found.read) == (2, 4, 5)


def test_another_leader_that_has_all_that_was_read_is_asked_once() -> None:
    def follow(brokers: Brokers) -> None:
        brokers.epochs = {"t": {"0": 4}}

    reader = reader_of(Brokers(lambda _: None, lambda _: None, follow))
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    reader._topics.latest([])
    for _ in range(3):
        assert reader.latestOffset(first, limit) is first
    assert len(cast(Any, reader._topics).asked) == 1


def test_ends_are_those_of_the_topic_whose_id_is_noted() -> None:
    def remake(brokers: Brokers) -> None:
        brokers.ends, brokers.id = {"0": 2}, "second"

    reader = reader_of(Brokers(lambda _: None, remake))
    offset = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert (offset["t"], offset[IDS]) == ({"0": 2}, {"t": "second"})


@pytest.mark.parametrize("module", ["kafka_source", "history_source"])
def test_the_process_that_asks_the_brokers_loads_little(module: str) -> None:
    """There is one for each stream, and twenty that start together share the cores."""
    heavy = ("sqlglot", "duckdb", "httpx", "millpond.catalog.objects")
    code = (
        f"import sys, millpond.runtime.spark.{module}\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
