"""A process that makes deliveries 1 and 2 of a sink, and ends or stops on the way.

It prints 'there' at the place, and behind it how the second delivery went.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pyarrow as pa

from millpond.catalog.sink_def import SinkDef
from millpond.service.sinks.postgres import PostgresSender
from millpond.service.sinks.sender import Delivery, DeliveryError


def sender_of(port: int, name: str) -> PostgresSender:
    options = {
        **{"host": "127.0.0.1", "port": port, "database": name, "user": "millpond"},
        **{"password": "secret('shop')", "table": "rows"},
    }
    sink = SinkDef(7, "s", "postgres", options, key=("k",))
    return PostgresSender(sink, {**options, "cursor_table": "millpond_cursors"})


def delivery(number: int) -> Delivery:
    keys = list(range(number))
    answer = pa.table({"k": keys, "v": [10 * key for key in keys]})
    cursor = f"3f2a9c.feed.{number}"
    return Delivery(f"3f2a9c.7.{number}", "s", cursor, [], [], answer, received=number - 1)


def live(port: int, name: str, how: str, place: str) -> None:
    """Send a signal to this process 'before' or 'after' the commit, or 'first' of all."""
    sender = sender_of(port, name)
    sender.send(delivery(1))
    write = sender._write

    def stop() -> None:
        print("there", flush=True)
        os.kill(os.getpid(), getattr(signal, how))

    def write_and_stop(cursor: Any, changes: Any) -> None:
        write(cursor, changes)
        if place == "before":
            stop()

    sender._write = write_and_stop  # type: ignore[method-assign]
    if place == "first":
        stop()
    try:
        sender.send(delivery(2))
        if place == "after":
            stop()
        print("sent", flush=True)
    except DeliveryError as error:
        print(error.is_final, error, flush=True)


if __name__ == "__main__":
    live(int(sys.argv[1]), *sys.argv[2:])
