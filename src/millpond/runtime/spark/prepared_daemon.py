"""A daemon of Python workers that has loaded its code before Spark asks for it.

Spark starts its daemon (`daemon.py`) with the first task, which waits more than a second for the
code to be loaded. A program that launches the JVM ahead starts another daemon beside the JVM, which
loads the code and waits at a socket. The daemon that Spark starts hands over to it: its streams,
its environment and its arguments. If nobody waits there, Spark's daemon does the work itself.

This module is what the daemon begins with, so it loads little.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

#: Where Spark's daemon finds one that is prepared.
_PLACE = "MILLPOND_PREPARED_DAEMON"
#: The descriptor of the socket at which a prepared daemon waits.
_LISTENER = "MILLPOND_PREPARED_LISTENER"
_MOST_BYTES = 1 << 20

_prepared: list[subprocess.Popen[bytes]] = []


def prepare_daemon(module: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Start a daemon that waits for Spark to ask for one; it ends if this process ends before.

    Args:
        module: The daemon's module.
        environment: What the workers' environment has beyond this process's.

    Returns:
        What the JVM's environment has to have.
    """
    folder = Path(tempfile.mkdtemp(prefix="millpond-daemon-"))
    place = str(folder / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(place)
        listener.listen(1)
        number = listener.fileno()
        waits = {**os.environ, **environment, _LISTENER: str(number), _PLACE: place}
        process = subprocess.Popen(
            [sys.executable, "-m", module, "pyspark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(number,),
            env=waits,
            process_group=0,
            umask=0o077,  # as the JVM's: what workers make is their owner's
        )
    _prepared.append(process)  # its end of the pipe is open as long as this process lives
    return {_PLACE: place}


def hand_over() -> bool:
    """Let a prepared daemon do this one's work, to the end of it; False if there is none."""
    place = os.environ.get(_PLACE)
    if place is None or _LISTENER in os.environ:
        return False
    about = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.connect(place)
            socket.send_fds(server, [about[:1]], [0, 1, 2])
            server.sendall(about[1:])
            server.shutdown(socket.SHUT_WR)
            if not server.recv(1):
                return False
            server.recv(1)  # nothing comes; the connection ends with the other daemon
    except OSError:
        return False
    return True


def take_over() -> None:
    """As a prepared daemon, wait for Spark's, and go on in its place; nothing in Spark's own."""
    number = os.environ.get(_LISTENER)
    if number is None:
        return
    listener = socket.socket(fileno=int(number))
    ready, _, _ = select.select([listener.fileno(), 0], [], [])
    if listener.fileno() not in ready:  # the process that prepared this one has ended
        shutil.rmtree(Path(os.environ[_PLACE]).parent, ignore_errors=True)
        sys.exit(0)
    caller, _ = listener.accept()
    listener.close()
    shutil.rmtree(Path(os.environ[_PLACE]).parent, ignore_errors=True)
    about, given, _, _ = socket.recv_fds(caller, _MOST_BYTES, 3)
    while part := caller.recv(_MOST_BYTES):
        about += part
    arguments, folder, environment = json.loads(about)
    for target, source in enumerate(given):
        os.dup2(source, target)
        os.close(source)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = arguments
    caller.send(b"1")
    _callers.append(caller)


#: The connection to Spark's daemon, which ends when this one does.
_callers: list[socket.socket] = []
