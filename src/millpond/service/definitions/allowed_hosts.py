"""Which hosts clients may have connected to: those the operator named, and no others.

What is allowed is a list of entries: a host's name (`hooks.example.org`), an address (`10.1.2.3`,
`[::1]`) or a network (`10.1.0.0/16`), each perhaps with a port (`hooks.example.org:8443`); without
one, the port that belongs to the scheme.

A name says nothing of where it leads, and may lead elsewhere a moment later. So what counts is the
address that is connected to: one that is not public is refused unless an entry has it itself.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from millpond.errors import MillpondError

_PORTS = {"http": 80, "https": 443, "postgres": 5432}
_ENTRY = re.compile(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?")

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def check_entry(entry: str) -> str:
    """An entry as it is kept, in lower case. Raises CQL-214."""
    text = entry.strip().lower()
    match = _ENTRY.fullmatch(text)
    if match is not None:
        host, port = match[1], match[2]
        is_host = _network_of(host) is not None or (
            _NAME.fullmatch(host) is not None and not host.startswith("[")
        )
        if is_host and (port is None or 0 < int(port) < 65_536):
            return text
    raise MillpondError(
        "CQL-214",
        f'"{entry}" is no host',
        detail="Hosts are names, addresses ([…] around those of IPv6) and networks.",
        hint="For example hooks.example.org, hooks.example.org:8443 or 10.1.0.0/16.",
    )


def allows_url(url: str, entries: Iterable[str]) -> bool:
    """Whether an entry names a URL's host and port."""
    parts = urlsplit(url)
    host, standard = (parts.hostname or "").rstrip("."), _PORTS.get(parts.scheme, 0)
    port = parts.port or standard
    return any(
        port == (allowed_port or standard) and _has_host(allowed, host)
        for allowed, allowed_port in map(_split, entries)
    )


def list_places(entries: Iterable[str], scheme: str) -> str:
    """The entries with the port that each allows to URLs of a scheme, for errors.

    >>> list_places(["hooks.example.org", "10.1.0.0/16:9000"], "https")
    'hooks.example.org:443, 10.1.0.0/16:9000'
    """
    standard = _PORTS.get(scheme, 0)
    split = map(_split, entries)
    return ", ".join(f"{host}:{port or standard}" for host, port in split)


def allows_address(address: str, port: int, entries: Sequence[str] | None) -> bool:
    """Whether an address may be connected to, whatever name led to it.

    Args:
        address: The address, without a zone.
        port: The port.
        entries: What is allowed; None for everything.
    """
    if entries is None:
        return True
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None) or found
    if mapped.is_global and not mapped.is_multicast:
        return True
    return any(
        (allowed_port is None or allowed_port == port)
        and (network := _network_of(host)) is not None
        and mapped in network
        for host, allowed_port in map(_split, entries)
    )


def _split(entry: str) -> tuple[str, int | None]:
    match = _ENTRY.fullmatch(entry)
    assert match is not None
    return match[1], int(match[2]) if match[2] else None


def _has_host(allowed: str, host: str) -> bool:
    network = _network_of(allowed)
    if network is None:
        return allowed.rstrip(".") == host
    try:
        return ipaddress.ip_address(host) in network
    except ValueError:
        return False


def _network_of(host: str) -> _Network | None:
    """The network, or the single address, that an entry names; None of a name."""
    try:
        return ipaddress.ip_network(host.strip("[]"), strict=False)
    except ValueError:
        return None
