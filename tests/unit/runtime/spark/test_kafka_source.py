"""Ranges of Kafka's records: how far a batch goes, and who reads what of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.runtime.kafka.options import kafka_options
from millpond.runtime.kafka.read_range import OffsetRange
from millpond.runtime.spark.kafka_source import (
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
