"""Everything is reached by the keyboard, and answers are taken along in every form."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from browser import Browser, Keys

from millpond.service.pond import Pond

ROOT = Path(__file__).parents[3]
QUERY = "CREATE QUERY late AS SELECT ts, carrier, delay FROM flights [RANGE 1 HOUR] WHERE delay > 0"
PAGES = ("#/write", "#/queries", "#/query/late?view=chart", "#/plan?query=late", "#/system")

#: Marks what the keyboard should reach: all that can be pressed or typed into, and is seen.
MARK = """window.wanted = [...document.querySelectorAll(
  "a[href], button, input, select, summary, [tabindex='0']")].filter(
  e => !e.disabled && e.checkVisibility({ visibilityProperty: true }));
return wanted.length"""
#: Notes what has the focus.
NOTE = """const e = document.activeElement;
(window.reached ??= new Set()).add(e); return wanted.every(w => reached.has(w))"""
LEFT = "return wanted.filter(w => !reached.has(w)).map(w => w.outerHTML.slice(0, 120))"


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_everything_is_reached_by_tab(page, pond: Pond, path: str) -> None:
    pond.execute(QUERY)
    pond.query("late").fetch()
    there: Browser = page(path)
    there.sees("running", "#state")
    there.find("main .panel")
    there.wait(
        lambda: there.run("return document.querySelectorAll('tbody, canvas, #editor').length"), ""
    )
    many = there.run(MARK)
    assert many > 8
    there.run("document.activeElement.blur(); window.reached = new Set()")
    for _ in range(3 * many + 20):
        there.send(Keys.TAB)
        if there.run(NOTE):
            break
        # In the editor, Escape and then Tab leaves it.
        if there.run("return document.activeElement.id === 'editor'"):
            there.send(Keys.ESCAPE)
    assert there.run(LEFT) == []


def test_keys_show_the_pages(page) -> None:
    there: Browser = page()
    there.sees("running", "#state")
    for key, title in (("q", "Queries"), ("p", "Plan"), ("s", "System"), ("w", "Write")):
        there.send(Keys.ALT, key)
        there.wait(lambda t=title: there.driver.title.startswith(t), f"{key} shows no {title}")


def test_an_answer_is_taken_along_in_every_form(page, pond: Pond, tmp_path: Path) -> None:
    pond.execute(QUERY)
    there: Browser = page("#/query/late")
    there.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    there.sees("as of", ".foot")
    there.run(
        "window.copied = []; navigator.clipboard.writeText = text => { copied.push(text);"
        " return Promise.resolve(); }"
    )
    there.find(".menu summary").click()
    for form in ("CSV", "Parquet", "Arrow", "Copy as curl", "Copy as Python"):
        there.press(form)

    def read(name: str) -> bytes:
        file = tmp_path / name
        there.wait(lambda: file.exists() and file.stat().st_size, f"no {name}")
        return file.read_bytes()

    rows = [tuple(row) for row in pond.query("late").invoke().rows()]
    assert len(rows) > 0
    lines = read("late.csv").decode().splitlines()
    assert lines[0] == "ts,carrier,delay"
    assert len(lines) == len(rows) + 1
    assert pa.parquet.read_table(io.BytesIO(read("late.parquet"))).num_rows == len(rows)
    assert pa.ipc.open_stream(read("late.arrows")).read_all().num_rows == len(rows)
    curl, python = there.wait(lambda: len(c := there.run("return copied")) == 2 and c, "no copies")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MILLPOND_TOKEN": ""}
    told = subprocess.run(["sh", "-c", curl], capture_output=True, text=True, env=environment)
    assert f'"{rows[0][1]}"' in told.stdout, told.stderr
    done = subprocess.run(
        [sys.executable, "-c", python], capture_output=True, text=True, env=environment, timeout=120
    )
    assert str(rows[0][1]) in done.stdout, done.stderr
    assert there.complaints() == []
