"""A query with every name and type resolved: the result of binding, read by all later steps.

Most standing queries differ from one another only in their constants. So a bound query has two
parts: the part that all queries of its shape share (computed once, see
`millpond.planner.bind.templates`), and its constants. Texts and predicates are put together from
the two parts on first use and then cached: a registration that never needs the residual never
prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from sqlglot import exp

from millpond.catalog.objects import SummaryDef
from millpond.model.kept_property import kept_property
from millpond.model.schema import Schema
from millpond.model.windows import Window
from millpond.planner.aggregates import ColumnAggregate, GroupedAggregates
from millpond.planner.bind.preference import BoundPreference, PartialShape
from millpond.planner.joins import JoinShape, write_joined_sql
from millpond.planner.residual import with_literals, write_canonical_cql, write_residual_sql
from millpond.planner.resolve.estimates import NamedEstimate

#: Constants that differ from the template's: the place of a literal in the template's text -> the
#: literal's text in this query (for a string, without quotes).
Literals = Mapping[int, str]

_AS_WRITTEN: dict[int, str] = {}
_NO_ESTIMATES: dict[str, NamedEstimate] = {}


@dataclass(frozen=True, eq=False)
class StreamLeaf:
    """One occurrence of a stream in a query.

    Attributes:
        table: The name of this occurrence's slice in `BoundQuery.residual_sql` (`leaf_0`, …).
        stream: The stream's (or `name$rejects`'s) name as declared.
        window: Which elements are in the slice at an instant.
        sample: Per cent of elements kept before the window, or None.
        columns: The columns the residual needs, in schema order; never empty, so that a slice
            knows its number of rows.
        before_shape: The tree of `before`, with the template's constants.
        pushed_shape: The tree of `pushed`, with the template's constants.
        after_shape: The tree of `after`, with the template's constants.
        literals: This query's constants where they differ from the template's.
        hidden: The names of more columns (BIGINT): each element's timestamp, where a
            non-retroactive relation is joined; and its number in the order of arrival, too, where
            elements that a query chooses are counted.
        seed: The seed of its sample, if the pond chose to sample it; None: the query's.
    """

    table: str
    stream: str
    window: Window
    sample: float | None
    columns: tuple[str, ...]
    before_shape: exp.Expr | None = None
    pushed_shape: exp.Expr | None = None
    after_shape: exp.Expr | None = None
    literals: Literals = field(default_factory=lambda: _AS_WRITTEN)
    hidden: tuple[str, ...] = ()
    seed: int | None = None

    def with_literals(self, literals: Literals) -> StreamLeaf:
        """Copy the leaf for a query with other constants."""
        if not self.shapes:
            return self
        copied = StreamLeaf.__new__(StreamLeaf)
        # Thousands of queries are registered together: calling `StreamLeaf` takes longer.
        copied.__dict__.update(self._shared)
        copied.__dict__["literals"] = literals
        return copied

    @kept_property
    def _shared(self) -> dict[str, object]:
        """What queries with other constants share with it."""
        return {"shapes": self.shapes, **{f.name: getattr(self, f.name) for f in fields(self)}}

    @kept_property
    def shapes(self) -> tuple[exp.Expr, ...]:
        """The trees of the predicates that a standing query's slot is matched on."""
        every = (self.before_shape, self.pushed_shape, self.after_shape)
        return tuple(shape for shape in every if shape is not None)

    @kept_property
    def before(self) -> exp.Expr | None:
        """The predicate an element must satisfy to enter the window (`WHERE` in the brackets).

        A predicate over the stream's bare columns, or None.
        """
        return with_literals(self.before_shape, self.literals)

    @kept_property
    def pushed(self) -> exp.Expr | None:
        """Further conjuncts, from the query's WHERE and ON, over this occurrence only.

        They may be applied before or after the window, because they commute with it. None for ROWS
        windows, with which they do not commute.
        """
        return with_literals(self.pushed_shape, self.literals)

    @kept_property
    def after(self) -> exp.Expr | None:
        """Conjuncts from the query's WHERE that select from the elements in a ROWS window.

        Then `before` and `pushed` are None: the window counts every element.
        """
        return with_literals(self.after_shape, self.literals)

    @kept_property
    def predicate(self) -> exp.Expr | None:
        """The conjunction a standing query's slot is matched on."""
        parts = [p for p in (self.before, self.pushed, self.after) if p is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        conjunction: exp.Expr = exp.and_(*parts, copy=True)
        return conjunction


@dataclass(frozen=True)
class RelationLeaf:
    """One occurrence of a relation; `table` and `columns` as for `StreamLeaf`.

    A non-retroactive relation has two `hidden` columns: its slice has all rows it ever held, each
    with the instants (BIGINT) from which on and before which the relation held the row.
    """

    table: str
    relation: str
    columns: tuple[str, ...]
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class BoundQuery:
    """A query ready to be planned.

    Attributes:
        text: The query's CQL as the user wrote it.
        streams: The stream occurrences.
        relations: The relation occurrences.
        projection: For `SELECT columns FROM one stream [window] WHERE pushed`, where the residual
            is only a projection: (column, output name) pairs. None otherwise.
        aggregates: For a query whose columns are plain aggregates of one stream's elements, the
            calls in order. None otherwise.
        grouped: The same for a query whose columns are aggregates by group, and keys.
        approximations: The columns that are values of `approx_…` functions: their places in the
            answer and their functions.
        output: The answer's columns; names are distinct, types are DuckDB's names.
        to_stream: 'istream', 'dstream', 'rstream', or None for a relation-valued query.
        ordered: Whether the outermost query has ORDER BY, so that row order means something.
        tree: The query's syntax tree with names in their declared spelling, and the template's
            constants; `Table.meta['leaf']` names an occurrence's slice. Shared by all queries
            of the shape: never change it.
        literals: This query's constants where they differ from the template's.
        join: What links the streams of the outermost FROM clause, if that is a join of streams.
        functions: The names of the user-defined functions the query calls.
        views: The names of the derived relations in the query's text; the tree has their queries.
        estimates: The estimates the residual calls, by their functions' names in DuckDB.
        preference: What the query wants to see first.
        partial: How it can be answered in parts; a text says why it cannot.
    """

    text: str
    streams: tuple[StreamLeaf, ...]
    relations: tuple[RelationLeaf, ...]
    projection: tuple[tuple[str, str], ...] | None
    output: Schema
    to_stream: str | None
    ordered: bool
    tree: exp.Expr = field(repr=False)
    literals: Literals = field(default_factory=lambda: _AS_WRITTEN, repr=False)
    join: JoinShape | None = field(default=None, repr=False)
    functions: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    aggregates: tuple[ColumnAggregate, ...] | None = None
    grouped: GroupedAggregates | None = None
    approximations: tuple[tuple[int, str], ...] = ()
    estimates: Mapping[str, NamedEstimate] = field(default_factory=lambda: _NO_ESTIMATES)
    preference: BoundPreference | None = None
    partial: PartialShape | str = ""

    def with_constants(self, text: str, literals: Literals) -> BoundQuery:
        """Copy the query for another text of its shape."""
        copied = BoundQuery.__new__(BoundQuery)
        own = copied.__dict__
        own.update(self._shared)
        own["text"], own["literals"] = text, literals
        own["streams"] = tuple([leaf.with_literals(literals) for leaf in self.streams])
        return copied

    @kept_property
    def _shared(self) -> dict[str, object]:
        """What other texts of its shape share with it."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def summaries(self) -> frozenset[SummaryDef]:
        """The summaries its estimates and its preference ask."""
        ranked = self.preference.estimates if self.preference is not None else ()
        asked = (*self.estimates.values(), *(r.estimate for r in ranked))
        return frozenset(estimate.summary for estimate in asked)

    @kept_property
    def canonical(self) -> str:
        """The query printed back from its tree: equal for equal trees."""
        return write_canonical_cql(self.tree, self.literals)

    @kept_property
    def residual_sql(self) -> str:
        """The whole query in DuckDB's SQL over the leaves' tables.

        Pushed WHERE conjuncts stay in the SQL, so it gives the same answer over filtered and
        unfiltered slices. Columns come in the order of `output`. DuckDB may give two columns one
        name, so rename the columns of the result to `output.names`.
        """
        return write_residual_sql(self.tree, self.literals)

    @kept_property
    def joined_sql(self) -> str:
        """The query over the joined slice: as `residual_sql`, but row i of all joined leaves'
        tables together is row i of the joined slice."""
        assert self.join is not None
        tables = frozenset(self.streams[number].table for number in self.join.leaves)
        return write_joined_sql(self.tree, self.literals, tables)
