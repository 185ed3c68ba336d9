"""Records of a compacted topic that is kept equal to an answer, against who reads the topic."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.service.sinks.test_keyed_rows import events

from millpond.service.sinks.kafka_upserts import Record, Upserts
from millpond.service.sinks.sender import Delivery, DeliveryError


def changes(*given: tuple[int, str, Any, int]) -> Delivery:
    return Delivery("3f2a9c.7.1", "s", "c", events(*given), [])


def answer(rows: dict[Any, int], kind: pa.DataType | None = None) -> Delivery:
    table = pa.table({"k": pa.array(list(rows), kind), "v": pa.array(list(rows.values()))})
    return Delivery("3f2a9c.7.1", "s", "c", [], [], table)


def read(topic: list[Record]) -> dict[Any, int]:
    """What a reader has that keeps the last record of each key."""
    found: dict[bytes, bytes] = {}
    for name, value in topic:
        if value is None:
            found.pop(name)  # a tombstone of nothing would be a defect
        else:
            found[name] = value
    rows = {json.loads(name)["k"]: json.loads(value) for name, value in found.items()}
    assert all(row["k"] == k for k, row in rows.items())
    return {k: row["v"] for k, row in rows.items()}


STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 5)), max_size=40)


@given(STEPS, st.lists(st.sampled_from(["deliver", "restart", "fail", "answer"]), max_size=12))
def test_the_topic_is_the_answer_after_every_delivery(
    steps: list[tuple[int, int]], acts: list[str]
) -> None:
    """Each step gives a key another value, or (-1) none; deliveries have some steps each."""
    topic: list[Record] = []
    upserts = Upserts(("k",), "t", topic)
    rows: dict[int, int] = {}
    acts = [*acts, "deliver"]
    share = -(-len(steps) // len(acts))
    for number, act in enumerate(acts):
        made: list[tuple[int, str, Any, int]] = []
        for at, (key, value) in enumerate(steps[number * share : (number + 1) * share]):
            if key in rows:
                made.append((at, "-", key, rows.pop(key)))
            if value >= 0:
                rows[key] = value
                made.append((at, "+", key, value))
        delivery = answer(rows, pa.int64()) if act == "answer" else changes(*made)
        if act == "restart":
            upserts = Upserts(("k",), "t", topic)
        if act == "fail":
            upserts.write(delivery, is_first=False)  # and nothing is committed
            upserts = Upserts(("k",), "t", topic)
        topic += upserts.write(delivery, is_first=False)
        upserts.settle()
        assert read(topic) == rows
        assert len(upserts) == len(rows)


def test_a_key_that_another_row_has_stops_the_sink() -> None:
    upserts = Upserts(("k",), "t", [(b'{"k":1}', b'{"k":1,"v":2}')])
    with pytest.raises(DeliveryError, match="two rows of the answer have the key k = 1") as stopped:
        upserts.write(changes((0, "+", 1, 5)), is_first=False)
    assert stopped.value.is_final


def test_rows_that_somebody_took_away_stop_the_sink() -> None:
    with pytest.raises(DeliveryError, match="lacks rows that this sink has written") as stopped:
        Upserts(("k",), "t", []).write(changes((0, "-", 1, 5)), is_first=False)
    assert stopped.value.is_final


def test_the_first_answer_goes_into_an_empty_topic_only() -> None:
    upserts = Upserts(("k",), "t", [(b"x", b"1")])
    with pytest.raises(DeliveryError, match="rows that this sink has not written") as stopped:
        upserts.write(answer({1: 2}), is_first=True)
    assert stopped.value.is_final
    emptied = Upserts(("k",), "t", [(b"x", b"1"), (b"x", None)])
    assert emptied.write(answer({1: 2}), is_first=True) == [(b'{"k":1}', b'{"k":1,"v":2}')]


def test_zeros_have_one_key_whatever_their_sign() -> None:
    upserts = Upserts(("k",), "t", [])
    upserts.write(changes((0, "+", 0.0, 1)), is_first=True)
    upserts.settle()
    records = upserts.write(changes((1, "-", -0.0, 1), (1, "+", -0.0, 2)), is_first=False)
    assert [name for name, _ in records] == [b'{"k":0.0}']


def test_a_key_that_is_null_stops_the_sink() -> None:
    with pytest.raises(DeliveryError, match="NULL in its key"):
        Upserts(("k",), "t", []).write(answer({None: 2}, pa.int64()), is_first=True)
