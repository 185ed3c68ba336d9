"""Which constants of a query may be replaced by others without binding it again."""

from __future__ import annotations

import pytest
from sqlglot.tokenizer_core import TokenType
from tests.unit.planner.refusing import Binding

from millpond.cql.parse.tokens import tokenize
from millpond.planner.bind.liftable import find_liftable


@pytest.mark.parametrize(
    ("text", "lifted"),
    [
        ("SELECT delay + 1 FROM flights WHERE delay > 2", ["2"]),
        ("SELECT delay FROM flights WHERE delay BETWEEN 1 AND -2 OR distance IN (3, 4)", "1234"),
        ("SELECT delay FROM flights WHERE delay > 60 * (2 + 3)", ["60", "2", "3"]),
        ("SELECT delay FROM flights WHERE carrier = 'AA' OR carrier LIKE 'B%'", ["AA", "B%"]),
        ("SELECT delay FROM flights WHERE ts > '2020-01-01 00:00:00'", ["2020-01-01 00:00:00"]),
        ("SELECT delay FROM flights WHERE abs(delay - 5) > 6", ["6"]),
        ("SELECT delay FROM flights ORDER BY delay LIMIT 7", []),
        ("SELECT carrier FROM flights GROUP BY carrier HAVING count(*) > 8", ["8"]),
        ("SELECT carrier FROM flights GROUP BY carrier HAVING carrier > 'x'", []),
        ("SELECT delay > 9 AS late FROM flights", []),
    ],
)
def test_constants_that_are_compared_are_lifted(
    binding: Binding, text: str, lifted: list[str] | str
) -> None:
    kinds = (TokenType.NUMBER, TokenType.STRING)
    constants = [token for token in tokenize(text) if token.token_type in kinds]
    found = sorted(number for number, _, _ in find_liftable(binding(text), constants))
    assert [constants[number].text for number in found] == list(lifted)
