"""The console's files: all there, and nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millpond.console import page

FILES = sorted(Path(page.__file__).parent.joinpath("static").iterdir())
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def test_the_page(http):
    response = http.get("/")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in response.headers["content-security-policy"]
    for path in re.findall(r'(?:src|href)="([^"]+)"', response.text):
        assert http.get(path).status_code == 200, path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file(http, path):
    if path.suffix in TYPES:
        response = http.get(f"/console/{path.name}")
        assert response.headers["content-type"].startswith(TYPES[path.suffix])
        assert response.content == path.read_bytes()
    text = path.read_text()
    # Nothing is loaded from another host, and nothing that comes from rows is taken for HTML.
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)[^\"'\s]+", text) == []
    assert "innerHTML" not in text
    for module in re.findall(r'from "\./([^"]+)"', text):
        assert path.with_name(module).exists()
    for wanted in re.findall(r'getElementById\("([^"]+)"\)|\bat\("([^"]+)"\)', text):
        identifier = "".join(wanted)
        assert f'id="{identifier}"' in path.with_name("index.html").read_text()


def test_there_is_nothing_else(http):
    assert http.get("/console/page.py").status_code == 404
    assert http.get("/console/..%2Fpage.py").status_code == 404
    assert http.post("/").status_code == 405
