"""The words that the shell completes are those of the language."""

from __future__ import annotations

import re
from pathlib import Path

from millpond.cql.parse.keywords import KEYWORDS

STATEMENTS = Path(__file__).parents[3] / "docs" / "spec" / "statements.md"


def test_every_keyword_of_the_grammar_is_completed() -> None:
    blocks = re.findall(r"^```text\n(.*?)^```", STATEMENTS.read_text(), re.M | re.S)
    words = {word for block in blocks for word in re.findall(r"\b[A-Z]{2,}\b", block)}
    assert len(words) > 80
    assert words - {*KEYWORDS, "MB", "NAME"} == set()


def test_keywords_are_in_order_and_none_is_listed_twice() -> None:
    assert list(KEYWORDS) == sorted(set(KEYWORDS))
