"""The language: text to statements and query trees, and back.

From the bottom up: `tree` has the statements and the nodes CQL adds to SQL's; `parse` reads text,
with tokens, a cursor, and a reader for each kind of clause; `print` writes CQL for people and
DuckDB's SQL for evaluation; `script` splits a text at its semicolons. Outside this package, callers
use the functions below: `parse_script`, `parse_statement` and `parse_query` read, `print_statement`
and `print_query` write, `to_duckdb` translates.
"""

from __future__ import annotations

from millpond.cql.print.dialect import parse_query, to_duckdb
from millpond.cql.print.printer import print_query, print_statement
from millpond.cql.script import parse_script, parse_statement
from millpond.cql.tree.places import span_of

__all__ = [
    "parse_query",
    "parse_script",
    "parse_statement",
    "print_query",
    "print_statement",
    "span_of",
    "to_duckdb",
]
