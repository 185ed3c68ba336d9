"""Dependencies: which definitions read a stream or a relation, and so forbid to drop it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef, base_name
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.resolve.inner_streams import PREFIX
from millpond.state.version import Version

#: Binds a query's text against the current version, as of the epoch at which it was given.
Bind = Callable[[str, int | None], BoundQuery]


@dataclass(frozen=True)
class NamedText:
    """The text that a name stands for, the epoch at which it was given, and whether it binds."""

    name: str
    kind: str
    text: str
    text_epoch: int | None
    active: bool = True
    is_bound: bool = True


def list_query_texts(version: Version) -> list[NamedText]:
    """List the texts of all standing queries."""
    return [
        NamedText(q.name, "query", q.text, q.text_epoch, q.active) for q in version.queries.values()
    ]


def list_derived_texts(version: Version) -> list[NamedText]:
    """List the texts of all derived streams and relations."""
    return [
        *(
            NamedText(s.name, "stream", s.derived.text, s.derived.text_epoch)
            for s in version.named_streams()
            if s.derived is not None
        ),
        *(
            NamedText(r.name, "relation", r.view, r.text_epoch)
            for r in version.relations.values()
            if r.view
        ),
    ]


def users_of(version: Version, definition: StreamDef | RelationDef, bind: Bind) -> list[str]:
    """The names of the standing queries and derived objects over a stream or relation."""
    deriving = _find_derived_from(version, definition, bind)
    if isinstance(definition, StreamDef):
        read = [
            query
            for query in version.queries.values()
            if any(x.stream_id == definition.id for x in version.leaves(query.id))
        ]
    else:
        read = list(_find_queries_over(version, definition, deriving, bind))
    return [*(query.name for query in read), *deriving]


def may_read(version: Version, text: str, name: str) -> bool:
    """Whether a text that does not bind any more may read what has a name.

    It may if it spells the name, or that of a derived relation whose text may. What stands for a
    query in FROM has a name that nobody spells, so every text may read it.
    """
    waiting, seen = [text.lower()], set[str]()
    spelled = name.lower().replace('"', '""')
    if spelled.startswith(PREFIX.lower()):
        return True
    views = [(r.name.lower(), r.view.lower()) for r in version.relations.values() if r.view]
    while waiting:
        current = waiting.pop()
        if spelled in current:
            return True
        for view, body in views:
            if view not in seen and view.replace('"', '""') in current:
                seen.add(view)
                waiting.append(body)
    return False


def _find_queries_over(
    version: Version, relation: RelationDef, deriving: Sequence[str], bind: Bind
) -> Iterator[QueryDef]:
    """The standing queries over a relation, or over what derives from it.

    Only queries with one of the names in their text are bound: of ten thousand queries hardly one
    reads the relation.
    """
    spelled = [n.lower().replace('"', '""') for n in (relation.name, *deriving)]
    name = relation.name.lower()
    for query in version.queries.values():
        text = query.text.lower()
        if any(n in text for n in spelled):
            try:
                bound = bind(query.text, query.text_epoch)
            except Exception:  # it does not bind any more: to be named counts
                yield query
                continue
            if name in (n.lower() for n in bound.views) or any(
                r.relation.lower() == name for r in bound.relations
            ):
                yield query


def _find_derived_from(
    version: Version, definition: StreamDef | RelationDef, bind: Bind
) -> list[str]:
    """The names of the derived streams and relations that read a stream or relation."""
    name = definition.name.lower()
    users = []
    for user in list_derived_texts(version):
        try:
            bound = bind(user.text, user.text_epoch)
        except Exception:
            users += [user.name] if may_read(version, user.text, name) else []
            continue
        read = [x.stream for x in bound.streams] + [x.relation for x in bound.relations]
        if any(base_name(n) == name for n in [*read, *bound.views]):
            users.append(user.name)
    return users
