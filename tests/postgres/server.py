"""A real PostgreSQL server for tests: of this machine's packages, on loopback, in a folder.

Debian and Ubuntu: `apt-get install postgresql`. Where it is not installed and apt may install it
(as root), the fixture has it installed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

_FOLDERS = "/usr/lib/postgresql"
_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "8",
    "max_replication_slots": "8",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "autovacuum": "off",
    "wal_sender_timeout": "60s",
    "log_min_messages": "fatal",
}
#: The password of `USER`, which tests look for where it must not be.
PASSWORD = "heron-under-ice"
USER = "millpond"


class Missing(Exception):
    """What a server needs cannot be had on this machine; the text says what."""


class Server:
    """One server, which can be killed and started again; its databases stay."""

    def __init__(self) -> None:
        self._programs = _programs()
        # Not a folder of pytest's, which are root's alone.
        self._home = directory = Path(tempfile.mkdtemp(prefix="millpond-postgres-"))
        self._directory = directory / "data"
        self._log = directory / "postgres.log"
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:  # a server refuses to run as root
            account = pwd.getpwnam("nobody")
            self._as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(directory, account.pw_uid, account.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        secret = directory / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        command = [self._programs / "initdb", "-D", self._directory, "-U", USER, "--no-sync"]
        command += ["-E", "UTF8", "--locale=C", "-A", "scram-sha-256", f"--pwfile={secret}"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, cwd="/", **self._as_user
        )
        if done.returncode:
            raise Missing(f"initdb fails: {done.stderr.strip()[-300:]}")

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        given = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [self._programs / "postgres", "-D", self._directory, "-p", str(self.port)]
        end = time.monotonic() + 120
        while time.monotonic() < end:
            # A server that was killed leaves processes that end by themselves, soon.
            if self._process is None or self._process.poll() is not None:
                with self._log.open("ab") as log:
                    self._process = subprocess.Popen(
                        [*command, *given], stdout=log, stderr=log, cwd="/", **self._as_user
                    )
            try:
                self.connect().close()
                return
            except Exception:
                time.sleep(0.05)
        raise RuntimeError(self._log.read_text()[-2000:])

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=60)
        self._process = None

    def stop(self) -> None:
        """End the server in order, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Stop the server and remove its databases."""
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def connect(self, database: str = "postgres") -> Any:
        """A connection of the tests' own, each of whose statements is a transaction."""
        import psycopg2

        found = psycopg2.connect(
            host="127.0.0.1",
            port=self.port,
            dbname=database,
            user=USER,
            password=PASSWORD,
            connect_timeout=10,
        )
        found.autocommit = True
        return found


def _programs() -> Path:
    """The folder of the server's programs.

    Raises:
        Missing: it is not installed, and cannot be.
    """
    if (found := _find_programs()) is not None:
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["update"], ["install", "-y", "--no-install-recommends", "postgresql"]):
            subprocess.run(
                ["apt-get", "-q", *command],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                timeout=600,
            )
        if (found := _find_programs()) is not None:
            return found
    raise Missing("a PostgreSQL server is not installed: apt-get install postgresql")


def _find_programs() -> Path | None:
    installed = sorted(Path(_FOLDERS).glob("*/bin/postgres"), key=lambda p: float(p.parts[-3]))
    if installed:
        return installed[-1].parent
    elsewhere = shutil.which("postgres")
    return None if elsewhere is None else Path(elsewhere).resolve().parent


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
