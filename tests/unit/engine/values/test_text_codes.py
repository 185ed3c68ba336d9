"""The regions of texts: how many cuts are at or below each, by their bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.values.text_codes import TextCoder

TEXTS = ["", "a", "ab", "abc", "abcdefgh", "abcdefghi", "b", "zz", "ü", "prefix of many", "prefix"]


@pytest.mark.parametrize(
    "cuts",
    [
        [],
        ["b"],
        ["", "a", "abcdefgh", "ü"],
        ["prefix of all", "prefix of many", "prefix of some"],
        ["abcdefgh", "abcdefgh1", "abcdefgh2", "abcdefghi"],  # equal in the bytes looked at first
        [f"{n:04}" for n in range(500)],
    ],
)
def test_texts(cuts: list[str]) -> None:
    ordered = sorted(cut.encode() for cut in cuts)
    texts = [*TEXTS, *cuts]
    column = pa.array(texts, pa.string())
    _, offsets, data = column.buffers()
    codes = np.full(len(texts), -1, np.int32)
    TextCoder.of(ordered).code(
        np.frombuffer(data, np.uint8), np.frombuffer(offsets, np.int32)[: len(texts) + 1], codes
    )
    assert codes.tolist() == [sum(cut <= text.encode() for cut in ordered) for text in texts]
