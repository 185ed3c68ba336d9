"""axe-core finds no page of the console wrong for people who hear pages or need contrast."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.service.pond import Pond

QUERY = "CREATE QUERY late WITH (owner = 'ann', tags = 'demo') AS\
 SELECT ts, carrier, delay FROM flights [RANGE 1 HOUR] WHERE delay > 0"
#: Each page, and what is there once it is drawn.
PAGES = {
    "#/write": "#editor",
    "#/queries": "#found",
    "#/query/late": ".answer",
    "#/query/late?view=chart": ".chart canvas",
    "#/plan?query=late": ".plan-canvas[data-laid]:not([data-laid=''])",
    "#/plan?query=late&trace=flights&tuple=0": "#path",
    "#/system": ".panel",
    "docs#post/v1/queries": "#sought",
}
#: Says each rule that a page breaks, and the first elements that do.
CHECK = """const done = arguments[arguments.length - 1];
const show = wrong => `${wrong.id}: ${wrong.help}: ${wrong.nodes.slice(0, 4).map(n => n.html)}`;
axe.run(document, {resultTypes: ["violations"]}).then(found => done(found.violations.map(show)))"""


@pytest.fixture
def axe(packages: Path) -> str:
    return packages.joinpath("node_modules/axe-core/axe.min.js").read_text()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(page, pond: Pond, axe: str, dark: bool) -> None:
    pond.execute(QUERY)
    there = page()
    wrong = {}
    try:
        there.resize(1280, 900, dark)
        for path, drawn in PAGES.items():
            there.open(there.run("return location.origin") + "/" + path)
            if path.startswith("#"):
                there.sees("running", "#state")
            there.find(drawn)
            there.run(axe + "\nwindow.axe = axe")
            if found := there.driver.execute_async_script(CHECK):
                wrong[path] = found
    finally:
        there.resize(1280, 900)
    assert wrong == {}, "\n".join(f"{path} {one}" for path, found in wrong.items() for one in found)
