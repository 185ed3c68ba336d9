"""Relation deltas: their fold, in any order and however often rewritten, is the relation."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.time import BEGINNING, END
from millpond.state.arrow_file import open_arrow
from millpond.state.relation_log import (
    changes_between,
    ends,
    fold,
    folded_schema,
    number_added,
    select_at,
    write_delta,
)

COLUMNS = pa.schema([pa.field("tail", pa.string()), pa.field("seats", pa.int32())])


def rows(*values):
    return pa.table(
        {"tail": [v[0] for v in values], "seats": [v[1] for v in values]}, schema=COLUMNS
    )


def written(store, added, ended=None):
    meta = write_delta(store.directory, added, ended)
    assert meta.path.parent == store.directory / "relations"
    return open_arrow(meta.path, meta.checksum)


def test_rows_come_to_be_and_end(store):
    first = written(store, number_added(rows(("a", 1), ("b", None)), 1, BEGINNING))
    second = written(store, number_added(rows(("a", 2)), 3, 10), ends([1], 10))
    whole = fold([first, second], COLUMNS)
    assert whole.schema == folded_schema(COLUMNS)
    assert whole.to_pylist() == [
        {"tail": "a", "seats": 1, "__rid": 1, "__from": BEGINNING, "__to": 10},
        {"tail": "b", "seats": None, "__rid": 2, "__from": BEGINNING, "__to": END},
        {"tail": "a", "seats": 2, "__rid": 3, "__from": 10, "__to": END},
    ]
    for at, expected in ((9, (("a", 1), ("b", None))), (10, (("b", None), ("a", 2)))):
        assert select_at(whole, at).select(COLUMNS.names).to_pylist() == rows(*expected).to_pylist()


def test_the_earliest_end_counts_and_a_row_that_never_was_is_left_out(store):
    delta = written(store, number_added(rows(("a", 1), ("b", 2)), 1, 5), ends([1, 1, 2], [9, 7, 5]))
    assert fold([delta], COLUMNS).select(["__rid", "__to"]).to_pylist() == [{"__rid": 1, "__to": 7}]


def test_an_end_without_a_row_ends_nothing(store):
    delta = written(store, COLUMNS_EMPTY, ends([0, 4, 99], 3))
    more = written(store, number_added(rows(("a", 1)), 5, 0))
    assert fold([delta, more], COLUMNS).column("__to").to_pylist() == [END]


COLUMNS_EMPTY = folded_schema(COLUMNS).empty_table()


def test_of_nothing_there_is_the_schema():
    assert fold([], COLUMNS).schema == folded_schema(COLUMNS)


INSTANTS = st.integers(0, 20)


@settings(max_examples=60)
@given(
    history=st.lists(
        st.tuples(st.lists(INSTANTS, max_size=4), st.lists(st.tuples(st.integers(), INSTANTS))),
        max_size=6,
    ),
    cut=st.integers(0, 6),
    order=st.randoms(use_true_random=False),
)
def test_a_fold_is_the_history_replayed_and_a_rewritten_prefix_folds_the_same(
    tmp_path_factory, history, cut, order
):
    directory = tmp_path_factory.mktemp("store")
    (directory / "relations").mkdir()
    deltas, model, next_rid = [], {}, 1
    for starts, ending in history:
        added = pa.concat_tables(
            [COLUMNS_EMPTY]
            + [number_added(rows((str(s), s)), next_rid + i, s) for i, s in enumerate(starts)]
        )
        model.update((next_rid + i, [s, END]) for i, s in enumerate(starts))
        next_rid += len(starts)
        over = [(rid % next_rid, at) for rid, at in ending]
        for rid, at in over:
            if rid in model:
                model[rid][1] = min(model[rid][1], at)
        delta = write_delta(directory, added, ends([r for r, _ in over], [t for _, t in over]))
        deltas.append(open_arrow(delta.path))
    expected = [(rid, start, to) for rid, (start, to) in sorted(model.items()) if to > start]

    def shown(table):
        return list(
            zip(*(table.column(n).to_pylist() for n in ("__rid", "__from", "__to")), strict=True)
        )

    rewritten = write_delta(directory, fold(deltas[:cut], COLUMNS))
    shuffled = [open_arrow(rewritten.path), *deltas[cut:]]
    order.shuffle(shuffled)
    assert shown(fold(shuffled, COLUMNS)) == expected
    order.shuffle(deltas)
    assert shown(fold(deltas, COLUMNS)) == expected


def test_changes_without_columns_are_as_many() -> None:
    rows = number_added(pa.table({"v": [7, 7, 8]}), 1, 5)
    changes = changes_between(rows.slice(0, 0), rows, 0, 9, [])
    assert changes.column_names == ["__at", "__sign"]
    assert changes.to_pylist() == [{"__at": 5, "__sign": 1}] * 3
