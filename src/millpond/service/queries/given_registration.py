"""How programs give a query to register."""

from __future__ import annotations

from typing import Any

#: A query to register: its text, its name (given one when None), its options; or its text alone.
Registration = str | tuple[str, str | None, dict[str, Any]]


def parts(registration: Registration) -> tuple[str, str | None, dict[str, Any]]:
    """Text, name and options of a registration.

    >>> parts("SELECT * FROM s")
    ('SELECT * FROM s', None, {})
    """
    return (registration, None, {}) if isinstance(registration, str) else registration
