"""What a column name can refer to in a SELECT: its sources, its aliases, the SELECTs around it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sqlglot import exp

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.model.windows import Period, Rows, Unbounded, Window

#: Key under which sqlglot keeps a column's type, if the column is a stream's or a relation's.
TYPE = "millpond_type"


@dataclass(eq=False)
class Leaf:
    """An occurrence of a stream or a relation while its query is being bound.

    Attributes:
        node: Its node in the tree.
        definition: The definition of the stream or relation.
        window: Its window; unused for a relation.
        before: The predicate inside the window's brackets.
        sample: The per cent SAMPLE keeps, if there is a SAMPLE.
        pushed: Conjuncts from WHERE and ON, over bare columns.
        after: Conjuncts from WHERE that are applied after the window, over bare columns.
        needed: Lower-case names of the columns the residual uses.
        positional: Whether the residual names columns by place (`flights AS f(a, b)`), so that no
            column may be left out.
        table: The name of its slice.
        hidden: Columns of the slice (BIGINT) that no text can name (`nrr_join.py`).
    """

    node: exp.Table
    definition: StreamDef | RelationDef
    window: Window = field(default_factory=Unbounded)
    before: exp.Expr | None = None
    sample: float | None = None
    pushed: list[exp.Expr] = field(default_factory=list)
    after: list[exp.Expr] = field(default_factory=list)
    needed: set[str] = field(default_factory=set)
    positional: bool = False
    table: str = ""
    hidden: tuple[str, ...] = ()

    @property
    def is_stream(self) -> bool:
        return isinstance(self.definition, StreamDef)

    @property
    def commutes(self) -> bool:
        """Whether selections may be applied before the window as well as after it."""
        return self.is_stream and not isinstance(self.window, Rows)

    @property
    def counts_all(self) -> bool:
        """Whether its window is the last rows of the whole stream, or of each of its partitions."""
        unfiltered = self.before is None and self.sample is None
        return self.is_stream and isinstance(self.window, Rows) and unfiltered

    def columns(self) -> tuple[str, ...]:
        """The columns of its slice, in schema order."""
        names = self.definition.schema.names
        if self.positional:
            return names
        return tuple(n for n in names if n.lower() in self.needed) or names[:1]


@dataclass(eq=False)
class Source:
    """One item of a FROM clause.

    Attributes:
        name: The name that qualifies its columns, as written; empty if there is none.
        columns: Its columns' names in order, in their declared spelling.
        leaf: Set when the item is a stream or relation itself.
        body: Set when the item is a subquery or CTE: the scope that computes it.
        is_open: Whether it may have columns beyond `columns`, whose names only DuckDB knows.
        steps: The joins above it in its FROM clause, outermost first.
    """

    name: str
    columns: tuple[str, ...]
    leaf: Leaf | None = None
    body: Body | None = None
    is_open: bool = False
    steps: list[JoinStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._place = {c.lower(): i for i, c in reversed(list(enumerate(self.columns)))}

    def place(self, column: str) -> int | None:
        """Find a column's position by its name in any case."""
        return self._place.get(column.lower())

    def type_of(self, column: str) -> str | None:
        """Return a stream's or relation's column's type in queries; None for other sources."""
        place = self.place(column)
        if self.leaf is None or place is None:
            return None
        return self.leaf.definition.schema.fields[place].query_type

    def need(self, column: str) -> None:
        """Record that the residual uses a column."""
        place = self.place(column)
        if self.leaf is not None and place is not None:
            self.leaf.needed.add(self.leaf.definition.schema.names[place].lower())

    def need_all(self) -> None:
        """Record that the residual uses every column."""
        for column in self.columns:
            self.need(column)


@dataclass(eq=False)
class Body:
    """A derived table's query: its columns, and how often it is read.

    Attributes:
        columns: Output names.
        is_open: Whether an output has a name only DuckDB knows.
        select: The scope of the query if it is one SELECT; None for set operations.
        reads: How many FROM items read it; a CTE may have several readers.
        origins: For every column, the source column it refers to, if it is a plain column of a
            source of `select`; None where not known.
        is_exact: Whether there is one entry in `columns` for every column.
    """

    columns: tuple[str, ...]
    is_open: bool
    select: SelectScope | None
    reads: int = 0
    origins: tuple[Resolution | None, ...] | None = None
    is_exact: bool = True

    def rename_columns(self, names: tuple[str, ...]) -> Body:
        """Rename the body's first columns (`AS t(a, b)`)."""
        if not names:
            return self
        return replace(self, columns=names + self.columns[len(names) :])


@dataclass(frozen=True, eq=False)
class JoinStep:
    """A join above a source, and whether the source is on its left."""

    join: exp.Join
    left: bool


@dataclass(frozen=True, eq=False)
class Resolution:
    """The meaning of a column reference.

    Attributes:
        source: The FROM item; None for a SELECT alias.
        column: The column's name as declared; empty for an alias.
        outer: Whether the source belongs to an enclosing SELECT.
        merged: Whether the reference means a column merged from several sources (USING, NATURAL).
    """

    source: Source | None
    column: str
    outer: bool = False
    merged: bool = False


@dataclass(eq=False)
class SelectScope:
    """One SELECT while it is being bound.

    Attributes:
        select: The SELECT's node.
        parent: The enclosing scope, whose columns the SELECT may use too.
        sources: The SELECT's FROM items.
        aliases: Lower-case names given in the SELECT list.
        merged: Lower-case names of columns joined by USING or NATURAL.
        merges_outer: Whether one of these joins is RIGHT or FULL, so that the merged column is not
            the left side's.
        resolved: The meaning of each column in the SELECT and in its subqueries, by node id.
    """

    select: exp.Select
    parent: SelectScope | None
    resolved: dict[int, Resolution]
    sources: list[Source] = field(default_factory=list)
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    merged: set[str] = field(default_factory=set)
    merges_outer: bool = False

    def find_source(self, qualifier: str) -> Source | None:
        """Find the FROM item of a name."""
        wanted = qualifier.lower()
        return next((s for s in self.sources if s.name.lower() == wanted), None)

    def find_sources_of(self, column: str) -> list[Source]:
        """Find the FROM items that have a column."""
        return [s for s in self.sources if s.place(column) is not None]


@dataclass(eq=False)
class Cte:
    """A WITH entry; its query is bound when it is first read, with the period in force there."""

    node: exp.CTE
    known: dict[str, Cte]
    parent: SelectScope | None
    body: Body | None = None
    period: Period | None = None
