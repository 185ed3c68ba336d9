"""Serves a pond without Spark: a server that starts in a second, to be killed often.

python serve_local.py STORE PORT
"""

from __future__ import annotations

import sys

from millpond.api.server import serve
from millpond.testing.local_runtime import open_local

if __name__ == "__main__":
    with open_local(sys.argv[1]) as pond:
        serve(pond, "127.0.0.1", int(sys.argv[2]))
