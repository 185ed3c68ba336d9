"""What SIGHUP does to a server: it ends with its terminal, and is no other reason to end.

Operators send SIGHUP to have a server read its files anew. Millpond does that by itself, so the
server goes on and says so. A terminal that is closed sends SIGHUP too: a server that was started in
it ends as by SIGTERM. One that was started with nohup ignores SIGHUP, and goes on.
"""

from __future__ import annotations

import logging
import os
import signal
from types import FrameType

log = logging.getLogger("millpond.server")


def handle_hang_up() -> None:
    """Handle SIGHUP from now on; call it from the main thread."""
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _end if _has_terminal() else _go_on)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _end(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)  # which ends whatever the server is doing


def _go_on(number: int, frame: FrameType | None) -> None:
    log.info("SIGHUP: the server goes on; it reads changed files by itself, settings at its start")
