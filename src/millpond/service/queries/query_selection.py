"""Which queries a call is about: by text, owner, tag, state and name."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from millpond.catalog.objects import QueryDef
from millpond.errors import MillpondError

#: What a query is doing: answered; switched off; or stopped because of an error.
STATES = ("active", "inactive", "suspended")


@dataclass(frozen=True)
class QuerySelection:
    """Which queries are meant: those that fulfil every condition that is given.

    Attributes:
        containing: A text that the query has in its name or CQL, in any case.
        owner: Its owner.
        tag: One of its tags.
        state: Its state, one of `STATES`.
        names: Names or ids; each must be that of a query.
    """

    containing: str = ""
    owner: str | None = None
    tag: str | None = None
    state: str | None = None
    names: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls, given: QuerySelection | Mapping[str, Any] | None, conditions: Mapping[str, Any]
    ) -> QuerySelection:
        """A selection as callers in Python give one: itself, its conditions by name, or both.

        Raises:
            MillpondError: CQL-103, there is no such condition, or its value is none.
        """
        if isinstance(given, QuerySelection) and not conditions:
            return given
        if not isinstance(given, Mapping | None):
            raise _unknown_error(f"a selection is no {type(given).__name__}")
        named = {**(given or {}), **conditions}
        if isinstance(named.get("names"), list | tuple):
            named["names"] = tuple(str(name) for name in named["names"])
        known = {field.name for field in fields(cls)}
        for name, value in named.items():
            if name not in known:
                raise _unknown_error(f'queries are not selected by "{name}"')
            kind: type = tuple if name == "names" else str
            if not isinstance(value, kind | None):
                raise _unknown_error(f"queries cannot be selected by {name} = {value!r:.100}")
        if named.get("state") not in (None, *STATES):
            raise _unknown_error(f"no query's state is {named['state']!r:.100}")
        return cls(**{name: value for name, value in named.items() if value is not None})

    @classmethod
    def of_some(
        cls, given: QuerySelection | Mapping[str, Any] | None, conditions: Mapping[str, Any]
    ) -> QuerySelection:
        """As `of`, with at least one condition. Raises CQL-103 without."""
        selection = cls.of(given, conditions)
        if selection.is_everything:
            raise _unknown_error("no queries are selected")
        return selection

    @property
    def is_everything(self) -> bool:
        """Whether no condition is given."""
        return self == QuerySelection()

    def has(self, query: QueryDef) -> bool:
        """Whether a query fulfils every condition but `names`."""
        wanted = self.containing.lower()
        return (
            (not wanted or wanted in query.name.lower() or wanted in query.text.lower())
            and (self.owner is None or query.options.get("owner", "") == self.owner.strip())
            and (self.tag is None or self.tag.strip().lower() in tags_of(query))
            and (self.state is None or state_of(query) == self.state)
        )


def _unknown_error(primary: str) -> MillpondError:
    return MillpondError(
        "CQL-103",
        primary,
        hint='Give some of names=["q1", …], owner, tag, containing and state ('
        f"{', '.join(STATES[:-1])} or {STATES[-1]}).",
    )


def tags_of(query: QueryDef) -> list[str]:
    """A query's tags."""
    tags: str = query.options.get("tags", "")
    return tags.split(", ") if tags else []


def state_of(query: QueryDef) -> str:
    """What a query is doing, one of `STATES`."""
    if query.suspended is not None:
        return "suspended"
    return "active" if query.active else "inactive"


def write_names(names: Sequence[str]) -> str:
    """Write names as one text with commas between them; quoted are those that need it.

    >>> write_names(["late", "a,b"])
    'late,"a,b"'
    """
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(names)
    return written.getvalue()


def read_names(text: str) -> tuple[str, ...]:
    """Read names with commas between them; one in double quotes may have commas itself.

    Raises:
        MillpondError: SERVE-703, a quote has no end, or something stands behind it.

    >>> read_names('late, "a,b"')
    ('late', 'a,b')
    """
    try:
        rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise MillpondError(
            "SERVE-703",
            f"the names of queries cannot be read: {error}",
            hint='Write a name with a comma or a double quote in it as "a,b", with "" for a quote.',
        ) from None
    return tuple(name.strip() for name in rows[0]) if rows else ("",)
