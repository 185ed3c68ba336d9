"""Where a server listens, and how requests reach it: checked before anything slow is imported."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from millpond.api.access import Access
from millpond.errors import MillpondError

#: The most bytes the system keeps for a connection in each direction.
_SYSTEM_BUFFER = 1 << 18


@dataclass(frozen=True)
class Transport:
    """How requests reach a server: by TLS or not, straight or through a reverse proxy.

    Attributes:
        cert: The file of the certificate and its chain; None to speak plain HTTP.
        key: The file of the certificate's private key.
        prefix: The path a proxy has the server under, which the proxy leaves on requests or
            takes off; empty without one.
        proxies: Addresses whose X-Forwarded-For and X-Forwarded-Proto are believed.
    """

    cert: Path | None = None
    key: Path | None = None
    prefix: str = ""
    proxies: tuple[str, ...] = ()

    @property
    def scheme(self) -> str:
        """The scheme of the server's URL."""
        return "http" if self.cert is None else "https"

    @classmethod
    def of(
        cls, cert: Path | None, key: Path | None, prefix: str = "", proxies: Iterable[str] = ()
    ) -> Transport:
        """The transport of the operator's settings.

        Raises:
            MillpondError: SERVE-712, a file cannot be used, or a prefix or an address is none.
        """
        if (cert is None) != (key is None):
            raise _transport_error("a certificate has a key", "Give both --tls-cert and --tls-key.")
        if cert is not None and key is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
            except OSError as error:  # SSLError is one
                reason = error.strerror or str(error)
                raise _transport_error(
                    f'the certificate "{cert}" cannot be used with the key "{key}"', f"{reason}."
                ) from error
        if prefix and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", prefix):
            raise _transport_error(f'"{prefix}" is not a path prefix', "Write it like /pond.")
        for address in proxies:
            try:
                ipaddress.ip_network(address)
            except ValueError:
                raise _transport_error(
                    f'"{address}" is not the address of a proxy',
                    "Write an address or a network, like 10.0.0.7 or 10.0.0.0/24.",
                ) from None
        return cls(cert, key, prefix, tuple(proxies))


def _transport_error(primary: str, hint: str) -> MillpondError:
    return MillpondError("SERVE-712", primary, hint=hint)


def bind(host: str, port: int) -> socket.socket:
    """Takes the port, before anything that takes time is started.

    Clients that connect from now on wait until the server is up.

    Raises:
        MillpondError: SERVE-701, the port is in use or cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit this option. Without it, on a kept connection the end of an answer
        # waits 40 ms for the client to acknowledge the answer's beginning.
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        taken.bind((host, port))
        # What waits in the system for a slow client, or for the server, would have no bound either:
        # the system lets it grow to megabytes for each connection.
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            taken.setsockopt(socket.SOL_SOCKET, buffer, _SYSTEM_BUFFER)
        # Without listening, SO_REUSEADDR would let a second server bind it as well.
        taken.listen(2048)
    except (OSError, OverflowError) as error:
        taken.close()
        in_use = getattr(error, "errno", None) == errno.EADDRINUSE
        reason = getattr(error, "strerror", None) or str(error)
        raise MillpondError(
            "SERVE-701",
            f"port {port} is in use" if in_use else f'cannot listen on "{host}" port {port}',
            detail=None if in_use else f"{reason.rstrip('.')}.",
            hint="Choose another with --port; --port 0 takes any that is free."
            if in_use
            else "--host is an address of this machine, and --port at most 65535.",
        ) from error
    return taken


def refuse_exposure(listener: socket.socket, access: Access) -> None:
    """Refuses to serve other machines without a token.

    Raises:
        MillpondError: SERVE-712.
    """
    address = listener.getsockname()[0]
    if access.needs_token or ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return
    listener.close()
    raise MillpondError(
        "SERVE-712",
        f"whoever reaches {address} could read and write",
        detail="The server has no token, and other machines reach this address.",
        hint="Set --tokens FILE, --token auto or --token TOKEN; --insecure serves without.",
    )


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """The URL of a listening socket, one a browser on this machine can open."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
