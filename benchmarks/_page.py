"""Writes the results there are into `docs/benchmarks.md`, and keeps the pictures it shows.

A table stands between `<!-- result: NAME -->` and `<!-- end -->`. It is replaced if a benchmark has
left `results/NAME.json`, and stays as it is if none has.

    python benchmarks/_page.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from _harness import RESULTS, as_text

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
_BLOCK = re.compile(r"(<!-- result: (\w+) -->\n)(.*?)(<!-- end -->)", re.S)


def table(result: dict[str, Any]) -> str:
    """A result as Markdown: where and when it was measured, and its rows."""
    lines = [result["measured"], ""] if "measured" in result else []
    heads = [head or " " for head in result["columns"]]
    lines += [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
    lines += [f"| {' | '.join(as_text(value) for value in row)} |" for row in result["rows"]]
    return "\n".join(lines) + "\n"


def write(page: str, results: Path) -> str:
    """The page with the tables of the results there are."""

    def fill(found: re.Match[str]) -> str:
        path = results / f"{found[2]}.json"
        if not path.exists():
            return found[0]
        return found[1] + table(json.loads(path.read_text())) + found[4]

    return _BLOCK.sub(fill, page)


if __name__ == "__main__":
    PAGE.write_text(write(PAGE.read_text(), RESULTS))
