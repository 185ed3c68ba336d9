"""The page of figures names benchmarks, pictures and results that exist."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
PEERS = ROOT / "benchmarks" / "peers"
#: Experiments of the papers in the table.
LINES = 22


def _experiments() -> list[list[str]]:
    part = PAGE.read_text().split("## The papers' experiments")[1]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return rows[2:]


def test_every_experiment_has_a_benchmark_that_exists_and_draws_its_picture() -> None:
    found = _experiments()
    assert len(found) == LINES
    for about, benchmark, pictures in found:
        text = (ROOT / benchmark.strip("`")).read_text()
        for name in re.findall(r"`(\w+)`", pictures):
            assert f'"{name}' in text, f"{about}: {benchmark} draws no {name}"
        for link in re.findall(r"\]\(([^)]+)\)", pictures):
            assert (PAGE.parent / link.partition("#")[0]).exists(), link


def test_every_command_and_file_of_the_page_exists() -> None:
    text = PAGE.read_text()
    names = re.findall(r"make bench NAME=(\w+)", text)
    assert names
    for name in names:
        assert (ROOT / "benchmarks" / f"{name}.py").exists(), name


def test_results_are_written_into_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    page = runpy.run_path(str(ROOT / "benchmarks" / "_page.py"))
    result = {"title": "T", "measured": "Here.", "columns": ["a", ""], "rows": [[1234, None]]}
    (tmp_path / "one.json").write_text(json.dumps(result))
    text = "x\n<!-- result: one -->\nold\n<!-- end -->\n<!-- result: two -->\nkept\n<!-- end -->\n"
    assert page["write"](text, tmp_path) == (
        "x\n<!-- result: one -->\nHere.\n\n| a |   |\n| --- | --- |\n| 1,234 | – |\n<!-- end -->\n"
        "<!-- result: two -->\nkept\n<!-- end -->\n"
    )


def test_every_peer_says_what_was_done_for_it_and_is_installed_in_that_version() -> None:
    makefile = (ROOT / "Makefile").read_text()
    versions = (PEERS / "java" / "pom.xml").read_text() + makefile
    standing = (PEERS / "standing.py").read_text()
    for name, program, version in (
        ("Esper 9.0.0", "java/EsperMatching.java", "<version>9.0.0</version>"),
        ("Lucene Monitor 9.11.1", "java/LuceneMatching.java", "<version>9.11.1</version>"),
        ("bytewax", "bytewax_matching.py", "bytewax=="),
        ("Pathway", "pathway_matching.py", "pathway=="),
    ):
        assert name in standing
        assert version in versions
        words = re.sub(r"[\s*]+", " ", (PEERS / program).read_text())
        assert re.search(r"documentation('s chapter on performance)? advises", words), program
