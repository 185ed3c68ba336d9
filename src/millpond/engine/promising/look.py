"""What a task has to know of a followed query that looks at the most promising part first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from sqlglot import exp

from millpond.engine.predicates.factors import Factors, factorize
from millpond.model.schema import Schema
from millpond.model.windows import Window
from millpond.planner.bind.preference import BoundPreference
from millpond.planner.resolve.pushdown import split_conjuncts

#: Columns of a row inside a query: the priority of the region it was found in, the last instant of
#: the step, the number of the query, and the pane that the element lies in.
PRIORITY, STEP, QUERY, PANE = "__priority", "__step", "__query", "__pane"


def factors_over(predicate: exp.Expr | None, column: str, schema: Schema) -> Factors | None:
    """The conjuncts of a predicate over one column alone; None if there are none.

    Elements whose value they exclude need not be looked at: they are the selection predicate on top
    of the summary (figure 8).
    """
    own = [
        conjunct
        for conjunct in split_conjuncts(predicate)
        if {c.name for c in conjunct.find_all(exp.Column)} == {column}
    ]
    if not own:
        return None
    joined = own[0].copy() if len(own) == 1 else exp.and_(*own, copy=True)
    return factorize(cast(exp.Expression, joined), schema)


@dataclass(frozen=True, eq=False)
class LookedStream:
    """A stream leaf of such a query.

    Attributes:
        stream: The stream's name.
        schema: Its columns.
        table: The leaf's name in the query's SQL.
        columns: The columns the SQL needs.
        window: The leaf's window.
        factors: Its predicate; None if every element matches.
        key: The column whose values regions are made of.
        allowed: The conjuncts over the key alone; None if any value may match.
    """

    stream: str
    schema: Schema
    table: str
    columns: tuple[str, ...]
    window: Window
    factors: Factors | None
    key: str
    allowed: Factors | None = None


@dataclass(frozen=True)
class EstimateSql:
    """How a followed aggregate is computed from partial values, in DuckDB's SQL.

    Attributes:
        partial: The partial values of new rows, by query, pane and step.
        merge: Those of some steps together, by query and pane.
        answer: The aggregates by query and step: of the panes in the step's window, as they were
            then.
    """

    partial: str
    merge: str
    answer: str


@dataclass(frozen=True, eq=False)
class Look:
    """A followed query with a preference and a budget.

    Attributes:
        kind: 'selection', 'join' or 'aggregate'.
        streams: Its leaves.
        preference: What it wants to see first.
        weight: Its share of a time that many queries have together.
        sql: The query over its leaves' tables, with `PRIORITY`, `STEP` and `QUERY` as the last
            columns; of a join, row i of both tables is a joined row.
        line: The length of a step, in microseconds: a line of the summary that ranks.
        columns: The names of the answer's columns.
        aggregates: Of an aggregate, the function of each column.
        estimate: Of an aggregate, how it is computed; `sql` is empty.
        known: Of an aggregate, the columns that are the SUM of the very column that ranks.
    """

    kind: str
    streams: tuple[LookedStream, ...]
    preference: BoundPreference
    weight: float
    sql: str
    columns: tuple[str, ...]
    line: int
    aggregates: tuple[str, ...] = ()
    estimate: EstimateSql | None = None
    known: tuple[int, ...] = ()

    @property
    def zoned(self) -> int:
        """The leaf whose zones are ranked: the last one that the preference estimates."""
        return max(n for n, name in enumerate(self.preference.attributes) if name is not None)

    @property
    def family(self) -> tuple[object, ...]:
        """Equal for queries whose regions are those of one stream's (or two streams') values.

        Aggregates of a family have one window: they have a step wherever its contents change.
        """
        summaries = sorted({(e.leaf, e.estimate.summary.id) for e in self.preference.estimates})
        streams = tuple((leaf.stream, leaf.key) for leaf in self.streams)
        windows = tuple(leaf.window for leaf in self.streams if self.kind == "aggregate")
        return (self.kind, streams, self.zoned, tuple(summaries), windows)
