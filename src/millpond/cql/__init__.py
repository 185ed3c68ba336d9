"""The language: text to statements and query trees, and back.

`parse_script`, `parse_statement` and `parse_query` read; `print_statement` and `print_query` write.
The nodes CQL adds to SQL's and the translation to DuckDB's SQL are in `millpond.cql.dialect`.
"""

from __future__ import annotations

from millpond.cql.dialect import parse_query, to_duckdb
from millpond.cql.places import span_of
from millpond.cql.printer import print_query, print_statement
from millpond.cql.script import parse_script, parse_statement

__all__ = [
    "parse_query",
    "parse_script",
    "parse_statement",
    "print_query",
    "print_statement",
    "span_of",
    "to_duckdb",
]
