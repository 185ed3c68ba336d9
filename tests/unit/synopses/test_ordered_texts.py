"""Labels keep the order of the texts that they are given to, whatever comes and is forgotten."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.synopses.ordered_texts import OrderedTexts
from millpond.synopses.text_numbers import TextNumbers, from_texts, to_texts

TEXTS = st.none() | st.text("ab\0ü", max_size=6)


def labels_of(texts: OrderedTexts, values: list[str]) -> list[int]:
    numbers = texts.number(pa.array(values, pa.string()))
    assert texts.take(numbers).cast(pa.string()).to_pylist() == values
    labels = texts.labels[numbers]
    assert texts.find(labels).tolist() == numbers.tolist()
    return labels.tolist()


@given(st.lists(st.lists(TEXTS, max_size=30), max_size=6), st.data())
def test_labels_are_in_the_texts_order(
    batches: list[list[str | None]], data: st.DataObject
) -> None:
    texts = OrderedTexts()
    known: list[str] = []
    for batch in batches:
        chosen = np.array(data.draw(st.lists(st.booleans(), min_size=30, max_size=30)), np.bool_)
        takes = [v for v, c in zip(batch, chosen, strict=False) if c and v is not None]
        known = list(dict.fromkeys([*known, *takes]))
        numbers = texts.number(pa.array(batch, pa.string()), chosen[: len(batch)])
        assert numbers.tolist() == [
            known.index(v) if c and v is not None else -1
            for v, c in zip(batch, chosen, strict=False)
        ]
        ordered = sorted(known)
        labels = labels_of(texts, ordered)
        assert labels == sorted(set(labels))
        alive = np.array([data.draw(st.booleans()) for _ in known], np.bool_)
        kept = [v for v, lives in zip(known, alive, strict=True) if lives]
        before = [labels[ordered.index(v)] for v in kept]
        moved = texts.forget(alive)
        assert moved.tolist() == [kept.index(v) if v in kept else -1 for v in known]
        assert len(texts) == len(kept)
        assert labels_of(texts, kept) == before
        known = kept


@pytest.mark.parametrize("way", ["between", "ascending", "descending", "inside"])
def test_where_there_is_no_room_all_are_given_anew_in_order(way: str) -> None:
    texts = OrderedTexts()
    told: list[int] = []

    def relabel(old: np.ndarray, new: np.ndarray) -> None:
        assert len(old) == len(new)
        assert (np.diff(old) > 0).all()
        assert (np.diff(new) > 0).all()
        told.append(len(old))

    texts.on_relabel = relabel
    texts.number(pa.array(["0", "y", "z"]))
    values = ["0", "y", "z"]
    for i in range(900):
        name = {
            "between": f"a{'m' * (i // 2)}{'az'[i % 2]}",
            "ascending": f"zz{i:05}",
            "descending": f"/{99_999 - i:05}",
            "inside": f"m{i:05}",
        }[way]
        texts.number(pa.array([name]))
        values.append(name)
    labels = labels_of(texts, sorted(set(values)))
    assert labels == sorted(set(labels))
    # Texts in order use up little of the room; only halving does.
    assert bool(told) is (way == "between")


def test_many_texts_grow_the_table_and_little_is_left_when_most_are_forgotten() -> None:
    texts = TextNumbers()
    values = [f"{i * 7919 % 5_000} text" for i in range(5_000)]
    assert texts.number(pa.array(values)).tolist() == list(range(5_000))
    assert texts.number(pa.array(values[::-1])).tolist() == list(range(4_999, -1, -1))
    assert texts.find(pa.array(["x", None, values[7], ""])).tolist() == [-1, -1, 7, -1]
    size = texts.size()
    assert size < 5_000 * 100
    alive = np.zeros(5_000, np.bool_)
    alive[::100] = True
    texts.compact(alive)
    assert texts.size() < size / 20
    assert texts.take(np.array([3, -1, 1])).cast(pa.string()).to_pylist() == [
        values[300],
        None,
        values[100],
    ]
    assert texts.number(pa.array([values[1], values[200]])).tolist() == [50, 2]


@given(st.lists(st.none() | st.integers(-(10**20), 10**20), max_size=20), st.integers(0, 3))
def test_wide_decimals_have_texts_in_their_order(values: list[int | None], skip: int) -> None:
    type_ = pa.decimal128(38, 2)
    column = pa.array([None if v is None else Decimal(v).scaleb(-2) for v in values], type_)
    column = column.slice(min(skip, len(column)))
    texts = to_texts(column)
    assert from_texts(texts.cast(pa.binary()), type_).equals(column)
    pairs = [(a, b) for a, b in zip(texts.to_pylist(), column.to_pylist(), strict=True) if a]
    assert [b for _, b in sorted(pairs)] == sorted(b for _, b in pairs)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_whole_numbers_have_texts_in_their_order(values: list[int | None]) -> None:
    texts = to_texts(pa.array(values, pa.int64())).to_pylist()
    assert [v is None for v in texts] == [v is None for v in values]
    pairs = [(a, b) for a, b in zip(texts, values, strict=True) if a is not None]
    assert [b for _, b in sorted(pairs)] == sorted(b for _, b in pairs)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError):
        TextNumbers().number(pa.array([1]))


def test_each_table_has_a_seed_of_its_own():
    """Else texts that collide could be sent, since Spark fixes Python's own seed."""
    assert len({int(TextNumbers()._seed) for _ in range(10)}) == 10
