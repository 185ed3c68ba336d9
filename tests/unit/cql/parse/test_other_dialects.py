"""What other systems have and CQL has not: the error says what to write."""

from __future__ import annotations

import pytest

from millpond.cql import parse_statement
from millpond.cql.parse.other_dialects import is_file_reader, show_hint, start_hint
from millpond.errors import MillpondError


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("SELECT v FROM s EMIT CHANGES", "CREATE QUERY name AS"),
        ("SELECT v FROM s WINDOW TUMBLING (SIZE 1 MINUTE)", "[RANGE 1 MINUTE SLIDE 1 MINUTE]"),
        ("SELECT TOP 5 v FROM s", "LIMIT 5"),
        ("SELECT TOP (5) v FROM s", "LIMIT 5"),
        ("SELECT * FROM 'a.csv'", "CREATE RELATION name"),
        ("TRUNCATE r", "DELETE FROM"),
        ("MERGE INTO r USING s", "UPDATE"),
        ("BEGIN", "no transactions"),
        ("USE db", "one database"),
        ("SHOW TABLES", "SHOW RELATIONS"),
    ],
)
def test_the_hint_says_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(MillpondError) as raised:
        parse_statement(text)
    assert advice in (raised.value.hint or "")


def test_words_of_no_system_get_no_hint() -> None:
    assert start_hint("frobnicate") is None
    assert show_hint("FROBS") is None
    assert is_file_reader("read_parquet")
    assert not is_file_reader("unnest")
