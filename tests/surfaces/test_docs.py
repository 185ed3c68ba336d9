"""The documentation does what it says: its blocks are executed, its generated pages are new.

A block is executed by its fence:

- `cql` (or `sql`): by a pond without Spark, as `millpond run` would from the repository's root; all
  blocks of a page are one script. `fresh` begins with an empty pond, `fails` says the block ends in
  an error, `no-run` leaves it at the grammar.
- `output`: what the block before it prints, with or without the lines that are only messages.
- `http`: a request to the page's pond; a `json` block below it is the body of the response, and a
  number in that block's fence the status.
- `python`: all blocks of a page are one script, run on the in-process runtime here and on Spark
  under its mark; `no-run` leaves it at the syntax.

Other fences (`text`, `console`, ...) are for people.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from local_http import local_client
from on_spark import Printed, printed_on_spark

import millpond
from millpond.api.app import create_app
from millpond.cli.result_writers import TableWriter
from millpond.cql import parse_script
from millpond.errors import MillpondError
from millpond.service.pond import Pond
from millpond.state.database import database
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [p for p in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if p.exists()]

#: The clock's time in the documentation, 2026-03-01 12:00:00.
NOON = 1_772_366_400_000_000

#: What the documentation's stores are called in cursors.
INCARNATION = "3f2a9c"

_FENCE = re.compile(r"^(`{3,}|~{3,})[ ]*([\w-]*)[ ]*(.*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, the words of its fence, its text."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    fence, start, head, body = "", 0, ("", ""), []
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        match = _FENCE.match(line)
        if fence:
            if line.rstrip() == fence:
                text = "\n".join(body)
                found.append(Block(page, start, head[0], tuple(head[1].split()), text))
                fence = ""
            else:
                body.append(line)
        elif match:
            fence, start, head, body = match[1], number, (match[2].lower(), match[3]), []
    assert not fence, f"{page}:{start}: the block never ends"
    return found


def has(page: Path, *languages: str) -> bool:
    return any(b.language in languages and "no-run" not in b.words for b in blocks_of(page))


def pages(*languages: str) -> list[Any]:
    found = [page for page in PAGES if has(page, *languages)]
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in found]


# ── CQL and HTTP ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", pages("cql", "sql", "http"))
def test_statements_and_calls(page: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    with Performance(tmp_path) as performance:
        for block in blocks_of(page):
            performance.take(block)


class Performance:
    """A page being executed: its pond, and what the last block gave."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stores = 0
        self.pond: Pond | None = None
        self.printed: str | None = None
        self.response: httpx.Response | None = None

    def __enter__(self) -> Performance:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self.pond is not None:
            self.pond.close()

    def _opened(self, fresh: bool) -> Pond:
        if fresh or self.pond is None:
            self._close()
            self.stores += 1
            store = self.directory / f"store-{self.stores}"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(database.secrets, "token_hex", lambda _: INCARNATION)
                self.pond = open_local(store, ManualClock(NOON), bounded=True)
        return self.pond

    def take(self, block: Block) -> None:
        match block.language:
            case "cql" | "sql":
                self.response = None
                if "no-run" not in block.words:
                    pond = self._opened("fresh" in block.words)
                    self.printed = printed(pond, block)
            case "http":
                self.printed = None
                with local_client(create_app(self._opened("fresh" in block.words))) as client:
                    self.response = request(client, block)
            case "output" if self.printed is not None:
                compare(block, self.printed)
                self.printed = None
            case "json" if self.response is not None:
                status = next((int(w) for w in block.words if w.isdigit()), 200)
                assert self.response.status_code == status, f"{block.place}: {self.response.text}"
                assert self.response.json() == json.loads(block.text), (
                    f"{block.place}: the response is {self.response.text}"
                )
                self.response = None


def printed(pond: Pond, block: Block) -> str:
    """What `millpond run` prints for a block, an error it ends in included."""
    out = io.StringIO()
    writer = TableWriter(out)
    failed = False
    try:
        for result in pond.run(block.text):
            writer.write(result)
    except MillpondError as error:
        if "fails" not in block.words:
            raise AssertionError(f"{block.place}: {error}") from error
        out.write(error.render())
        failed = True
    assert failed == ("fails" in block.words), f"{block.place}: it does not fail"
    return out.getvalue()


def compare(block: Block, printed: str) -> None:
    """A block's text is what was printed, or its answers without the messages."""
    expected = plain(block.text)
    whole = plain(printed)
    messages = re.compile(r"^(stream|relation|query) \S+: .*$|^\S+: [\d,]+ .*$")
    answers = [line for line in whole if not messages.match(line)]
    if expected not in (whole, answers):
        shown = "\n".join(whole)
        raise AssertionError(f"{block.place}: what is printed is\n{shown}")


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").split("\n")]


def request(client: httpx.Client, block: Block) -> httpx.Response:
    """Sends a request written as HTTP writes it."""
    head, _, body = block.text.partition("\n\n")
    first, *lines = head.split("\n")
    method, target = first.split()
    headers = dict(line.split(": ", 1) for line in lines)
    if body.startswith("{") or body.startswith("["):
        headers.setdefault("Content-Type", "application/json")
    path, _, query = target.partition("?")
    params = urllib.parse.parse_qsl(query)
    content = body.encode() or None
    response = client.request(method, path, params=params, headers=headers, content=content)
    assert response.status_code < 500 or "fails" in block.words, f"{block.place}: {response.text}"
    return response


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_is_not_run_can_be_read(page: Path) -> None:
    for block in blocks_of(page):
        if "no-run" in block.words and block.language in ("cql", "sql"):
            parse_script(block.text)
        elif block.language == "python":
            compile(block.text, block.place, "exec")


# ── Python ──────────────────────────────────────────────────────────────────


def python_of(page: Path) -> Iterator[tuple[Block, Block | None]]:
    """The Python blocks a page runs, each with the output it says."""
    blocks = blocks_of(page)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language == "python" and "no-run" not in block.words:
            said = following if following and following.language == "output" else None
            yield block, said


@pytest.mark.parametrize("page", pages("python"))
def test_python_in_process(page: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    opened: list[Pond] = []

    def open_without_spark(store: Any = None, *, bounded: bool = False, **_: Any) -> Pond:
        directory = Path(store) if store is not None else tmp_path / f"pond-{len(opened)}"
        opened.append(open_local(directory, bounded=bounded))
        return opened[-1]

    monkeypatch.setattr(millpond, "open", open_without_spark)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block, said in python_of(page):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block.text, block.place, "exec"), names)
            if said is not None:
                assert plain(out.getvalue()) == plain(said.text), said.place
    finally:
        for pond in opened:
            pond.close()


@pytest.fixture(scope="module")
def on_spark(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Printed]:
    """What the Python of every page prints."""
    programs = {
        str(page): "\n".join(block.text for block, _ in python_of(page))
        for page in PAGES
        if has(page, "python")
    }
    # Pages name their stores alike: each has a directory of its own.
    programs = {
        name: f"import os, tempfile\nos.chdir(tempfile.mkdtemp())\n{text}"
        for name, text in programs.items()
    }
    return printed_on_spark(programs, tmp_path_factory.mktemp("pages"))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("page", pages("python"))
def test_python_on_spark(page: Path, on_spark: dict[str, Printed]) -> None:
    printed = on_spark[str(page)]
    assert printed.trace is None, printed.trace
    said = [line for _, output in python_of(page) if output for line in plain(output.text)]
    lines = iter(plain(printed.text))
    assert all(line in lines for line in said), printed.text


# ── pages ───────────────────────────────────────────────────────────────────


def generator() -> ModuleType:
    """docs/generate_reference.py as a module."""
    spec = importlib.util.spec_from_file_location("reference", DOCS / "generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_is_up_to_date() -> None:
    for path, page in generator().PAGES.items():
        assert path.read_text(encoding="utf-8") == page(), (
            f"{path.relative_to(ROOT)}: run python docs/generate_reference.py"
        )


@pytest.mark.parametrize(
    "page", sorted({*PAGES, *ROOT.glob("*.md")}), ids=lambda p: str(p.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^(```+).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text):
        if re.match(r"[a-z]+:|#", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve()
        assert found.exists(), f"{page.relative_to(ROOT)}: {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.relative_to(ROOT)}: {target}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
