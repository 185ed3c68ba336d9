"""The feeds of a golden: their columns, and the order and epochs in which their rows arrive.

A variation cuts feeds, and may let rows arrive in another order that DELAY allows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.tools import golden_table as cells
from tests.tools.golden_file import Arrival, FeedRows
from tests.tools.golden_ways import Variation

from millpond.cql.tree.statements import AddColumn, CreateRelation, CreateStream
from millpond.model.schema import canonical_type


class GoldenFeeds:
    """The streams and relations declared so far, and how a variation feeds them."""

    def __init__(self, variation: Variation) -> None:
        self._variation = variation
        #: By stream: its columns' names and types, its DELAY, and its TIMESTAMP BY column.
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._delay: dict[str, int] = {}
        self._stamps: dict[str, str] = {}

    def declare(self, statement: CreateStream | CreateRelation) -> list[tuple[str, str]]:
        """Remember how a stream or relation is fed; return its columns' names and types."""
        columns = [(c.name, canonical_type(c.type) or "VARCHAR") for c in statement.columns]
        key, fed = statement.name.lower(), columns
        self._columns[key] = columns
        if isinstance(statement, CreateRelation):
            if statement.timestamp_by is None:
                return columns
            # A relation fed by changes: its feed is the stream of its change records.
            operation = statement.source.options.get("op_column") if statement.source else None
            key, fed = (
                f"{key}$changes",
                [*columns, *([(operation, "VARCHAR")] if operation else [])],
            )
        computed = {c.name for c in statement.columns if c.computed is not None}
        self._columns[key] = [column for column in fed if column[0] not in computed]
        self._delay[key] = statement.delay
        self._stamps[key] = (statement.timestamp_by or "").lower()
        return columns

    def add_column(self, statement: AddColumn) -> None:
        """Feed a stream with one more column, the last one."""
        columns = self._columns[statement.name.lower()]
        type_ = canonical_type(statement.column.type) or "VARCHAR"
        if statement.column.name not in (name for name, _ in columns):
            columns.append((statement.column.name, type_))

    def columns(self, step: FeedRows) -> list[tuple[str, str]]:
        """Find the names and types of the cells of a feed's rows."""
        named = self._columns[step.stream.lower()]
        if step.columns is None:
            return named
        types = {name.lower(): kind for name, kind in named}
        return [(name, types.get(name.lower(), "VARCHAR")) for name in step.columns]

    def epochs(self, step: FeedRows) -> Iterator[list[Arrival]]:
        """Cut a feed's rows, in the order they arrive, into epochs."""
        arrivals = list(step.arrivals)
        if self._variation.shuffled and not step.whole:
            arrivals = self._shuffle(step.stream.lower(), arrivals)
        epoch: list[Arrival] = []
        for arrival in arrivals:
            if epoch and not self._arrive_together(epoch, arrival, step.whole):
                yield epoch
                epoch = []
            epoch.append(arrival)
        if epoch:
            yield epoch

    def _arrive_together(self, epoch: list[Arrival], then: Arrival, whole: bool) -> bool:
        if then.clock is not None and then.clock != epoch[0].clock:
            return False
        return whole or self._variation.cut is None or len(epoch) < self._variation.cut

    def _shuffle(self, stream: str, arrivals: list[Arrival]) -> list[Arrival]:
        """Choose another order of arrival in which no element is late, whatever the cut.

        Elements of one timestamp keep their order, which ROWS windows show. A feed with rejects
        or arrival times keeps its order.
        """
        stamp, delay = self._stamps.get(stream, ""), self._delay.get(stream, 0)
        names = [name.lower() for name, _ in self._columns[stream]]
        if stamp not in names or any(a.rejected is not None or a.clock for a in arrivals):
            return arrivals
        where = names.index(stamp)
        try:
            rest = [(cells.parse_time(a.cells[where]), a) for a in arrivals]
        except (ValueError, IndexError):
            return arrivals
        pick, shuffled = random.Random(len(rest)), []
        while rest:
            oldest = min(at for at, _ in rest)
            first: dict[int, int] = {}
            for place, (at, _) in enumerate(rest):
                first.setdefault(at, place)
            place = pick.choice([p for at, p in first.items() if at - delay <= oldest])
            shuffled.append(rest.pop(place)[1])
        return shuffled
