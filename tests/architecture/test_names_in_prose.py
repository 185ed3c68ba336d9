"""What the prose names exists: files, modules, classes and parameters, in pages and docstrings.

A name between backticks in a docstring or a comment is one that the file itself uses, that is
defined somewhere in the package, or that is a word of CQL, an option or a column (a string in the
code). So a renaming that forgets the prose fails here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millpond"
FILES = sorted(SOURCE.rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

#: Names that stand for any name of their kind: columns by number, hidden columns, subtables.
PLACEHOLDER = re.compile(r"c\d|leaf_\d|__\w+|[A-Z]")
#: Names that are neither Millpond's nor strings in its code.
OF_OTHERS = {
    "distance",  # an example of a function somebody registers
    "numba.extending.overload",
    "pond.db",  # the store's SQLite file
    "with",  # Python's statement
}

_QUOTED = re.compile(r"`([^`\n]+)`")
_SECTION = re.compile(r"^(Args|Attributes):\n((?:    .*\n?|\n)*)", re.M)
_DESCRIBED = re.compile(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*): ", re.M)

Documented = ast.Module | ast.ClassDef | ast.FunctionDef


def docstrings(tree: ast.Module) -> Iterator[tuple[Documented, int, str]]:
    """What a file documents: the module, class or function, its line, its docstring."""
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, node.body[0].lineno, text


def identifiers(tree: ast.Module) -> set[str]:
    """Every name a file's code uses, and every word of its strings; not those in docstrings."""
    prose = {id(node.body[0]) for node, _, _ in docstrings(tree)}
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        waiting += [child for child in ast.iter_child_nodes(node) if id(child) not in prose]
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.keyword(arg=str(name)) | ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.alias(name=name):
                found.update(name.split("."))
            case ast.ImportFrom(module=str(name)):
                found.update(name.split("."))
            case ast.Constant(value=str(text)):
                found.update(re.findall(r"\w+", text))
    return found


@cache
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text()) for file in FILES}


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """All classes by their names."""
    found: dict[str, list[ast.ClassDef]] = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


@cache
def defined() -> frozenset[str]:
    """The names of all modules, classes and functions, and the single words among strings."""
    found = {part for file in FILES for part in file.relative_to(ROOT).with_suffix("").parts}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.update([node.id] if node.id.isupper() else [])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update([node.value] if node.value.isidentifier() else [])
    return frozenset(found)


@cache
def paths() -> frozenset[str]:
    """Every file and folder of the repository, and every end of its path."""
    found = set()
    for top in ("src", "tests", "benchmarks", "examples", "docs", "."):
        for path in (ROOT / top).glob("*") if top == "." else (ROOT / top).rglob("*"):
            parts = path.relative_to(ROOT).parts
            found.update("/".join(parts[start:]) for start in range(len(parts)))
    return frozenset(found)


def is_known_path(text: str) -> bool:
    return text.rstrip("/").removeprefix("./") in paths()


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "CHANGELOG.md"],  # it tells what was
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_pages_name_files_and_modules_that_exist(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    wrong = []
    for name in _QUOTED.findall(prose):
        if re.fullmatch(r"[\w./-]+\.py", name) or re.fullmatch(r"(src|tests|docs)/[\w/.-]+", name):
            wrong += [] if is_known_path(name) else [name]
        elif re.fullmatch(r"millpond(\.\w+)+", name):
            wrong += [] if name.split(".")[-1] in defined() else [name]
    assert wrong == []


def unknown_names(text: str, known: set[str]) -> Iterator[str]:
    """Names between backticks that nothing in the code has."""
    for name in _QUOTED.findall(text):
        name = name.removesuffix("()")
        if name in OF_OTHERS:
            continue
        if re.fullmatch(r"[\w./-]+\.py", name):
            if not is_known_path(name):
                yield name
        elif re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", name):
            wrong = [
                part
                for part in name.split(".")
                if not (part in known or part in defined() or PLACEHOLDER.fullmatch(part))
            ]
            if wrong and not name.isupper():
                yield name


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_docstrings_and_comments_name_what_exists(file):
    tree = trees()[file]
    comments = re.findall(r"^\s*#.*$", file.read_text(), re.M)
    texts = [text for _, _, text in docstrings(tree)] + comments
    known = identifiers(tree)
    assert sorted({name for text in texts for name in unknown_names(text, known)}) == []


def parameters(node: Documented) -> set[str]:
    """What a function, or a class's constructor, takes."""
    if isinstance(node, ast.ClassDef):
        makers = [b for b in node.body if isinstance(b, ast.FunctionDef) and b.name == "__init__"]
        if not makers:
            return attributes(node)
        node = makers[0]
    assert isinstance(node, ast.FunctionDef)
    return {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}


def attributes(node: Documented) -> set[str]:
    """What a class declares, computes or assigns, and what it inherits from the package's own."""
    assert isinstance(node, ast.ClassDef)
    found: set[str] = set()
    for part in node.body:
        match part:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                found.update(ast.literal_eval(value))
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            found.add(part.attr)
    for base in node.bases:
        for other in classes().get(base.id, ()) if isinstance(base, ast.Name) else ():
            found |= attributes(other) if other is not node else set()
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_docstrings_describe_parameters_and_attributes_that_exist(file):
    wrong = []
    for node, line, text in docstrings(trees()[file]):
        for section, body in _SECTION.findall(text):
            if isinstance(node, ast.Module):
                continue
            have = parameters(node) if section == "Args" else attributes(node)
            for names in _DESCRIBED.findall(body):
                described = {name.strip().lstrip("*") for name in names.split(",")}
                wrong += [f"line {line}: {name}" for name in sorted(described - have)]
    assert wrong == []


def test_a_name_that_nothing_has_is_found():
    known = {"reader"}
    text = "As `reader` and `Pond` say, `no_such_name`, `no/such.py` and `Pond.no_such_method`."
    assert list(unknown_names(text, known)) == [
        "no_such_name",
        "no/such.py",
        "Pond.no_such_method",
    ]
