"""The walks of docs/tour/walks.md can be walked: each step exists and calls the next one."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tour" / "walks.md"
_STEP = re.compile(r"^\| \[`([\w.]+)`\]\(([^)]+)\) \|", re.M)


def walks() -> list[list[tuple[str, Path]]]:
    """The tables of the page: each a list of steps, by name and file."""
    tables = re.split(r"\n\n(?=\| step)", PAGE.read_text())[1:]
    return [
        [(name, (PAGE.parent / file).resolve()) for name, file in _STEP.findall(table)]
        for table in tables
    ]


def find_function(name: str, file: Path) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """A function of a module, or a method of a class of it."""
    scope: ast.AST = ast.parse(file.read_text())
    for part in name.split("."):
        found = [
            node
            for node in ast.iter_child_nodes(scope)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == part
        ]
        assert found, f"{file.name} has no {name}"
        scope = found[0]
    assert isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef), name
    return scope


def is_of_protocol(name: str, file: Path) -> bool:
    """Whether a method is of a protocol: the next step is its implementation."""
    return any(
        isinstance(node, ast.ClassDef)
        and node.name == name.split(".")[0]
        and any("Protocol" in ast.unparse(base) for base in node.bases)
        for node in ast.parse(file.read_text()).body
    )


def names_used(function: ast.AST) -> set[str]:
    """The functions and methods that a function names: it calls them, or hands them on."""
    nodes = list(ast.walk(function))
    return {n.attr for n in nodes if isinstance(n, ast.Attribute)} | {
        n.id for n in nodes if isinstance(n, ast.Name)
    }


def test_the_page_has_the_three_walks():
    assert len(re.findall(r"^## From ", PAGE.read_text(), re.M)) == 3
    assert len(walks()) >= 9
    assert all(len(walk) >= 3 for walk in walks())


@pytest.mark.parametrize("walk", walks(), ids=lambda walk: f"{walk[0][0]} to {walk[-1][0]}")
def test_every_step_calls_the_next(walk):
    for (name, file), (next_name, next_file) in pairwise(walk):
        step, called = find_function(name, file), next_name.split(".")[-1]
        find_function(next_name, next_file)
        if is_of_protocol(name, file):
            assert name.split(".")[-1] == called, f"{next_name} does not implement {name}"
        else:
            assert called in names_used(step), f"{name} does not call {next_name}"
