"""What a grouping releases because its rows come in clusters (STREAM, CIDR 4.1).

Where rows never leave, a group is kept for ever, because one more row may come. If rows are
CLUSTERED BY the keys, none should come once the cluster is over. Then the group leaves memory: its
last row of aggregates was given, and it is a function of rows that are kept in the segments.

INV-RELEASE-2: when a row comes whose group was released, the group's earlier rows are followed
first, from the segments. So no aggregate depends on what was released.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from millpond.model.constraints import CLUSTERED
from millpond.model.patterns import Pattern
from millpond.model.time import END
from millpond.operators.protocol.delta import Bools, Delta, Ints
from millpond.operators.protocol.node import Node, Scalars
from millpond.operators.protocol.releasing import Constraints, ReleaseFigures, ReleaseRule
from millpond.operators.structures.adherence import Clusters
from millpond.operators.structures.key_hashes import hash_keys
from millpond.operators.structures.release_rules import find_source, is_hashable, trace_to_source
from millpond.operators.structures.releases import is_used, may_read
from millpond.synopses.key_filter import KeyFilter


def find_grouped(rows: Node, by: Sequence[int | str]) -> tuple[str, frozenset[str]] | None:
    """Find the stream and the folded columns by which groups may be released; None if none are.

    Args:
        rows: What is grouped.
        by: The keys: columns by place, or SQL.
    """
    places = [key for key in by if isinstance(key, int)]
    source = find_source(rows) if places and len(places) == len(by) else None
    if source is None or source.feed is None or rows.pattern is not Pattern.MONOTONIC:
        return None
    if not all(is_hashable(rows.schema.field(place).type) for place in places):
        return None
    names = [trace_to_source(rows, place) for place in places]
    known = frozenset(name for name in names if name is not None)
    return (source.feed[1], known) if None not in names else None


def find_group_rules(
    rows: Node, by: Sequence[int | str], constraints: Constraints
) -> tuple[ReleaseRule, ...]:
    """Find the rules by which a grouping of some rows releases groups.

    Args:
        rows: What is grouped.
        by: The keys: columns by place, or SQL.
        constraints: The constraints of streams.
    """
    grouped = find_grouped(rows, by) if constraints else None
    if grouped is None:
        return ()
    stream, names = grouped
    return tuple(
        ReleaseRule(constraint, stream, 0)
        for constraint in constraints.get(stream, ())
        if constraint.kind == CLUSTERED and {n.lower() for n in constraint.columns} == names
    )


class GroupReleases:
    """The groups that were released, and the constraints by which more are.

    Attributes:
        gone: How many groups are released.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._filter = KeyFilter()
        self._watched: dict[ReleaseRule, Clusters] = {}
        self._count = self._read = self._recalled = 0
        self.gone = 0

    def set_rules(self, rules: Sequence[ReleaseRule]) -> None:
        """Release by these rules from now on. What was released is still recalled."""
        self._watched = {
            r: self._watched.get(r) or Clusters(0, r.constraint.rows, r.constraint.time)
            for r in rules
        }

    def find_gone(self, keys: Sequence[pa.Array]) -> Bools:
        """Find the keys of which groups may have been released."""
        found = np.zeros(len(keys[0]), bool)
        if len(self._filter):
            places = np.flatnonzero(_find_known(keys))
            taken = pa.array(places)
            found[places] = self._filter.find(hash_keys([c.take(taken) for c in keys]))
        return found

    def recall(self, scalars: Scalars) -> Iterator[Delta]:
        """Read back the rows that were grouped in earlier steps."""
        for delta in scalars.recall(self._node):
            self._read += len(delta)
            yield delta

    def note_recalled(self, groups: int) -> None:
        """Count groups that are there again: each broke the constraints."""
        for adherence in self._watched.values():
            adherence.violations += groups
        self._recalled += groups
        self.gone = max(0, self.gone - groups)

    def note(self, numbers: Ints, at: Ints, groups: int) -> None:
        """Note a step's rows, by the numbers of their groups."""
        for adherence in self._watched.values():
            adherence.note_rows(numbers, at, self._count, groups)
        self._count += len(numbers)

    def find_over(self, groups: int, upto: int) -> Bools:
        """Find the groups, by number, of which no row should come."""
        over = np.zeros(groups, bool)
        if self._read <= may_read(self._count):
            for rule, adherence in self._watched.items():
                if is_used(rule, adherence.violations):
                    over |= adherence.find_over_keys(np.arange(groups), upto)
        return over

    def put(self, keys: Sequence[pa.Array]) -> Bools:
        """Release groups; return which: not those with a NULL, or for which there is no room."""
        known = _find_known(keys)
        places = np.flatnonzero(known)[: self._filter.room]
        taken = pa.array(places)
        hashes = hash_keys([c.take(taken) for c in keys])
        self._filter.put(hashes, np.full(len(places), END, np.int64))
        self.gone += len(places)
        done = np.zeros(len(known), bool)
        done[places] = True
        return done

    def renumber(self, moved: Ints, most: int) -> None:
        """Take over new numbers of the groups."""
        for adherence in self._watched.values():
            adherence.renumber(moved, most)

    def list_figures(self, held: int) -> list[ReleaseFigures]:
        """List what each rule did."""
        return [
            ReleaseFigures(r, a.observed, a.violations, held, self.gone, self._recalled)
            for r, a in self._watched.items()
        ]


def _find_known(keys: Sequence[pa.Array]) -> Bools:
    """Find the rows without a NULL."""
    known = np.ones(len(keys[0]), bool)
    for column in keys:
        if column.null_count:
            known &= column.is_valid().to_numpy(zero_copy_only=False)
    return known
