"""Pages of other origins can read the headers that say what an answer is."""

from __future__ import annotations

import re
from pathlib import Path

from millpond import api
from millpond.api.access import EXPOSED
from millpond.api.negotiate import ANSWER_HEADERS
from millpond.api.request_log import HEADER


def test_every_header_of_ours_is_exposed_and_no_other() -> None:
    folder = Path(api.__file__).parent
    sources = [p.read_text() for p in folder.rglob("*.py") if p.name != "access.py"]
    written = {name for text in sources for name in re.findall(r'"(Millpond-[A-Za-z-]+)"', text)}
    assert written == set(ANSWER_HEADERS)
    standard = {"Location", "Retry-After", "WWW-Authenticate", HEADER}
    assert set(EXPOSED) == written | standard
