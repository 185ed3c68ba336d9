"""What a name can mean in a SELECT."""

from __future__ import annotations

from sqlglot import exp
from tests.unit.planner.conftest import schema

from millpond.catalog.objects import StreamDef
from millpond.model.windows import Range, Rows
from millpond.planner.resolve.scope import Body, Leaf, SelectScope, Source

STREAM = StreamDef(1, "s", schema("ts TIMESTAMP, Va INTEGER"), timestamp_by="ts")


def make_scope(*sources: Source) -> SelectScope:
    return SelectScope(exp.Select(), None, {}, list(sources))


def test_sources_and_columns_are_found_in_any_case() -> None:
    source = Source("S", ("ts", "Va"), leaf=Leaf(exp.Table(), STREAM))
    scope = make_scope(source, Source("t", ("va",)))
    assert scope.find_source("s") is source
    assert scope.find_source("u") is None
    assert [found.name for found in scope.find_sources_of("VA")] == ["S", "t"]
    assert source.place("va") == 1
    assert source.place("nope") is None
    assert source.type_of("va") == "INTEGER"
    assert Source("t", ("va",)).type_of("va") is None


def test_a_slice_has_what_is_needed_in_the_order_of_the_schema() -> None:
    leaf = Leaf(exp.Table(), STREAM)
    source = Source("s", ("ts", "Va"), leaf=leaf)
    source.need("Va")
    assert leaf.columns() == ("Va",)
    source.need_all()
    assert leaf.columns() == ("ts", "Va")


def test_selections_commute_with_windows_of_time_alone() -> None:
    assert Leaf(exp.Table(), STREAM, window=Range(5)).commutes
    assert not Leaf(exp.Table(), STREAM, window=Rows(5)).commutes
    assert Leaf(exp.Table(), STREAM, window=Rows(5)).counts_all
    assert Leaf(exp.Table(), STREAM, window=Rows(5, ("va",))).counts_all
    assert not Leaf(exp.Table(), STREAM, window=Rows(5), sample=50.0).counts_all


def test_the_first_columns_of_a_body_are_renamed() -> None:
    body = Body(("a", "b"), False, None)
    assert body.rename_columns(("x",)).columns == ("x", "b")
