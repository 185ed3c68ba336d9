"""A journal record: comes back as it was written, and never if a byte of it is another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.state.journal.record import decode_body, encode_record, read_record

values = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary() | st.floats(0, 1)
statements = st.lists(st.tuples(st.text(), st.lists(st.lists(values))))


@given(statements, st.integers(0, 2**64 - 1), st.binary(max_size=40))
def test_a_record_comes_back(written: list, number: int, before: bytes) -> None:
    data = before + encode_record("3f2a9c", number, written)
    found = read_record(memoryview(data), len(before), "3f2a9c")
    assert found is not None
    assert found[0] == number
    assert decode_body(found[1]) == written


RECORD = encode_record("3f2a9c", 7, [("INSERT INTO t VALUES (?, ?)", [[1, b"\x00\xff"]])])


@pytest.mark.parametrize("place", range(len(RECORD)))
def test_a_changed_byte_makes_it_no_record(place: int) -> None:
    damaged = bytearray(RECORD)
    damaged[place] ^= 1
    assert read_record(memoryview(damaged), 0, "3f2a9c") is None


def test_a_record_that_is_cut_off_is_no_record() -> None:
    for length in range(len(RECORD)):
        assert read_record(memoryview(RECORD[:length]), 0, "3f2a9c") is None


def test_a_record_of_another_store_is_no_record() -> None:
    assert read_record(memoryview(RECORD), 0, "3f2a9c") is not None
    assert read_record(memoryview(RECORD), 0, "3f2a9d") is None


def test_only_what_json_and_bytes_hold_is_written() -> None:
    with pytest.raises(TypeError):
        encode_record("3f2a9c", 1, [("x", [[object()]])])
