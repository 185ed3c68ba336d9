"""The SQL of a followed aggregate: partial values, and what is made of them."""

from __future__ import annotations

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.engine.promising.estimating import MATCHED, REST, SEEN, TOTAL, VALUED
from millpond.engine.promising.look import PANE, QUERY, STEP, EstimateSql
from millpond.model.schema import Field

#: Types whose sums are merged by adding; values of others are kept.
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")


def write_estimate_sql(select: exp.Select, output: tuple[Field, ...]) -> EstimateSql:
    """Write how aggregates are computed from panes.

    COUNT and SUM keep a number a pane, AVG two; MEDIAN, and AVG and SUM of anything but numbers,
    keep the values.

    Args:
        select: The aggregates over the leaf's slice; it is changed.
        output: The columns of the answer.
    """
    parts: list[exp.Expr] = []
    merged: list[str] = []
    answers: list[str] = []
    for number, (item, field) in enumerate(zip(select.expressions, output, strict=True)):
        call, name = item.unalias(), exp.to_identifier(field.name, quoted=True).sql("duckdb")
        kind = call.name.lower() if isinstance(call, exp.AnonymousAggFunc) else str(call.key)
        value = call.expressions[0] if isinstance(call, exp.AnonymousAggFunc) else call.this
        part = f"p{number}"
        if kind == "count":
            parts.append(exp.alias_(call.copy(), part))
            merged.append(f"CAST(sum({part}) AS BIGINT) AS {part}")
            made = f"coalesce(sum({part}), 0)"
        elif kind in ("sum", "avg") and field.type.startswith(_NUMBERS):
            parts.append(exp.alias_(exp.Sum(this=value.copy()), part))
            merged.append(f"sum({part}) AS {part}")
            made = f"sum({part})"
            if kind == "avg":
                parts.append(exp.alias_(exp.Count(this=value.copy()), f"{part}n"))
                merged.append(f"CAST(sum({part}n) AS BIGINT) AS {part}n")
                made = f"CAST(sum({part}) AS DOUBLE) / nullif(sum({part}n), 0)"
        else:
            values = exp.Anonymous(this="list", expressions=[value.copy()])
            known = exp.Is(this=value.copy(), expression=exp.Null()).not_()
            parts.append(
                exp.alias_(exp.Filter(this=values, expression=exp.Where(this=known)), part)
            )
            merged.append(f"flatten(list({part}) FILTER ({part} IS NOT NULL)) AS {part}")
            made = f"list_aggregate(flatten(list({part})), '{kind}')"
        answers.append(f"CAST({made} AS {field.type}) AS {name}")
    parts.append(exp.alias_(exp.Count(this=exp.Star()), MATCHED))
    keys = [exp.column(name) for name in (QUERY, PANE, STEP)]
    select.set("expressions", [*keys, *parts])
    select.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    counts = [
        f"CAST(coalesce(sum({n}), 0) AS BIGINT) AS {n}" for n in (SEEN, TOTAL, MATCHED, VALUED)
    ]
    counts.append(f"coalesce(sum({REST}), 0) AS {REST}")
    return EstimateSql(
        to_duckdb(select),
        f"SELECT {QUERY}, {PANE}, {', '.join([*counts, *merged])} FROM parts"
        f" GROUP BY {QUERY}, {PANE} ORDER BY {QUERY}, {PANE}",
        f"SELECT s.{QUERY}, s.{STEP}, {', '.join([*answers, *counts])} FROM steps AS s"
        f" LEFT JOIN parts AS p ON p.{QUERY} = s.{QUERY} AND p.{STEP} <= s.{STEP}"
        f" AND p.{PANE} BETWEEN s.low AND s.high GROUP BY ALL ORDER BY s.{QUERY}, s.{STEP}",
    )
