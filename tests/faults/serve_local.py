"""Serves a pond without Spark: a server that starts in a second, to be killed often.

python serve_local.py STORE PORT [SETTING=VALUE …]

Clients may make sources of the files in the folder `in` beside the store, if there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from millpond.api.client_limits import ClientLimits
from millpond.api.server import serve
from millpond.catalog.options import OPTIONS
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.testing.local_runtime import open_local

if __name__ == "__main__":
    with open_local(sys.argv[1]) as pond:
        given = (setting.split("=") for setting in sys.argv[3:])
        limits = {name: OPTIONS[name].type(value) for name, value in given}
        folder = Path(sys.argv[1]).parent / "in"
        policy = AccessPolicy.of([folder] if folder.is_dir() else [])
        port, limited = int(sys.argv[2]), ClientLimits.of(limits)
        serve(pond, "127.0.0.1", port, policy=policy, limits=limited)
