"""Connections to PostgreSQL: what options say of a server, whom it may be, and how errors read.

A password is `secret('name')` and stands in the operator's file; it is read at each connection and
never in a definition, a log or an error.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.errors import MillpondError, Span
from millpond.model.secret_options import name_of_secret
from millpond.runtime.kafka.packages import import_package
from millpond.runtime.secrets_file import fill_in_secrets, hide_secrets

#: The options that say which server, and as whom; the same of sources and sinks.
SERVER_OPTIONS = ("host", "port", "database", "user", "password", "sslmode", "sslrootcert")
SSL_MODES = ("prefer", "disable", "allow", "require", "verify-ca", "verify-full")
_PORT = 5432
_CONNECT_SECONDS = 10
#: How values are written as texts, whatever the server's settings are.
_SETTINGS = (
    "-c DateStyle=ISO -c TimeZone=UTC -c IntervalStyle=postgres -c extra_float_digits=3"
    " -c bytea_output=hex -c client_min_messages=error"
)


@dataclass(frozen=True)
class DatabaseServer:
    """A database of a server, and who logs in to it.

    Attributes:
        host: A name, an address, or the folder of a socket.
        port: The port.
        database: The database's name.
        user: Who logs in.
        password: `secret('name')`, or None: none, or what `PGPASSFILE` says.
        sslmode: One of `SSL_MODES`.
        sslrootcert: The path of the certificates that a server's has to be signed by, or None.
    """

    host: str
    port: int
    database: str
    user: str
    password: str | None = None
    sslmode: str = "prefer"
    sslrootcert: str | None = None

    def __str__(self) -> str:
        return f"{self.database} of {self.host}:{self.port}"


def read_server(options: Mapping[str, Any], what: str) -> DatabaseServer:
    """Read which server options say.

    Args:
        options: The options of a sink or a source, of which others are ignored.
        what: The sink or relation, for errors: 'the sink'.

    Raises:
        MillpondError: CQL-214; it shows no value that could be a password.
    """
    for name in ("host", "database", "user"):
        if not str(options.get(name, "")).strip():
            raise option_error(
                f"{what} has no {name}",
                "Write (host 'db.example.org', database 'shop', user 'millpond', "
                "password secret('shop'), ...).",
            )
    password = options.get("password")
    if password is not None and name_of_secret(str(password)) is None:
        # The error has a text of its own: the statement would show what is written out.
        raise MillpondError(
            "CQL-214",
            f"the password of {what} is written out",
            hint="Write the password into the file that --secrets names, and its name here.",
            text="password secret('name')",
            span=Span(0, len("password")),
        )
    port = str(options.get("port", _PORT))
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise option_error(f'the port of {what} cannot be "{port}"', "It is a number, as 5432.")
    mode = str(options.get("sslmode", SSL_MODES[0])).lower()
    if mode not in SSL_MODES:
        raise option_error(
            f'the sslmode of {what} cannot be "{mode}"', f"It is one of {', '.join(SSL_MODES)}."
        )
    return DatabaseServer(
        str(options["host"]).strip(),
        int(port),
        str(options["database"]),
        str(options["user"]),
        None if password is None else str(password),
        mode,
        options.get("sslrootcert"),
    )


def option_error(primary: str, hint: str) -> MillpondError:
    """The error of an option that a sink or source cannot have."""
    return MillpondError("CQL-214", primary, hint=hint)


def import_psycopg2() -> Any:
    """Import the client. Raises DATA-502 if the extra is not installed."""
    for module in ("psycopg2.extras", "psycopg2.errors", "psycopg2.sql"):
        import_package("PostgreSQL needs", "psycopg2-binary", module, "postgres")
    return import_package("PostgreSQL needs", "psycopg2-binary", "psycopg2", "postgres")


def connect(
    server: DatabaseServer, allows: Callable[[str, int], bool] | None = None, factory: Any = None
) -> Any:
    """Connect to a server.

    Args:
        server: The server.
        allows: Says whether an address and port may be connected to; None: any may.
        factory: Makes the connection, instead of psycopg2's own class.

    Raises:
        MillpondError: DATA-502, the extra is not installed; CQL-214, the secret is missing;
            POND-414, the address is not allowed.
        psycopg2.Error: there is no connection.
    """
    psycopg2 = import_psycopg2()
    given: dict[str, Any] = {}
    if server.password is not None:
        given = fill_in_secrets({"password": server.password})
    if server.sslrootcert is not None:
        given["sslrootcert"] = server.sslrootcert
    if allows is not None:
        given["hostaddr"] = _find_address(server, allows)
        given["passfile"] = os.devnull  # the passwords in the operator's own file are not theirs
    return psycopg2.connect(
        host=server.host,
        port=server.port,
        dbname=server.database,
        user=server.user,
        sslmode=server.sslmode,
        application_name="millpond",
        connect_timeout=_CONNECT_SECONDS,
        keepalives_idle=30,
        tcp_user_timeout=60_000,
        options=_SETTINGS,
        client_encoding="UTF8",  # the server writes texts so, whatever its database has
        connection_factory=factory,
        **given,
    )


def _find_address(server: DatabaseServer, allows: Callable[[str, int], bool]) -> str:
    """The first allowed address of a server; it is connected to, whatever the name leads to later.

    Raises:
        MillpondError: POND-414.
    """
    try:
        found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    addresses: Sequence[str] = [str(entry[4][0]) for entry in found]
    for address in addresses:
        if allows(address, server.port):
            return address
    raise MillpondError(
        "POND-414",
        f'"{server.host}" leads to no address that clients may have this server connect to',
        hint="The operator allows hosts.",
    )


def describe_error(error: Exception) -> str:
    """What a client's error says, in one line and without any secret."""
    text = " ".join(str(error).split())
    return hide_secrets(text)[:600] or type(error).__name__
