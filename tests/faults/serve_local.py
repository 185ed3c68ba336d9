"""Serves a pond without Spark: a server that starts in a second, to be killed often.

python serve_local.py STORE PORT [SETTING=VALUE …]

Clients may make sources of the files in the folder `in` beside the store, if there is one. With the
setting `shared` the store is shared at that place: the server waits until nobody leads it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from millpond.api.client_limits import ClientLimits
from millpond.api.listening import Transport, bind
from millpond.api.server import serve
from millpond.api.waiting import await_lead
from millpond.catalog.options import OPTIONS
from millpond.service.definitions.access_policy import AccessPolicy
from millpond.testing.local_runtime import open_local

if __name__ == "__main__":
    store, port = Path(sys.argv[1]), int(sys.argv[2])
    given = dict(setting.split("=", 1) for setting in sys.argv[3:])
    place = given.pop("shared", None)
    limits = ClientLimits.of({name: OPTIONS[name].type(value) for name, value in given.items()})
    folder = store.parent / "in"
    policy = AccessPolicy.of([folder] if folder.is_dir() else [])
    listener = bind("127.0.0.1", port)
    shared = place and await_lead(place, store, listener, Transport())
    with open_local(store, shared=shared or None) as pond:
        serve(pond, listener=listener, policy=policy, limits=limits)
