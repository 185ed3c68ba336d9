"""Which queries a call is about: by text, owner, tag, state and name."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.catalog.objects import QueryDef

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


def tags_of(query: QueryDef) -> list[str]:
    """A query's tags."""
    tags: str = query.options.get("tags", "")
    return tags.split(", ") if tags else []


def state_of(query: QueryDef) -> str:
    """What a query is doing, one of `STATES`."""
    if query.suspended is not None:
        return "suspended"
    return "active" if query.active else "inactive"
