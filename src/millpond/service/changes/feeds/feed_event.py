"""Events of feeds: a change of a query, a mark, or what happened to a query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millpond.service.results import Answer, Change, Changes


@dataclass(frozen=True)
class FeedEvent:
    """An event of a feed.

    Attributes:
        kind: 'change'; 'mark' (how far the changes are complete); 'came', 'ended', 'altered',
            'redefined', 'deactivated', 'suspended', 'resumed', 'trimmed' (what happened to a
            query); 'answer' (of a snapshot); 'note' (what a reader should know).
        cursor: Where to read on after this event; None within a snapshot, which has no cursor
            before its mark.
        query: The name of the query it is about; None if it is about the feed.
        id: The query's id.
        facts: What else is to be said of it, as JSON values; nothing of a change or an answer.
        changes: The page the change was read with.
        index: The row of the page.
        answer: The answer, of an event of kind 'answer'.
        given: The change, if the event came from a server; its values are those JSON has.
    """

    kind: str
    cursor: str | None
    query: str | None = None
    id: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    changes: Changes | None = None
    index: int = 0
    answer: Answer | None = None
    given: Change | None = None

    @property
    def change(self) -> Change:
        """The change of an event of kind 'change'.

        Its cursor is that of the query's own FETCH; of an event of a server, the feed's.

        Raises:
            ValueError: it is an event of another kind.
        """
        if self.given is not None:
            return self.given
        if self.changes is None:
            raise ValueError(f'an event of kind "{self.kind}" has no change; look at kind first')
        table = self.changes.table.slice(self.index, 1)
        (found,) = Changes(table, self.changes.query, self.changes.cursor, 0, 0, self.changes.loss)
        return found

    @property
    def number(self) -> int:
        """The number of the change among those of its query."""
        assert self.changes is not None
        return self.changes.position - len(self.changes) + self.index + 1
