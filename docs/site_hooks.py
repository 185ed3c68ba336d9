"""Makes a site of the pages: what `mkdocs build` calls for each page and for the set of files.

Pages are written to be read in the repository. In the site, pages outside of `docs` that are linked
to are copied beside them, links to code become the name of the file, and the words behind a fence's
language (`cql fresh`), which are for the tests, are left out. A link to what does not exist stays,
and fails the build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Pages outside of `docs`, and where they are in the site.
OUTSIDE = {
    "README.md": "about.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
    "SECURITY.md": "security.md",
    "packaging/release.md": "release.md",
}
_FENCE = re.compile(r"^(\s*```+\w+)[ \t]+\S.*$", re.M)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside of `docs`."""
    from mkdocs.structure.files import File

    for source, place in OUTSIDE.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Write a page's links as the site has them."""
    return rewrite(markdown, page.file.src_uri)


def rewrite(markdown: str, place: str) -> str:
    """Write the links of a page, and its fences, as the site has them.

    Args:
        markdown: The page's text.
        place: Where it is in the site.
    """
    beginning = {site: source for source, site in OUTSIDE.items()}.get(place, f"docs/{place}")

    def link(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or ":" in target:
            return match[0]
        source = posixpath.normpath(posixpath.join(posixpath.dirname(beginning), path))
        if source in OUTSIDE:
            wanted = OUTSIDE[source]
        elif source.startswith("docs/"):
            wanted = source.removeprefix("docs/")
        elif (ROOT / source).exists() and not mark:
            return text if text.startswith("`") else f"{text} (`{source}`)"
        else:
            return match[0]
        own = posixpath.relpath(wanted, posixpath.dirname(place) or ".")
        return f"{mark}[{text}]({own}{'#' * bool(anchor)}{anchor})"

    pieces = re.split(r"(^\s*```.*?^\s*```\s*$)", markdown, flags=re.M | re.S)
    for number in range(0, len(pieces), 2):
        pieces[number] = _LINK.sub(link, pieces[number])
    return _FENCE.sub(r"\1", "".join(pieces))
