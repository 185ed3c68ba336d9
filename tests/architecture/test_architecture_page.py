"""ARCHITECTURE.md names the packages and their rooms as import-linter checks them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "ARCHITECTURE.md"

Layers = list[frozenset[str]]


def page_rows() -> list[tuple[str, str]]:
    """The table of layers: the cell of packages, and that of rooms."""
    rows = re.findall(r"^\| (`.*?) \| .*? \| (.*?)\|$", PAGE.read_text(), re.M)
    assert len(rows) >= 10
    return rows


def layers_of(cell: str) -> Layers:
    """`a` · `b`, `c` as two layers, of which the first has two parts."""
    return [
        frozenset(re.findall(r"`(\w+)`", part)) for part in re.split(r"[,;]", cell) if "`" in part
    ]


def contracts() -> dict[str, Layers]:
    """What import-linter checks, bottom to top, by the package: '' for the packages themselves."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return {
        contract.get("containers", ["millpond"])[0].removeprefix("millpond").removeprefix("."): [
            frozenset(name.strip().removeprefix("millpond.") for name in layer.split(":"))
            for layer in reversed(contract["layers"])
        ]
        for contract in tool["contracts"]
        if contract["type"] == "layers"
    }


def test_the_page_lists_the_packages_in_their_order():
    assert [layer for cell, _ in page_rows() for layer in layers_of(cell)] == contracts()[""]


@pytest.mark.parametrize("package", [name for name in contracts() if name])
def test_the_page_lists_the_rooms_of_a_package_in_their_order(package):
    (rooms,) = [rooms for cell, rooms in page_rows() if cell == f"`{package}`"]
    assert layers_of(rooms) == contracts()[package]
