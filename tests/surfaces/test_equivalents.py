"""The table of equivalents: each statement that stands for one of another system is taken."""

from __future__ import annotations

import re
from pathlib import Path

from millpond.testing.local_runtime import open_local

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "other_systems.md"


def list_statements() -> dict[str, str]:
    """By what it is for, the statement of each row's last column."""
    section = PAGE.read_text().partition("## Flink, Materialize")[2]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    return {cells[0]: cells[-1].strip("`") for cells in rows[2:]}


def test_the_statements_of_the_table_are_taken(tmp_path: Path) -> None:
    statements = list_statements()
    assert len(statements) > 10
    assert re.match("CREATE STREAM", next(iter(statements.values())))
    with open_local(tmp_path / "pond") as pond:
        for what, statement in statements.items():
            if statement.startswith("INVOKE"):  # an answer needs an instant to be of
                pond.ingest(
                    "trades", [{"ts": "2026-03-01 11:00:00", "symbol": "A", "price": 150.0}]
                )
                pond.catch_up()
            done = pond.execute(statement)
            assert all(result.statement for result in done), what
        assert pond.query("dear").definition.text.endswith("price > 200")
