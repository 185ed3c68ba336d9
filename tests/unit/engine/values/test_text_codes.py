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
        [f"id {n * 7919:09}" for n in range(300)],  # nine digits: two are not in the head
    ],
)
def test_texts(cuts: list[str]) -> None:
    check(cuts, [*TEXTS, *cuts])


@pytest.mark.parametrize("alphabet", ["ab", "0123456789", "azü\x7f", "\0a"], ids=len)
def test_texts_of_bytes_that_no_cut_has(alphabet: str) -> None:
    random = np.random.default_rng(len(alphabet))

    def words(symbols: str, number: int) -> list[str]:
        drawn = [random.choice(list(symbols), random.integers(0, 11)) for _ in range(number)]
        return sorted({"".join(word) for word in drawn})

    cuts = words(alphabet, 300)
    texts = [*words(alphabet, 200), *words(alphabet + "1b \x01", 400)]
    check([f"p{cut}" for cut in cuts], [*TEXTS, *texts, *[f"p{text}" for text in texts]])


def check(cuts: list[str], texts: list[str]) -> None:
    ordered = sorted(cut.encode() for cut in cuts)
    column = pa.array(texts, pa.string())
    _, offsets, data = column.buffers()
    codes = np.full(len(texts), -1, np.int32)
    TextCoder.of(ordered).code(
        np.frombuffer(data, np.uint8), np.frombuffer(offsets, np.int32)[: len(texts) + 1], codes
    )
    assert codes.tolist() == [sum(cut <= text.encode() for cut in ordered) for text in texts]
