"""A query with every name and type resolved: what binding gives and everything after it reads."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.model.schema import Schema
from millpond.model.windows import Window


@dataclass(frozen=True)
class StreamLeaf:
    """One occurrence of a stream in a query.

    Attributes:
        table: The name of this occurrence's slice in `BoundQuery.residual_sql` (`leaf_0`, …).
        stream: The stream's (or `name$rejects`'s) name as declared.
        window: Which elements, at an instant.
        before: What an element must satisfy before the window is taken (`WHERE` inside the
            brackets): a predicate over the stream's bare columns, or None.
        pushed: Further conjuncts, from the query's WHERE, over this occurrence only. They may be
            applied before or after the window (they commute with it); None for ROWS windows.
        sample: Per cent of elements kept before the window, or None.
        columns: The columns the residual needs, in schema order.
    """

    table: str
    stream: str
    window: Window
    before: exp.Expression | None
    pushed: exp.Expression | None
    sample: float | None
    columns: tuple[str, ...]

    @property
    def predicate(self) -> exp.Expression | None:
        """The conjunction a standing query's slot is matched on."""
        parts = [p for p in (self.before, self.pushed) if p is not None]
        return exp.and_(*parts, copy=True) if parts else None


@dataclass(frozen=True)
class RelationLeaf:
    """One occurrence of a relation; `table` as for `StreamLeaf`."""

    table: str
    relation: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class BoundQuery:
    """A query ready to be planned.

    Attributes:
        text: The query's CQL as the user wrote it.
        canonical: The query printed back from its tree: equal for equal trees.
        streams: The stream occurrences.
        relations: The relation occurrences.
        residual_sql: The whole query in DuckDB's SQL over the tables of the leaves. WHERE
            conjuncts that were pushed stay in it, so it is right over filtered and unfiltered
            slices alike.
        projection: For `SELECT columns FROM one stream [window] WHERE pushed`, where the residual
            is only a projection: (column, output name) pairs. None otherwise.
        output: The answer's columns.
        to_stream: 'istream', 'dstream', 'rstream', or None for a relation-valued query.
        ordered: Whether the outermost query has ORDER BY, so that row order means something.
    """

    text: str
    canonical: str
    streams: tuple[StreamLeaf, ...]
    relations: tuple[RelationLeaf, ...]
    residual_sql: str
    projection: tuple[tuple[str, str], ...] | None
    output: Schema
    to_stream: str | None
    ordered: bool
