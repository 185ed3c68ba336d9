"""What is told of standing queries: their definitions, columns, notes, and how far changes are.

Very many queries are described together when they are registered in bulk, and most of these differ
from one another in their constants only. Such queries have the same columns and the same notes as
long as nobody follows them. So only the first few queries of a template are bound; the others are
found by the template's pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from millpond.catalog.objects import REDUCED, QueryDef, given_options
from millpond.model.time import format_instant
from millpond.planner.bind.templates import QueryTemplate
from millpond.planner.bind.text_pattern import TextPattern
from millpond.service.components import Components
from millpond.state.version import Version

#: So many templates are looked for in each text.
_MOST_SHAPES = 16

#: Those that were registered together have one instant.
_format_instant = lru_cache(1)(format_instant)


@dataclass(frozen=True)
class _Shape:
    """The facts that queries of a template share while nobody follows them."""

    pattern: TextPattern
    columns: list[dict[str, Any]]
    notes: list[str]


def describe_query(components: Components, query: QueryDef) -> dict[str, Any]:
    """Return a query's definition, its columns, its notes, and how far its changes are computed.

    A query whose text does not bind any more is suspended.
    """
    bound = components.registrar.bind_or_suspend(query)
    query = components.log.version.queries.get(query.id, query)
    facts = _describe_definition(query)
    facts["columns"] = [] if bound is None else bound.output.to_json()
    facts["changes"] = components.subscriptions.progress(query)
    facts["notes"] = components.find_notes(query, bound)
    return facts


def describe_queries(
    components: Components, queries: Iterable[QueryDef]
) -> Iterator[dict[str, Any]]:
    """Describe each of the queries as `describe_query` does.

    Descriptions may share lists; do not change them.
    """
    shapes: list[_Shape] = []
    met: set[QueryTemplate] = set()
    for query in queries:
        is_plain = _is_plain(components.log.version, query)
        shape = _find_shape(shapes, query.text) if is_plain else None
        if shape is not None:
            facts = _describe_definition(query)
            facts["columns"], facts["changes"], facts["notes"] = shape.columns, None, shape.notes
            yield facts
            continue
        facts = describe_query(components, query)
        template = components.registrar.find_template(query.text) if is_plain else None
        if template is not None and template not in met:
            met.add(template)  # of few queries each may have a template of its own
        elif template is not None and (pattern := template.make_pattern(query.text)) is not None:
            known = _Shape(pattern, facts["columns"], facts["notes"])
            shapes = [known, *shapes[: _MOST_SHAPES - 1]]
        yield facts


def _is_plain(version: Version, query: QueryDef) -> bool:
    """Whether a query's columns and notes are those of its template: nobody follows the query."""
    epoch = query.text_epoch
    return (
        query.suspended is None
        and not query.options.get("follow")
        and (epoch is None or version.seen_by(epoch) is None)
        and version.change_log(query.id) is None
    )


def _find_shape(shapes: list[_Shape], text: str) -> _Shape | None:
    for shape in shapes:
        if shape.pattern.find_constants(text) is not None:
            return shape
    return None


def _describe_definition(query: QueryDef) -> dict[str, Any]:
    template = query.template
    return {
        "id": query.id,
        "name": query.name,
        "cql": query.text,
        "template": template and template.text,
        "parameters": dict(template.constants) if template else {},
        "options": given_options(query.options),
        "reduced": query.options.get(REDUCED),
        "active": query.active,
        "suspended": query.suspended,
        "registered_at": _format_instant(query.registered_at),
    }
