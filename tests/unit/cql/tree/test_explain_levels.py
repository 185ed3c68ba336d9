"""The levels of EXPLAIN: all who name levels name these."""

from __future__ import annotations

import pytest

from millpond.cql.parse.keywords import KEYWORDS
from millpond.cql.script import parse_script
from millpond.cql.tree.explain_levels import Level
from millpond.cql.tree.statements import Explain


@pytest.mark.parametrize("level", Level)
def test_a_level_is_its_name_and_says_what_it_shows(level: Level) -> None:
    assert level == level.name.lower() == str(level)
    assert Level(level.value) is level
    assert level.shows
    assert level.name in KEYWORDS


@pytest.mark.parametrize("level", Level)
def test_every_level_is_read(level: Level) -> None:
    (statement,) = parse_script(f"EXPLAIN {level} SELECT 1 AS one;")
    assert isinstance(statement, Explain)
    assert statement.level == level
    (named,) = parse_script(f"EXPLAIN {level};")
    assert isinstance(named, Explain)
    assert (named.level, named.name) == (Level.LOGICAL, str(level))
