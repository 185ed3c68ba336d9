"""The names of streams, relations and summaries that a text spells out, before it is bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from sqlglot import exp

from millpond.cql.print.dialect import parse_query
from millpond.cql.tree.nodes import SummaryEstimate
from millpond.cql.tree.places import span_of
from millpond.cql.tree.statements import Statement
from millpond.errors import Span
from millpond.planner.resolve.views import is_cte


@dataclass(frozen=True)
class NamedObject:
    """A name in a text.

    Attributes:
        name: The name.
        is_summary: Whether it is that of a summary; else it is that of a stream or relation.
        may_be_local: Whether it may be the name of an entry of WITH.
        span: Its place in the text, if that is known.
    """

    name: str
    is_summary: bool
    may_be_local: bool
    span: Span | None


def find_named_objects(trees: Iterable[exp.Expr]) -> Iterator[NamedObject]:
    """Find every name in queries and expressions."""
    for tree in trees:
        for estimate in tree.find_all(SummaryEstimate):
            yield NamedObject(estimate.name, True, False, span_of(estimate.this))
        for table in tree.find_all(exp.Table):
            name = ".".join(part.name for part in table.parts)
            yield NamedObject(name, False, is_cte(table), span_of(table))


@lru_cache(4096)
def list_named_objects(query: str) -> tuple[NamedObject, ...]:
    """List every name in a query's text. Raises what parsing it raises."""
    return tuple(find_named_objects([parse_query(query)]))


def find_trees(statement: Statement) -> Iterator[exp.Expr]:
    """Find the queries and expressions in a statement, in whichever of its fields they are."""
    for field in fields(statement):
        yield from _trees_in(getattr(statement, field.name))


def _trees_in(value: Any) -> Iterator[exp.Expr]:
    if isinstance(value, exp.Expr):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _trees_in(item)
    elif isinstance(value, dict):
        yield from _trees_in(tuple(value.values()))
    elif hasattr(value, "computed"):
        yield from _trees_in(value.computed)
