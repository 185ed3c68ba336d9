"""Hashes of keys: equal for what joins find equal, whatever the types; different for the rest."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.operators.structures.key_hashes import hash_keys


def test_numbers_of_any_width_and_instants_agree() -> None:
    values = [0, 1, -5, 100]
    wide = hash_keys([pa.array(values, pa.int64())])
    for type_ in (pa.int8(), pa.int32(), pa.timestamp("us")):
        assert (hash_keys([pa.array(values, pa.int64()).cast(type_)]) == wide).all()
    assert (hash_keys([pa.array([0, 1], pa.int32()).cast(pa.date32())]) == wide[:2]).all()
    assert (hash_keys([pa.array([False, True])]) == wide[:2]).all()


def test_texts_agree_wherever_they_stand() -> None:
    one = hash_keys([pa.array(["a", "", "ä", "a"])])
    assert one[0] == one[3]
    assert len(set(one.tolist())) == 3
    assert hash_keys([pa.array(["ä"])])[0] == one[2]
    assert len(hash_keys([pa.array([], pa.string())])) == 0


def test_rows_of_several_columns_differ_by_the_order_of_the_columns() -> None:
    low, high = pa.array(np.arange(1_000) % 10), pa.array(np.arange(1_000) // 10)
    found = hash_keys([low, high])
    assert len(set(found.tolist())) == 1_000
    assert (hash_keys([high, low]) != found).sum() >= 990
