"""The directory of standing queries: finds queries by text, owner, tag and state.

The directory keeps an Arrow table of each page of the catalog's queries (`PageSummaries`). A new
version makes only the tables of the pages that changed, and a search is a few vector operations
over all of them. So a page of a hundred thousand queries costs milliseconds, and no query is bound.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError, Span
from millpond.planner.resolve.names import MOST_COMPARED, did_you_mean
from millpond.service.queries.query_selection import QuerySelection, state_of, tags_of
from millpond.state.id_map import IdMap, PageSummaries
from millpond.state.version import Version

#: What queries are sorted by.
ORDERS = ("id", "name", "owner", "registered_at")

_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("text", pa.string()),
        ("owner", pa.string()),
        ("tags", pa.string()),
        ("state", pa.string()),
        ("registered_at", pa.int64()),
    ]
)


@dataclass(frozen=True)
class QueryListing:
    """A page of queries.

    Attributes:
        queries: The queries of the page.
        total: How many queries the selection has.
        next: The id of the last query of the page if there are more; None else.
    """

    queries: list[QueryDef]
    total: int
    next: int | None


class QueryDirectory:
    """Finds standing queries; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages = PageSummaries[QueryDef, pa.Table](_tabulate)
        self._known: tuple[IdMap[QueryDef], pa.Table] | None = None

    def list_page(
        self,
        version: Version,
        selection: QuerySelection,
        order: str = "id",
        descending: bool = False,
        after: int | None = None,
        limit: int | None = None,
    ) -> QueryListing:
        """One page of the selected queries.

        Args:
            version: The version whose queries are listed.
            selection: Which queries.
            order: What they are sorted by, one of `ORDERS`; equal ones by their ids.
            descending: Whether the greatest comes first.
            after: The id of the query behind which the page begins; None for the first page.
            limit: The most queries of the page; None for all.

        Raises:
            MillpondError: CQL-201 for a name of the selection that no query has; SERVE-703 if the
                query with the id `after` is gone and the order is not that of the ids.
        """
        table = self._table(version)
        found = table.filter(_condition(selection, version))
        direction = "descending" if descending else "ascending"
        if order != "id" or descending:
            keys = [(order, direction)] + ([("id", direction)] if order != "id" else [])
            found = found.sort_by(keys)
        ids = found["id"].to_numpy()
        start = 0
        if after is not None and order == "id":
            beyond = ids < after if descending else ids > after
            start = int(beyond.argmax()) if beyond.any() else len(ids)
        elif after is not None:
            places = (ids == after).nonzero()[0]
            if not len(places):
                raise MillpondError(
                    "SERVE-703",
                    f"the query {after}, behind which the page begins, is gone",
                    hint="Begin with the first page again, or sort by id.",
                )
            start = int(places[0]) + 1
        end = len(ids) if limit is None else min(len(ids), start + limit)
        page = [version.queries[int(id)] for id in ids[start:end]]
        return QueryListing(page, len(ids), page[-1].id if page and end < len(ids) else None)

    def find(self, version: Version, selection: QuerySelection) -> list[QueryDef]:
        """The selected queries in the order of their ids. Raises CQL-201 as `list_page`."""
        return self.list_page(version, selection).queries

    def _table(self, version: Version) -> pa.Table:
        """The queries of a version as one table, in the order of their ids."""
        with self._lock:
            if self._known is None or self._known[0] is not version.queries:
                pages = self._pages.of(version.queries)
                table = pa.concat_tables(pages).combine_chunks() if pages else _tabulate(())
                self._known = version.queries, table.sort_by("id")
            return self._known[1]


def _tabulate(queries: Iterable[QueryDef]) -> pa.Table:
    """The queries of one page as a table; the tags of each stand between commas."""
    rows = [
        {
            "id": query.id,
            "name": query.name,
            "text": query.text,
            "owner": query.options.get("owner", ""),
            "tags": f",{','.join(tags_of(query))},",
            "state": state_of(query),
            "registered_at": query.registered_at,
        }
        for query in queries
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _condition(selection: QuerySelection, version: Version) -> pc.Expression:
    condition = pc.scalar(True)
    if selection.containing:
        wanted = selection.containing
        has = [pc.match_substring(pc.field(n), wanted, ignore_case=True) for n in ("name", "text")]
        condition &= has[0] | has[1]
    if selection.owner is not None:
        condition &= pc.field("owner") == selection.owner.strip()
    if selection.tag is not None:
        wanted = f",{selection.tag.strip().lower()},"
        condition &= pc.match_substring(pc.field("tags"), wanted)
    if selection.state is not None:
        condition &= pc.field("state") == selection.state
    if selection.names is not None:
        ids = [_find_query(version, name).id for name in selection.names]
        condition &= pc.field("id").isin(pa.array(ids, pa.int64()))
    return condition


def _find_query(version: Version, name: str) -> QueryDef:
    """The query of a name, or of an id in digits that is no name. Raises CQL-201."""
    found = version.find(name)
    if found is None and name.isascii() and name.isdigit() and len(name) < 19:
        found = version.queries.get(int(name))
    if not isinstance(found, QueryDef):
        raise MillpondError("CQL-201", f'no query "{name[:100]}"', hint="SHOW QUERIES lists them.")
    return found


def find_query(
    version: Version, name: str, text: str | None = None, span: Span | None = None
) -> QueryDef:
    """Find the standing query of a name.

    Args:
        version: Where to look.
        name: The name.
        text: The statement that has the name.
        span: Where the name is in the statement.

    Raises:
        MillpondError: CQL-201 if nothing has the name, CQL-216 if something else has it.
    """
    found = version.find(name)
    if isinstance(found, QueryDef):
        return found
    if found is not None:
        kind = "stream" if isinstance(found, StreamDef) else "relation"
        raise MillpondError(
            "CQL-216",
            f'"{name}" is a {kind}, not a query',
            hint=f"Ask it: SELECT * FROM {name}.",
            text=text,
            span=span,
        )
    few = version.queries.sort_values() if len(version.queries) <= MOST_COMPARED else ()
    raise MillpondError(
        "CQL-201",
        f'no query "{name}"',
        hint=did_you_mean(name, [q.name for q in few]) or "SHOW QUERIES lists them.",
        text=text,
        span=span,
    )
