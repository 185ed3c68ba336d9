"""Outlines and shapes are of texts alone, and see the same constants."""

from __future__ import annotations

import subprocess
import sys

import pytest

from millpond.cql.parse.tokens import tokenize
from millpond.planner.bind.text_outline import find_constants, outline_text, shape_of

TEXTS = [
    "SELECT a FROM s WHERE b > 60 AND c = 'it''s'",
    "SELECT a1 FROM s [RANGE 5 SECONDS] WHERE x.b2 = .5 OR b = 1.25",
    "SELECT 'a' || b FROM s WHERE n = 6000000000",
]


@pytest.mark.parametrize("text", TEXTS)
def test_constants_are_where_the_tokens_are(text: str) -> None:
    outline, values = outline_text(text)
    _, constants = shape_of(tokenize(text))
    if values == [token.text for token in constants]:
        assert find_constants(text) == [(token.start, token.end + 1) for token in constants]
    assert len(values) == outline.count("\0")


def test_other_constants_of_the_same_kinds_have_the_same_outline() -> None:
    one, two = (outline_text(text)[0] for text in (TEXTS[0], TEXTS[0].replace("60", "61")))
    assert one == two
    assert outline_text(TEXTS[0].replace("60", "60.5"))[0] != one


def test_nothing_is_bound_or_compiled_for_it() -> None:
    code = (
        "import sys; import millpond.planner.bind.text_names;"
        "sys.exit('millpond.planner.bind.bind' in sys.modules or 'numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
