"""Serves a pond without Spark: a server that starts in a second, to be killed often.

python serve_local.py STORE PORT [SETTING=VALUE …]
"""

from __future__ import annotations

import sys

from millpond.api.client_limits import ClientLimits
from millpond.api.server import serve
from millpond.catalog.options import OPTIONS
from millpond.testing.local_runtime import open_local

if __name__ == "__main__":
    with open_local(sys.argv[1]) as pond:
        given = (setting.split("=") for setting in sys.argv[3:])
        limits = {name: OPTIONS[name].type(value) for name, value in given}
        serve(pond, "127.0.0.1", int(sys.argv[2]), limits=ClientLimits.of(limits))
