"""Writes the part of the OpenAPI document that the console calls: its types are made from that.

It has the calls that the sources name, with the shapes these need and without words for people. So
it changes only when a call of the console has changed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

from millpond.api.app import create_app
from millpond.service.pond import Pond

FILE = Path(__file__).with_name("openapi.json")

_CALL = re.compile(r"""call\(\s*"(get|post|patch|delete)",\s*"(/[^"]+)\"""")
#: What is for people; as a property's name it is an object, and stays.
_WORDS = ("title", "description", "summary", "tags", "operationId")


def render() -> str:
    """The document as it is kept."""
    whole = create_app(cast(Pond, None)).openapi()
    paths: dict[str, Any] = {}
    for method, path in sorted(_find_calls()):
        call = whole["paths"][path][method]
        answers = {code: answer for code, answer in call["responses"].items() if code < "300"}
        paths.setdefault(path, {})[method] = _strip({**call, "responses": answers})
    schemas: dict[str, Any] = {}
    waiting = _find_shapes(paths)
    while waiting:
        name = waiting.pop()
        if name not in schemas:
            schemas[name] = _strip(whole["components"]["schemas"][name])
            waiting |= _find_shapes(schemas[name])
    document = {
        "openapi": whole["openapi"],
        "info": {"title": "Millpond", "version": ""},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _find_calls() -> set[tuple[str, str]]:
    """The calls that the sources make, by method and path."""
    sources = sorted(Path(__file__).with_name("src").rglob("*.ts*"))
    return {match for path in sources for match in _CALL.findall(path.read_text())}


def _find_shapes(part: Any) -> set[str]:
    """The names of the shapes that a part of the document refers to."""
    return set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(part)))


def _strip(part: Any) -> Any:
    """A part without words for people, and without the list of options, which is the server's."""
    if isinstance(part, list):
        return [_strip(item) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("title") in ("Options", "Settings") and part.get("type") == "object":
        return {"type": "object", "additionalProperties": True}
    return {
        name: _strip(value)
        for name, value in part.items()
        if not (name in _WORDS and isinstance(value, str | list))
    }


if __name__ == "__main__":
    FILE.write_text(render())
