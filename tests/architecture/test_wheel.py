"""What a wheel holds: every file of the package, and types that its users' checkers see."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millpond"

USER = """
import millpond

reveal_type(millpond.connect("http://localhost:6455"))
millpond.connect(6455)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as setuptools lays it into a wheel; needs no network."""
    folder = tmp_path_factory.mktemp("wheel")
    program = "import setuptools; setuptools.setup()"
    steps = ["egg_info", "--egg-base", folder, "build_py", "--build-lib", folder / "lib"]
    done = subprocess.run(
        [sys.executable, "-c", program, "-q", *map(str, steps)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "lib" / "millpond"


def files(package: Path) -> set[str]:
    return {
        str(path.relative_to(package))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_one_duckdb_is_allowed_which_is_that_of_the_tests() -> None:
    """2.0.1 finds another row for 0.0 in a join, and splits an empty text otherwise than 2.0.0."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = [name for name in project["dependencies"] if name.startswith("duckdb")]
    assert len(allowed) == 1
    assert allowed[0].startswith("duckdb==")
    assert allowed[0] in (ROOT / "requirements.lock").read_text().splitlines()


def test_a_wheel_holds_every_file_of_the_package(built: Path) -> None:
    assert files(built) == files(SOURCE)
    assert "py.typed" in files(built)


def test_users_of_an_installed_package_see_its_types(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    [packages] = tmp_path.glob("venv/lib/python*/site-packages")
    shutil.copytree(built, packages / "millpond")
    (tmp_path / "user.py").write_text(USER)
    options = ["--config-file=", "--cache-dir=.mypy_cache", f"--python-executable={python}"]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "user.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    revealed, refused, _ = checked.stdout.splitlines()
    assert 'Revealed type is "millpond.api.client.blocking.RemotePond"' in revealed
    assert 'incompatible type "int"; expected "str | None"' in refused
