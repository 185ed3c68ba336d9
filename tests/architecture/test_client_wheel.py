"""The distribution millpond-client: the files the client imports, and no others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from tests.faults.local_server import serve_local

ROOT = Path(__file__).parents[2]

#: Prints the files that the client imports, and what the whole alone can do.
IMPORTED = """
import sys, millpond, millpond.api.client
print("\\n".join(m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "millpond"))
try:
    millpond.open()
except ImportError as error:
    print(error, file=sys.stderr)
"""

#: A program of somebody who has the client alone.
USER = """
import asyncio, sys, millpond

with millpond.connect() as mp:
    mp.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    q = mp.register("SELECT k, v FROM s [RANGE 1 HOUR] WHERE v > 1", "q", changes="from beginning")
    mp.ingest("s", [{"ts": "2026-03-01 10:00:00", "k": "a", "v": 2}])
    mp.execute("HEARTBEAT s AT TIMESTAMP '2026-03-01 10:00:01'")
    mp.catch_up(60)
    print(q.invoke("2026-03-01 10:00").rows())
    print([(c.sign, c.row) for c in q.subscribe(follow=False)])
    print([e.kind for e in mp.subscribe(["q"], follow=False)][-1])

async def use():
    async with await millpond.connect_async() as mp:
        print((await (await mp.query("q")).invoke("2026-03-01 10:00")).rows())

asyncio.run(use())
print(sorted({"duckdb", "numba", "pyspark"} & sys.modules.keys()))
"""


def project(folder: str) -> dict[str, object]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of what the client is built from, so that building leaves nothing here."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "client", folder / "client", ignore=shutil.ignore_patterns("build"))
    no = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=no)
    return folder / "client"


def run(*command: str | Path, **named: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, **named)


def test_the_client_has_the_files_it_imports_and_no_others(tree: Path) -> None:
    program = "import setuptools; setuptools.setup()"
    done = run(sys.executable, "-c", program, "-q", "build_py", "--build-lib", "lib", cwd=tree)
    assert done.returncode == 0, done.stderr
    lib = tree / "lib"
    held = {str(path) for path in lib.rglob("*.py")}
    others = [path for path in sys.path if path and not Path(path).is_relative_to(ROOT / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(lib), *others])}
    done = run(sys.executable, "-P", "-c", IMPORTED, env=environment)
    assert "pip install millpond" in done.stderr

    assert set(done.stdout.split()) == held
    assert (lib / "millpond" / "py.typed").exists()


def test_both_distributions_are_of_one_version_and_licence() -> None:
    client, whole = project("client"), project(".")
    assert client["version"] == whole["version"]
    assert client["license"] == whole["license"] == "Apache-2.0"
    for folder in (ROOT, ROOT / "client"):
        assert "Apache License" in (folder / "LICENSE").read_text()
        assert (folder / "README.md").exists()
    assert set(client["dependencies"]) <= set(whole["dependencies"])


@pytest.mark.slow
def test_the_client_works_alone(tree: Path, tmp_path: Path) -> None:
    built = run(
        sys.executable,
        *("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, tree),
    )
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("millpond_client-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert any(name.endswith("licenses/LICENSE") for name in packed.namelist())
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    installed = run(python, "-m", "pip", "install", "-q", wheel, env=alone)
    if installed.returncode and "connection" in installed.stderr.lower():
        pytest.skip("no package index can be reached")
    assert installed.returncode == 0, installed.stderr
    (tmp_path / "user.py").write_text(USER)
    with serve_local(tmp_path / "store") as server:
        environment = {"MILLPOND_URL": server.url, "PATH": os.environ["PATH"]}
        done = run(python, "user.py", env=environment, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "[('a', 2)]",
        "[('+', ('a', 2))]",
        "mark",
        "[('a', 2)]",
        "[]",
    ], done.stderr
