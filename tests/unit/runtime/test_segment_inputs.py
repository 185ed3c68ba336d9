"""Elements of segments that are read slice by slice are those of the segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.dataflow.inputs import FEW
from millpond.runtime.advance_job import AdvanceJob, SegmentFile, Sink
from millpond.runtime.segment_inputs import SegmentInputs, read_back
from millpond.state.arrow_file import write_arrow
from millpond.state.segment_file import encode_elements


def make_job(store: Path, instants: list[Any], since: int | None = None) -> AdvanceJob:
    """A job of a stream with a segment for each list of instants; `n` numbers all elements."""
    files, count = [], 0
    for number, some in enumerate(instants):
        at = np.array(some, np.int64)
        places = np.arange(len(at), dtype=np.int64)
        table = pa.table({"n": places + count, "__ts": at, "__seq": places})
        file = write_arrow(store / f"{number}.arrow", encode_elements(table))
        runs = ((0, count),)
        files.append(SegmentFile(f"{number}.arrow", file.checksum, runs, int(at[0]), int(at[-1])))
        count += len(at)
    sink: Any = Sink(1, None, None)  # type: ignore[arg-type]
    streams = {"s": tuple(files)}
    return AdvanceJob(
        str(store), "life", "group", -1, 0, 10**6, 0, {"s": since}, streams, {}, (sink,)
    )


def read_all(inputs: SegmentInputs, after: int, upto: int, size: int) -> tuple[pa.Table, int]:
    parts, slices = [], 0
    while after < upto:
        end = inputs.find_end(after, upto, size)
        assert after < end <= upto
        part = inputs.read("s", after, end)
        assert part is not None
        parts.append(part)
        after, slices = end, slices + 1
    return pa.concat_tables(parts), slices


@pytest.mark.parametrize("since", [None, 3_000])
def test_slices_are_the_elements_in_order(tmp_path: Path, since: int | None) -> None:
    whole = np.arange(FEW)
    job = make_job(tmp_path, [whole[::2] * 2, np.repeat(whole, 2)[100:]], since)
    inputs = SegmentInputs(job, {"s": ("n",)}, {}, -1, 3_500)
    once, slices = read_all(inputs, -1, 3_500, 10**9)
    assert slices == 1
    cut, slices = read_all(inputs, -1, 3_500, 4_000)
    assert slices > 10
    assert cut == once
    order = once.select(["__ts", "__seq"])
    assert order == order.sort_by([("__ts", "ascending"), ("__seq", "ascending")])
    assert once["__seq"] == once["n"]
    assert inputs.measure(-1, 3_500) > inputs.measure(3_400, 3_500) > 0
    assert inputs.read("s", 10**5, 10**6).num_rows == 0  # type: ignore[union-attr]


def test_few_elements_are_one_slice_and_are_not_measured(tmp_path: Path) -> None:
    job = make_job(tmp_path, [[1, 2, 5], [2, 9]])
    inputs = SegmentInputs(job, {"s": ("n",)}, {"r": pa.table({"__at": [1]})}, -1, 9)
    assert inputs.find_end(-1, 9, 1) == 9
    assert inputs.measure(-1, 9) == 0
    table = inputs.read("s", 1, 9)
    assert table is not None
    assert table["n"].to_pylist() == [1, 3, 2, 4]
    assert inputs.read("r", -1, 9) == pa.table({"__at": [1]})
    back = [part["n"].to_pylist() for part in read_back(job, {"s": ("n",)}, "s", 4)]
    assert back == [[0, 1], [3]]
