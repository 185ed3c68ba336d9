"""The console's files: all there, small, made from their sources, and nothing from elsewhere."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import subprocess
from pathlib import Path

import pytest

from millpond.console import page

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "console"
FILES = sorted(Path(page.__file__).parent.joinpath("static").iterdir())
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

#: Addresses that a bundle may name: namespaces, which nothing is loaded from.
NAMESPACES = r"www\.w3\.org/"


@pytest.mark.parametrize("path", page.PAGES)
def test_the_page(http, path):
    response = http.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    for path in re.findall(r'(?:src|href)="([^"]+)"', response.text):
        assert http.get(path).status_code == 200, path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file(http, path):
    if path.suffix in TYPES:
        response = http.get(f"/console/{path.name}")
        assert response.headers["content-type"].startswith(TYPES[path.suffix])
        assert response.content == path.read_bytes()
    text = path.read_text()
    assert re.findall(rf"(?:src|href|url)\s*[=(]\s*[\"']?https?://(?!{NAMESPACES})", text) == []
    assert re.findall(rf"(?:import|fetch|Worker)\(?[\"']https?://(?!{NAMESPACES})", text) == []


def test_nothing_from_rows_is_taken_for_html():
    for path in sorted(SOURCES.joinpath("src").rglob("*.ts*")):
        assert not re.search(r"innerHTML|dangerouslySet|\beval\(", path.read_text()), path.name


def test_files_are_packed_and_kept_by_browsers(http):
    plain = http.get("/console/main.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = http.get("/console/main.js", headers={"Accept-Encoding": "br, gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    known = {"If-None-Match": plain.headers["etag"]}
    assert http.get("/console/main.js", headers=known).status_code == 304
    assert http.get("/console/console.css", headers=known).status_code == 200


def test_the_console_has_at_most_250_kb():
    assert sum(len(gzip.compress(path.read_bytes(), 6)) for path in FILES) <= 250_000


def test_there_is_nothing_else(http):
    assert http.get("/console/page.py").status_code == 404
    assert http.get("/console/..%2Fpage.py").status_code == 404
    assert http.post("/").status_code == 405
    assert http.get("/docs/").status_code == 404


def test_no_file_of_the_sources_names_a_registry():
    lock = json.loads(SOURCES.joinpath("package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert packages["node_modules/codemirror"]["version"] == "6.0.2"
    for name, entry in packages.items():
        assert "resolved" not in entry, name
        assert entry["integrity"].startswith("sha512-"), name
    wanted = json.loads(SOURCES.joinpath("package.json").read_text())
    for versions in (wanted["dependencies"], wanted["devDependencies"]):
        assert all(re.fullmatch(r"[\d.]+", version) for version in versions.values())


def test_the_document_of_the_types_is_that_of_the_server():
    spec = importlib.util.spec_from_file_location("write", SOURCES / "write_openapi.py")
    assert spec is not None
    assert spec.loader is not None
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    stale = "the API has changed: run make console, or python console/write_openapi.py"
    assert SOURCES.joinpath("openapi.json").read_text() == written.render(), stale


def run_node(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_bundle_is_what_the_sources_make(packages: Path, tmp_path: Path):
    run_node(packages, "node", "build.mjs", str(tmp_path / "static"))
    made = {path.name: path.read_bytes() for path in (tmp_path / "static").iterdir()}
    assert sorted(made) == [path.name for path in FILES]
    for path in FILES:
        assert made[path.name] == path.read_bytes(), f"{path.name} is stale: run make console"


@pytest.mark.slow
def test_the_types_are_those_of_the_document_and_fit_the_sources(packages: Path):
    before = packages.joinpath("src/contract.d.ts").read_text()
    run_node(packages, "npm", "run", "--silent", "types")
    assert packages.joinpath("src/contract.d.ts").read_text() == before, "run make console"
    run_node(packages, "npm", "run", "--silent", "check")
