"""Each line of the pages that say what tests hold is held by tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "design"


#: How many lines each page has, so that none is lost: of hard testing, one for each of twenty
#: findings and two for how they are checked.
@pytest.mark.parametrize(
    ("page", "lines"),
    [
        ("hard_testing.md", 22),
        ("every_day.md", 65),
        ("out_in_the_world.md", 65),
        ("core.md", 32),
        ("on_a_cluster.md", 21),
    ],
)
def test_every_line_is_held_by_tests_that_exist(page: str, lines: int) -> None:
    rows = [line for line in (PAGES / page).read_text().splitlines() if line.startswith("| ")]
    held = [row for row in rows[1:] if not re.fullmatch(r"\| (---|\*\*.*\*\*) \| (---)? ?\|", row)]
    assert len(held) == lines
    for row in held:
        tests = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", row)
        assert tests, row
        for file, name in tests:
            text = (ROOT / file).read_text()
            assert not name or f"def {name}(" in text, f"{file}::{name}"
