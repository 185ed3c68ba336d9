"""Changes folded into a relation's rows, against a table that applies each by itself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.catalog.objects import RelationDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.model.time import END
from millpond.runtime.postgres.pgoutput import UNCHANGED, SentChange, TableShape
from millpond.service.ingest.replicated_rows import ReplicatedRows
from millpond.state.relation_log import ends, fold, folded_schema

SCHEMA = Schema((Field("k", "INTEGER"), Field("v", "VARCHAR"), Field("n", "INTEGER")))
RELATION = RelationDef(7, "r", SCHEMA, ("k",))
#: The table's columns are in another order, and there is one more.
SHAPE = TableShape(5, "public.r", "d", ("n", "extra", "k", "v"), frozenset({"k"}))


class Stored:
    """A relation as it is stored: the fold of what was taken."""

    def __init__(self) -> None:
        self.deltas: list[pa.Table] = []
        self.rows = self.index()

    @property
    def table(self) -> pa.Table:
        return fold(self.deltas, SCHEMA.to_arrow())

    def index(self) -> ReplicatedRows:
        """What a reader that connects knows."""
        taken = [pa.compute.max(d["__rid"]).as_py() for d in self.deltas if d.num_rows]
        rows = ReplicatedRows(RELATION, self.table, max(taken, default=-1) + 1, lambda: self.table)
        rows.learn(SHAPE)
        return rows

    def store(self) -> None:
        added, ended = self.rows.take()
        assert added.schema == folded_schema(SCHEMA.to_arrow())
        lines = added.append_column("__op", pa.array([0] * added.num_rows, pa.int8()))
        nulls = {f.name: pa.nulls(ended.num_rows, f.type) for f in lines.schema}
        nulls |= {"__rid": ended["__rid"], "__to": ended["__to"]}
        nulls["__op"] = pa.array([1] * ended.num_rows, pa.int8())
        self.deltas.append(pa.concat_tables([lines, pa.table(nulls, schema=lines.schema)]))

    def at(self, instant: int) -> dict[int, tuple[str, int]]:
        found = {}
        for row in self.table.to_pylist():
            if row["__from"] <= instant < row["__to"]:
                assert row["k"] not in found
                found[row["k"]] = (row["v"], row["n"])
        return found


def sent(k: int, v: Any, n: int) -> tuple[Any, ...]:
    return (str(n), "x", str(k), v)


def key(k: int) -> tuple[Any, ...]:
    return (None, None, str(k), None)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "move", "delete", "truncate", "instant", "store", "reopen"]),
            st.integers(0, 4),
            st.integers(0, 4),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_every_instant_is_what_the_table_was(steps: list[tuple[str, int, int, bool]]) -> None:
    stored, table, at = Stored(), dict[int, tuple[str, int]](), 0
    history: dict[int, dict[int, tuple[str, int]]] = {}
    for number, (what, k, other, is_long) in enumerate(steps):
        rows, value = stored.rows, (f"v{number}", number)
        match what:
            case "put" if k in table:
                kept = table[k][0] if is_long else value[0]
                new = sent(k, UNCHANGED if is_long else kept, number)
                rows.note(SentChange(5, "U", None, new), at)
                table[k] = (kept, number)
            case "put":
                rows.note(SentChange(5, "I", None, sent(k, *value)), at)
                table[k] = value
            case "move" if k in table and other not in table:
                old = table.pop(k)
                rows.note(SentChange(5, "U", key(k), sent(other, UNCHANGED, number)), at)
                table[other] = (old[0], number)
            case "delete" if k in table:
                rows.note(SentChange(5, "D", key(k), None), at)
                del table[k]
            case "truncate":
                rows.note_truncate(at)
                table.clear()
            case "instant":
                history[at], at = dict(table), at + 1
            case "store" if rows.has_changes:
                stored.store()
            case "reopen":
                if rows.has_changes:
                    stored.store()
                stored.rows = stored.index()
    stored.store()
    history[at] = table
    assert {instant: stored.at(instant) for instant in history} == history
    assert stored.at(END - 1) == table


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (SentChange(5, "I", None, sent(1, "a", 1)), "two rows of the table have the key"),
        (SentChange(5, "D", key(2), None), "it has no row with the key"),
        (SentChange(5, "I", None, ("x", "x", "3", "a")), "'x' is not an INTEGER"),
        (SentChange(5, "I", None, ("1", "x", None, "a")), "a NULL in its key"),
    ],
)
def test_what_the_relation_cannot_follow(change: SentChange, words: str) -> None:
    stored = Stored()
    stored.rows.note(SentChange(5, "I", None, sent(1, "a", 1)), 0)
    stored.store()
    stored.rows.note(change, 1)
    with pytest.raises(MillpondError) as refused:
        stored.rows.take()
    assert refused.value.code == "DATA-502"
    assert words in (refused.value.detail or "")


def test_a_table_that_lost_a_column_or_its_key() -> None:
    rows, columns = Stored().rows, ("k", "v", "n")
    for shape, words in (
        (TableShape(5, "r", "d", ("k", "v"), frozenset({"k"})), 'no column "n"'),
        (TableShape(5, "r", "i", columns, frozenset({"n"})), "do not name the old row by k"),
        (TableShape(5, "r", "n", columns, frozenset({"k"})), "do not name the old row by k"),
    ):
        with pytest.raises(MillpondError) as refused:
            rows.learn(shape)
        assert words in (refused.value.detail or "")


def test_ends_have_their_own_instants() -> None:
    assert ends([1, 2], [5, 6])["__to"].to_pylist() == [5, 6]
