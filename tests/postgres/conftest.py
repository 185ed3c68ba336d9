"""One PostgreSQL server for all tests of a run, and a database for each test."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.postgres.server import PASSWORD, USER, Missing, Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for all tests of a run; a test that kills it starts it again."""
    pytest.importorskip("psycopg2", reason="pip install millpond[postgres]")
    try:
        server = Server()
    except Missing as missing:
        pytest.skip(str(missing))
    try:
        server.start()
        yield server
    finally:
        server.remove()


class Database:
    """A database of one test, as a user of the server sees it."""

    def __init__(self, server: Server, encoding: str = "UTF8") -> None:
        self.server = server
        self.name = f"d{uuid.uuid4().hex[:12]}"
        with_first = server.connect()
        with_first.cursor().execute(
            f"CREATE DATABASE {self.name} TEMPLATE template0 ENCODING '{encoding}'"
        )
        with_first.close()
        self._connection: Any = None

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute statements; the rows of the last."""
        if self._connection is None or self._connection.closed:
            self._connection = self.server.connect(self.name)
            self._connection.set_client_encoding("UTF8")
        with self._connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

    def forget(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def options(self) -> str:
        """The options of a sink or source that say which database, and as whom."""
        return (
            f"host '127.0.0.1', port {self.server.port}, database '{self.name}',"
            f" user '{USER}', password secret('shop')"
        )


@pytest.fixture
def encoding() -> str:
    """How the test's database keeps texts."""
    return "UTF8"


@pytest.fixture
def database(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> Iterator[Database]:
    """A new database; its password is in the file of secrets."""
    file = tmp_path / "secrets.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"shop": PASSWORD, "wrong": "magpie-in-rain"}))
    monkeypatch.setenv("MILLPOND_SECRETS", str(file))
    made = Database(server, encoding)
    yield made
    made.forget()
    last = server.connect()
    with last.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
            " WHERE database = %s AND active",
            (made.name,),
        )
        for _ in range(100):
            cursor.execute(
                "SELECT slot_name FROM pg_replication_slots WHERE database = %s", (made.name,)
            )
            left = cursor.fetchall()
            try:
                for (slot,) in left:
                    cursor.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
                break
            except Exception:
                time.sleep(0.1)
        cursor.execute(f"DROP DATABASE {made.name} WITH (FORCE)")
    last.close()
