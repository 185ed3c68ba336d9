"""Writes the OpenAPI document, from which the console's types are generated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from millpond.api.app import create_app
from millpond.service.pond import Pond

FILE = Path(__file__).with_name("openapi.json")


def render() -> str:
    """The document as it is kept: without the version, which changes no type."""
    document = create_app(cast(Pond, None)).openapi()
    document["info"]["version"] = ""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(render())
