"""Arrow streams that stand for more than they weigh."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.service.ingest.arrow_streams import plain_bytes, read_arrow

LARGEST = 1_000_000


def written(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


LONG = "x" * 10_000
TIMES = 200
ZEROS = pa.array(np.zeros(TIMES, np.int32))
ONCE = pa.DictionaryArray.from_arrays(ZEROS, pa.array([LONG]))
SHAPES = {
    "a dictionary": ONCE,
    "a dictionary of views": pa.DictionaryArray.from_arrays(
        ZEROS, pa.array([LONG], pa.string_view())
    ),
    "a dictionary of lists": pa.DictionaryArray.from_arrays(ZEROS, pa.array([[LONG]])),
    "a run": pa.RunEndEncodedArray.from_arrays(pa.array([TIMES], pa.int32()), pa.array([LONG])),
    "a dictionary in a list": pa.ListArray.from_arrays(pa.array([0, TIMES], pa.int32()), ONCE),
    "a dictionary in a struct": pa.StructArray.from_arrays([ONCE], ["x"]),
    "views of a list": pa.ListViewArray.from_arrays(
        ZEROS, pa.array([1000] * TIMES, pa.int32()), pa.array(np.zeros(1000))
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_values_written_once_count_each_time(shape: str) -> None:
    data = written(pa.table({"a": SHAPES[shape]}))
    assert len(data) < 100_000
    with pytest.raises(ValueError, match="more than 1,000,000 bytes"):
        read_arrow(data, LARGEST)
    assert read_arrow(data, 2**40)["a"].chunk(0).equals(SHAPES[shape])


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("kind", ["plain", "dictionary"])
def test_what_is_compressed_counts_unpacked(compression: str, kind: str) -> None:
    values = pa.array([LONG[: 9_999 - n % 3] + str(n) for n in range(TIMES)])
    column = values if kind == "plain" else values.dictionary_encode()
    table = pa.table({"a": column})
    data = written(table, compression)
    assert len(data) < 100_000
    with pytest.raises(ValueError, match="more than 1,000,000 bytes"):
        read_arrow(data, LARGEST)
    assert read_arrow(data, 10 * LARGEST).equals(table)


def test_nothing_is_unpacked_before_it_is_measured() -> None:
    before = pa.total_allocated_bytes()
    data = written(pa.table({"a": pa.array(np.zeros(4_000_000))}), "zstd")
    pool = pa.default_memory_pool()
    peak = pool.max_memory()
    with pytest.raises(ValueError, match="more than"):
        read_arrow(data, LARGEST)
    assert pa.total_allocated_bytes() - before < LARGEST
    assert pool.max_memory() == peak


def test_plain_rows_are_what_they_are() -> None:
    table = pa.table({"a": ["x", None, "yz"], "b": [[1], None, []], "c": [{"d": 1}, None, None]})
    for compression in (None, "zstd"):
        assert read_arrow(written(table, compression), 10_000).equals(table)
    views = pa.array(["x", None, LONG], pa.string_view())
    assert plain_bytes(views) == 1 + len(LONG)
    assert plain_bytes(views.slice(1)) == len(LONG)
    assert plain_bytes(ONCE.slice(50)) == (TIMES - 50) * len(LONG)
    assert plain_bytes(SHAPES["a run"].slice(50)) == (TIMES - 50) * len(LONG)
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, 0], pa.int8()), pa.array(["abc"]))
    assert plain_bytes(nothing) == 3
