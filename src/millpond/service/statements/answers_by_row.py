"""Expressions of UPDATE and DELETE whose queries read the row, and those behind ANY and ALL.

Such an expression is answered for all rows at once, by one query over the relation as of the
statement's instant: `SELECT a, b, expression FROM r`. What it gives for a row is a
function of the row's values, so the statement looks the row's values up in the answer. The query
is evaluated like any other, with its limits, and where it can be ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond.catalog.objects import RelationDef
from millpond.cql import print_query
from millpond.model.duckdb_words import quote_name
from millpond.model.schema import leaf_types

if TYPE_CHECKING:
    from millpond.service.components import Components

#: The types whose values SQL finds equal although a function can tell them apart: 0.0 and -0.0.
_TOLD_APART_AS_TEXT = ("FLOAT", "DOUBLE")


def answer_by_row(
    value: exp.Expression, relation: RelationDef, components: Components, at: int
) -> pa.Table:
    """Answer an expression for each row that a relation holds at an instant.

    Returns:
        The relation's columns as `c0`, `c1`, …, and the expression's value as `answer`.

    Raises:
        MillpondError: what invoking the query raises.
    """
    names = [quote_name(name) for name in relation.schema.names]
    name = quote_name(relation.name)
    columns = ", ".join(f"{name}.{column} AS c{n}" for n, column in enumerate(names))
    text = f"SELECT {columns}, ({print_query(value)}) AS answer FROM {name}"
    components.inputs.wait(text)
    return components.invoker.invoke(components.registrar.prepare_once(text), at).table


def look_up_row(table: str, relation: RelationDef) -> str:
    """Write DuckDB's SQL that looks a relation's row up in the answers of `answer_by_row`.

    A row that is not there came to the relation after the query was answered, and fails.
    """
    same = []
    for n, field in enumerate(relation.schema.fields):
        own, answered = f"{quote_name(relation.name)}.{quote_name(field.name)}", f"g.c{n}"
        if not leaf_types(field.type).isdisjoint(_TOLD_APART_AS_TEXT):
            own, answered = f"CAST({own} AS VARCHAR)", f"CAST({answered} AS VARCHAR)"
        same.append(f"{answered} IS NOT DISTINCT FROM {own}")
    missing = "error('the relation was changed meanwhile' || substr('', count(*)))"
    found = f"CASE WHEN count(*) = 0 THEN {missing} ELSE any_value(g.answer) END"
    return f"(SELECT {found} FROM {table} AS g WHERE {' AND '.join(same)})"
