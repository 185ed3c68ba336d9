"""A browser for the tests of the console, and a served pond without Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millpond.service.pond import Pond

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "over_http"))

from browser import Browser, Missing, find_programs
from served import Served, serve

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests of a run."""
    try:
        programs = find_programs()
    except Missing as missing:
        pytest.skip(str(missing))
    with Browser(*programs) as browser:
        yield browser


@pytest.fixture
def served(pond: Pond) -> Iterator[Served]:
    """The pond of three flights, served on a port of this machine."""
    with serve(pond) as served:
        yield served


@pytest.fixture
def page(served: Served, browser: Browser) -> Callable[[str], Browser]:
    """Opens a page of the console as somebody who was never there."""

    def open_page(path: str = "#/write") -> Browser:
        browser.forget(served.url)
        browser.open(f"{served.url}/{path}")
        return browser

    return open_page


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with their packages."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("Node is not installed: the console is not checked anew")
    copied = tmp_path_factory.mktemp("console") / "console"
    shutil.copytree(ROOT / "console", copied, ignore=shutil.ignore_patterns("node_modules"))
    command = ["npm", "ci", "--no-audit", "--no-fund", "--prefer-offline"]
    limits = ["--fetch-retries=1", "--fetch-timeout=60000"]
    try:
        done = subprocess.run(
            [*command, *limits], cwd=copied, capture_output=True, text=True, timeout=240
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm did not answer: the console is not checked anew")
    if done.returncode:
        pytest.skip(f"npm cannot be had: the console is not checked anew. {done.stderr[-500:]}")
    return copied
