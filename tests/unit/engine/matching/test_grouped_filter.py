"""Region tables of a block, compared with asking every value set; and blocks as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.matching.grouped_filter import BLOCK, Block, build_block
from millpond.engine.values.value_sets import Domain, ValueSet, interval, points

sets = st.one_of(
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda b: interval(Domain.INT8, *b)),
    st.lists(st.integers(0, 20), max_size=4).map(lambda v: points(Domain.INT8, v)),
    st.just(ValueSet((), False, True)),
    st.just(ValueSet((), True, False)),
)


def has(block: Block, row: int, position: int) -> bool:
    word = int(block.arrays["table"][row, position >> 6])
    return bool(word >> (position & 63) & 1)


@given(st.dictionaries(st.integers(0, BLOCK - 1), sets, min_size=1, max_size=12))
def test_a_region_holds_the_queries_whose_set_it_is_in(queries: dict[int, ValueSet]) -> None:
    block = build_block([(p, 1000 + p, ((("a", v),), ())) for p, v in queries.items()])
    cuts = block.cuts(0)
    first = int(block.arrays["stage_row"][0])
    for value in range(-3, 24):
        region = int(np.searchsorted(cuts, value, "right"))
        for position in range(0, BLOCK, 7):
            want = position not in queries or value in queries[position]
            assert has(block, first + region, position) == want
    for position, values in queries.items():
        assert has(block, first + len(cuts) + 1, position) == values.nulls
        assert block.slots[position] == 1000 + position
        assert (int(block.arrays["present"][position >> 6]) >> (position & 63)) & 1


def some_block() -> Block:
    text = points(Domain.TEXT, [b"x", b"\xff\0y"])
    number = interval(Domain.INT32, 3, 9)
    clause = (("n", number.complement()), ("s", text))
    return build_block(
        [
            (0, 7, ((("s", text),), ())),
            (3, 8, ((("n", number),), (clause,))),
            (70, 9, ((), (clause,))),
        ]
    )


def test_layers_let_pass_queries_without_such_a_clause() -> None:
    block = some_block()
    (passing,) = block.arrays["layer_pass"]
    assert [bool(int(passing[p >> 6]) >> (p & 63) & 1) for p in (0, 3, 70)] == [True, False, False]
    assert block.lanes == 2


def test_a_saved_block_is_the_same_mapped(tmp_path: Path) -> None:
    block = some_block()
    name = block.save(tmp_path)
    assert name == block.save(tmp_path)
    mapped = Block.load(tmp_path / name)
    assert mapped.attributes == block.attributes
    assert mapped.texts == block.texts
    assert mapped.digest == block.digest
    assert mapped.arrays.keys() == block.arrays.keys()
    for key, array in block.arrays.items():
        assert np.array_equal(mapped.arrays[key], array)
        assert mapped.arrays[key].dtype == array.dtype
    assert mapped.nbytes < block.nbytes
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_equal_blocks_have_one_name_and_different_ones_have_not() -> None:
    assert some_block().digest == some_block().digest
    assert some_block().digest != build_block([]).digest


@pytest.mark.parametrize("damage", [b"", b"MPBLOCK1", b"something else entirely"])
def test_a_file_that_is_no_block_is_refused(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "bad.block"
    path.write_bytes(damage)
    with pytest.raises(ValueError, match=r"block|empty|Expecting"):
        Block.load(path)


def test_a_block_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / some_block().save(tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match="cut short"):
        Block.load(path)
