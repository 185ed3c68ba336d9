"""What a client asks to register: a query's text, its name and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.cql import parse_statement
from millpond.cql.tree import statements
from millpond.errors import MillpondError, Span
from millpond.model.unicode_text import check_unicode

#: A query to register: its text, its name (given one when None), its options; or its text alone.
Registration = str | tuple[str, str | None, dict[str, Any]]


def parts(registration: Registration) -> tuple[str, str | None, dict[str, Any]]:
    """Text, name and options of a registration.

    >>> parts("SELECT * FROM s")
    ('SELECT * FROM s', None, {})
    """
    return (registration, None, {}) if isinstance(registration, str) else registration


@dataclass(frozen=True)
class RegistrationRequest:
    """One query to register: its text, its name (given one when None), its options."""

    text: str
    name: str | None = None
    options: Mapping[str, Any] | None = None
    #: Where the name stands, for errors.
    statement: str | None = None
    name_span: Span | None = None

    @classmethod
    def of(cls, cql: str, name: str | None, options: Mapping[str, Any]) -> RegistrationRequest:
        """A registration by text: a bare query, or CREATE QUERY with its own name and options."""
        if not isinstance(cql, str) or not isinstance(name, str | None):
            raise MillpondError(
                "CQL-103",
                "a query and its name are given as text",
                hint="register('SELECT …', 'name', option=value)",
            )
        if name is not None:
            check_unicode(name, "the name", "CQL-102")
        if cql.lstrip()[:6].upper() == "CREATE":
            parsed = parse_statement(cql)
            if not isinstance(parsed, statements.CreateQuery):
                raise MillpondError(
                    "CQL-216",
                    "only queries are registered",
                    hint="Use execute() for other statements.",
                )
            merged = {**parsed.options, **options}
            text = parsed.query_text
            return cls(text, name or parsed.name, merged, cql, parsed.name_span)
        return cls(cql, name, options)
