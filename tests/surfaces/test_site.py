"""The site of the documentation: every page is in it, and what it says is there.

`make site` builds it, strictly. Here is what can be known without mkdocs, in a moment.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
from pathlib import Path

import pytest

from millpond.errors import CODES

ROOT = Path(__file__).resolve().parents[2]
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
_spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
assert _spec is not None
assert _spec.loader is not None
hooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hooks)

#: Where each page is in the site, and the file it is written in.
PAGES = {
    **{str(p.relative_to(ROOT / "docs")): p for p in sorted((ROOT / "docs").rglob("*.md"))},
    **{place: ROOT / source for source, place in hooks.OUTSIDE.items()},
}


def test_every_page_is_in_the_navigation_once() -> None:
    named = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", CONFIG.partition("\nnav:\n")[2], re.M)
    assert sorted(named) == sorted(PAGES)


@pytest.mark.parametrize("place", PAGES)
def test_links_lead_to_pages_of_the_site(place: str) -> None:
    text = hooks.rewrite(PAGES[place].read_text(encoding="utf-8"), place)
    assert not re.search(r"^ *```\w+ ", text, re.M)
    plain = re.sub(r"(?ms)^ *```.*?^ *```$|`[^`\n]*`", "", text)
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", plain):
        if ":" in target:
            continue
        there = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        assert there in PAGES or (ROOT / "docs" / there).is_file(), target


def test_it_is_read_without_a_network() -> None:
    """The theme's own code is in the site; what it would fetch is switched off."""
    assert "highlightjs: false" in CONFIG
    assert "http" not in CONFIG.partition("\nnav:\n")[0]


def test_troubleshooting_names_errors_that_there_are() -> None:
    text = (ROOT / "docs" / "guide" / "troubleshooting.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b[A-Z]+-\d{3}\b", text))
    assert named
    assert named <= set(CODES)


def test_every_error_has_an_example() -> None:
    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    for code in CODES:
        _, _, told = text.partition(f"\n### {code}\n")
        assert f"\n{code}: " in told.partition("\n### ")[0], code
