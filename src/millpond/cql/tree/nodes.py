"""The syntax nodes CQL adds to SQL's: windows, periods and relation-to-stream operators.

They are sqlglot expressions, so that sqlglot copies, compares, walks and prints whole trees.
Durations and instants in them are plain ints of microseconds, names are identifiers as written.
"""

from __future__ import annotations

from sqlglot import exp

#: Argument of a table or a subquery: the percentage (a number literal) of `SAMPLE(p)`.
STREAM_SAMPLE = "stream_sample"
#: Argument of a table: its `StreamWindow`.
WINDOW = "window"
#: Argument of a SELECT: its `Period`.
PERIOD = "period"
#: Argument of a column of PARTITION BY: its qualifier, until the stream's alias is known.
QUALIFIER = "qualifier"
#: Argument of a SELECT: its `Preference`.
PREFERENCE = "preference"
#: Key of the meta of a node that replaced a call: the call's text.
WRITTEN = "written"
#: Argument of EXCEPT ALL: the identifiers of `BY (a, ...)`.
BY_ATTRIBUTES = "by_attributes"


class StreamWindow(exp.Expression):
    """A window in brackets behind a stream's name (SEMANTICS, section 2).

    Its arguments, in sqlglot's sense:
        kind: 'now', 'unbounded', 'range' or 'rows'.
        size: Microseconds, for 'range'.
        slide: Microseconds, for 'range' with SLIDE.
        rows: The count, for 'rows'.
        by: Identifiers of PARTITION BY, for 'rows'.
        where: The predicate inside the brackets.
    """

    arg_types = {  # noqa: RUF012 - sqlglot's own shape
        "kind": True,
        "size": False,
        "slide": False,
        "rows": False,
        "by": False,
        "where": False,
    }


class PeriodBound(exp.Expression):
    """An end of a `BEGIN b END e`: an `instant`, or NOW plus `offset` microseconds."""

    arg_types = {"instant": False, "offset": False}  # noqa: RUF012


class Period(exp.Expression):
    """PSoup's `BEGIN b END e`, over every stream of a SELECT's FROM clause."""

    arg_types = {"begin": True, "end": True}  # noqa: RUF012


class SummaryEstimate(exp.Expression, exp.Func):
    """`SUMMARY(this).ESTIMATE.kind(expressions)`: what a summary says of some values.

    `this` is the summary's identifier, `kind` one of the names in `millpond.model.summaries`, in
    lower case; `inside` is the name of the function that computes it in DuckDB, once it is bound.
    """

    arg_types = {  # noqa: RUF012
        "this": True,
        "kind": True,
        "expressions": False,
        "inside": False,
    }


class Preference(exp.Expression):
    """`WITH PREFERENCE order this FADE FACTOR fade BUDGET budget` behind the outermost SELECT.

    Its arguments, in sqlglot's sense:
        order: 'asc', 'desc' or 'weighted'.
        this: The expression of estimates.
        fade: What the priority is multiplied by with every older granularity; a float, 1 without.
        budget: A `millpond.model.budget.Budget`, or None.
    """

    arg_types = {"order": True, "this": True, "fade": True, "budget": False}  # noqa: RUF012


class RelationToStream(exp.Expression):
    """`ISTREAM(query)`, `DSTREAM(query)` or `RSTREAM(query)`; `kind` is the operator's name."""

    arg_types = {"this": True, "kind": True}  # noqa: RUF012


try:
    Period(begin=PeriodBound(offset=0), end=PeriodBound(offset=0))
except TypeError as error:
    raise ImportError(
        "Millpond extends sqlglot's classes, which sqlglot's compiled build does not allow: "
        "uninstall sqlglotc"
    ) from error
