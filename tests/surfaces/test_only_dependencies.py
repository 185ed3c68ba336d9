"""Millpond runs with what `pyproject.toml` names as its dependencies, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]

#: What every process of Python begins with: modules of other distributions are not to be found.
_HIDE = """
import sys
from importlib.machinery import PathFinder
class Known(PathFinder):
    hidden = frozenset({names!r})
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in cls.hidden:
            return None
        return super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Known
"""


def list_needed() -> set[str]:
    """The distributions that are installed with Millpond, without extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed: set[str] = set()
    waiting = [Requirement(text) for text in project["dependencies"]]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in needed and not requirement.extras:
            continue
        needed.add(name)
        for text in metadata.requires(name) or ():
            found = Requirement(text)
            extras = [*requirement.extras, ""]
            if found.marker is None or any(found.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(found)
    return needed


def list_others() -> list[str]:
    """The modules here that would not be there."""
    needed = list_needed() | {"millpond", "pip"}
    return sorted(
        module
        for module, owners in metadata.packages_distributions().items()
        if module.isidentifier() and not needed & {canonicalize_name(owner) for owner in owners}
    )


def test_rows_are_taken_and_shown(tmp_path: Path) -> None:
    others = list_others()
    assert "pytest" in others  # something is hidden
    (tmp_path / "sitecustomize.py").write_text(_HIDE.format(names=others))
    script = tmp_path / "script.cql"
    script.write_text(
        "CREATE STREAM s (at TIMESTAMP, v INTEGER) TIMESTAMP BY at;"
        "CREATE QUERY q AS SELECT sum(v) AS total FROM s [RANGE 1 HOUR];"
        "INSERT INTO s VALUES ('2026-03-01 10:00:00', 17), ('2026-03-01 10:01:00', 25);"
        "INVOKE q;"
    )
    paths = [str(tmp_path), str(ROOT / "src")]
    ran = subprocess.run(
        [sys.executable, "-m", "millpond.cli.main", "run", str(script), "--format", "csv"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ran.returncode, ran.stdout.split()[-2:]) == (0, ["total", "42"]), ran.stderr
