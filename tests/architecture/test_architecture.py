"""What holds of the source as a whole: who imports what, how long files are, how they are named."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millpond"
FILES = sorted(SOURCE.rglob("*.py"))

#: One direction, bottom to top.
LAYERS = (
    ("errors",),
    ("work",),
    ("model",),
    ("cql",),
    ("catalog",),
    ("confined",),
    ("synopses",),
    ("operators",),
    ("planner",),
    ("engine",),
    ("state",),
    ("runtime",),
    ("service",),
    ("console",),
    ("api",),
    ("demo",),
    ("cli",),
    ("testing",),
)
RANK = {package: rank for rank, packages in enumerate(LAYERS) for package in packages}

#: Starts that must stay quick: what they import, they import whatever is asked of them.
LIGHT = ("millpond", "millpond.cli.main", "millpond.testing.local_runtime", "millpond.api.server")


def imports(file: Path) -> Iterator[str]:
    """The modules a file imports anywhere in it, but for type checkers."""
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def module(file: Path) -> str:
    return ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts)


def test_only_runtime_spark_imports_spark():
    importers = {
        module(file)
        for file in FILES
        for name in imports(file)
        if name.split(".")[0] in ("pyspark", "py4j")
    }
    assert importers
    assert {name for name in importers if not name.startswith("millpond.runtime.spark.")} == set()


@pytest.mark.parametrize("name", LIGHT)
def test_spark_is_imported_only_when_it_is_needed(name):
    code = f"import sys, {name}; print([m for m in sys.modules if m in ('pyspark', 'py4j')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert shown.stdout.strip() == "[]", shown.stderr


def test_packages_import_downwards_only():
    wrong = []
    for file in FILES:
        package = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if package not in RANK:
            continue  # __init__.py, which is what everybody sees
        for name in imports(file):
            parts = name.split(".")
            if parts[0] == "millpond" and len(parts) > 1:
                used = parts[1]
                if used != package and RANK[used] >= RANK[package]:
                    wrong.append(f"{module(file)} imports {name}")
    assert wrong == []


def test_the_oracle_shares_no_code_with_the_engine():
    """It has the language, the objects and the times of Millpond, and computes the rest itself."""
    shared = ("catalog", "cql", "errors", "model", "testing.manual_clock")
    for file in sorted((ROOT / "tests" / "oracle").glob("*.py")):
        for name in imports(file):
            if name.startswith("millpond."):
                assert name.removeprefix("millpond.").startswith(shared), f"{file.name}: {name}"
            assert not name.startswith("tests.tools"), f"{file.name}: {name}"


def test_every_package_has_a_layer():
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert packages | {"errors", "work"} == RANK.keys()


def test_no_file_is_longer_than_800_lines():
    long = {str(f): n for f in FILES if (n := len(f.read_text().splitlines())) > 800}
    assert long == {}


def test_no_module_is_a_drawer_for_odds_and_ends():
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert {str(f) for f in FILES if drawers & set(f.with_suffix("").parts[-2:])} == set()


def test_every_module_says_what_it_is():
    silent = [str(f) for f in FILES if not ast.get_docstring(ast.parse(f.read_text()))]
    assert silent == []


def imported_modules(file: Path) -> set[str]:
    """The modules of Millpond a file imports anywhere in it, for type checkers too."""
    known = {module(f).removesuffix(".__init__") for f in FILES}
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from package import module` imports the module, not what the package imports.
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= members & known or {node.module}
    return found & known


def test_no_modules_import_each_other_in_a_circle():
    graph = {module(f).removesuffix(".__init__"): imported_modules(f) for f in FILES}
    # Spark's data source is a client of a served pond, and reaches it as any client does.
    graph["millpond.runtime.spark.data_source"].discard("millpond")
    left = dict(graph)  # modules that import nothing that is left are peeled off
    while free := {name for name, used in left.items() if not used & left.keys() - {name}}:
        left = {name: used for name, used in left.items() if name not in free}
    assert left == {}


#: A folder with more files than this lacks a level.
WHAT_ONE_SEES = 25


def folder_sizes(top: Path) -> dict[str, int]:
    """How many files each folder below `top` holds itself, without what Python compiles."""
    files = [f for f in top.rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    return Counter(str(file.parent.relative_to(ROOT)) for file in files)


@pytest.mark.parametrize("top", ["src/millpond", "tests", "benchmarks", "examples"])
def test_no_folder_holds_more_than_25_files(top):
    sizes = folder_sizes(ROOT / top)
    assert len(sizes) > 1
    assert {folder: n for folder, n in sizes.items() if n > WHAT_ONE_SEES} == {}


def test_files_of_a_folder_are_counted():
    sizes = folder_sizes(ROOT / "tests" / "architecture")
    modules = list((ROOT / "tests" / "architecture").glob("*.py"))
    assert sizes == {"tests/architecture": len(modules)}


#: Names of two classes that are two forms of one idea.
TWO_FORMS = {
    "Followable": "the protocol that HTTP asks, and the handle that implements it",
    "Period": "BEGIN … END as written, and the window it is",
    "StreamHandle": "the protocol that HTTP asks, and the handle that implements it",
}


def test_a_class_name_means_one_thing():
    """But for `api/shapes`, which writes the package's classes down as JSON has them."""
    homes = defaultdict(set)
    for file in FILES:
        if file.parent != SOURCE / "api" / "shapes":
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].add(module(file))
    assert {name for name, places in homes.items() if len(places) > 1} == TWO_FORMS.keys()
