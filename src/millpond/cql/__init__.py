"""The language: text to statements and query trees, and back.

`parse_script`, `parse_statement` and `parse_query` read; `print_statement` and `print_query` write.
The nodes CQL adds to SQL's and the translation to DuckDB's SQL are in `millpond.cql.print.dialect`.
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
