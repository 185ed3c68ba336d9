"""Servers without Spark, each a process of its own, for tests that harm them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SERVE_LOCAL = Path(__file__).parent / "serve_local.py"
#: How long a server may take to end, on a machine that does other things too.
SECONDS_TO_END = 60.0


@dataclass(frozen=True)
class LocalServer:
    """A server that is ready."""

    url: str
    process: subprocess.Popen[str]


def command_of_server(store: Path, port: int = 0, **settings: object) -> list[str]:
    """The command that serves a store; port 0 stands for a free one."""
    given = [f"{name}={value}" for name, value in settings.items()]
    return [sys.executable, str(SERVE_LOCAL), str(store), str(port), *given]


def start(
    store: Path,
    through: Sequence[str] = (),
    stderr: int | None = None,
    **settings: object,
) -> subprocess.Popen[str]:
    """Start a server, which may not be ready yet.

    Args:
        store: The store's directory.
        through: The command that starts the server's command, which is put behind it.
        stderr: Where its complaints go; None: where those of the test go.
        settings: Settings of `millpond serve` for clients.
    """
    command = [*through, *command_of_server(store, **settings)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)


def wait_until_ready(process: subprocess.Popen[str]) -> LocalServer:
    """Read of a server that was started where it is."""
    assert process.stdout is not None
    found = re.search(r"http://[0-9.]+:[0-9]+", process.stdout.readline())
    assert found is not None
    return LocalServer(found[0], process)


def end(process: subprocess.Popen[str]) -> None:
    """End a server, by force if it does not end when it is asked to."""
    process.terminate()
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def serve_local(
    store: Path, through: Sequence[str] = (), **settings: object
) -> Iterator[LocalServer]:
    """Serve a store, and end the server afterwards; arguments as of `start`."""
    with start(store, through, **settings) as process:
        try:
            yield wait_until_ready(process)
        finally:
            end(process)


def resident(pid: int) -> int:
    """Bytes a process and all it started hold."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(resident, children))
