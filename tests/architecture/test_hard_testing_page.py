"""Each line of the page on hard testing is held by tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "hard_testing.md"
#: A line for each of twenty findings, and two for how they are checked.
LINES = 22


def test_every_line_is_held_by_tests_that_exist() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    held = [row for row in rows[1:] if not re.fullmatch(r"\| (---|\*\*.*\*\*) \| (---)? ?\|", row)]
    assert len(held) == LINES
    for row in held:
        tests = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", row)
        assert tests, row
        for file, name in tests:
            text = (ROOT / file).read_text()
            assert not name or f"def {name}(" in text, f"{file}::{name}"
