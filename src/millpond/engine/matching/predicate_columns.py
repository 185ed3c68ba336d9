"""Predicates of many queries as columns: what grouped filters serve of them, in region codes.

Thousands of predicates are compared, merged and chosen from by array operations, never one by one.

    query  = its parts [part_start[q], part_start[q + 1]); a clause is a run of parts of which all
             but the last have the flag MORE; every clause has a part that holds
    part   = an axis, flags, and cuts [cut_start[p], cut_start[p + 1])
    axis   = an attribute and the distinct cuts on it, ascending
    cut    = the code of the region that begins there: 1 + its place among the axis's cuts

Codes run from 0 (below all cuts) to the number of cuts; one more is NULL's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.predicates.factors import unpack_bare
from millpond.engine.values.number_codes import FloatCoder, IntegerCoder
from millpond.engine.values.region_codes import Coder
from millpond.engine.values.text_codes import TextCoder
from millpond.engine.values.value_sets import Domain, domain_of
from millpond.model.schema import Schema

#: The values below the first cut belong.
BELOW = 1
#: NULL belongs.
NULLS = 2
#: The next part is another alternative of the same clause.
MORE = 4

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CutAxis:
    """An attribute's distinct cuts, ascending.

    Attributes:
        attribute: The attribute.
        domain: The axis of its type.
        cuts: int64[cuts]; of texts, uint8 of all cuts, one after the other.
        offsets: Of texts, int32[cuts + 1]: where each cut begins in `cuts`, and the last ends.
    """

    attribute: str
    domain: Domain
    cuts: npt.NDArray[Any]
    offsets: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.cuts) if self.offsets is None else len(self.offsets) - 1

    def coder(self) -> Coder:
        """Make the coder of the attribute's values."""
        if self.offsets is not None:
            return TextCoder(self.cuts, self.offsets)
        coder = FloatCoder if self.domain is Domain.FLOAT else IntegerCoder
        return coder(self.cuts)

    def cut(self, code: int) -> int | bytes:
        """Return the cut at which the region of a code begins."""
        if self.offsets is None:
            return int(self.cuts[code - 1])
        return bytes(self.cuts[self.offsets[code - 1] : self.offsets[code]])

    def keep(self, kept: npt.NDArray[np.bool_]) -> CutAxis:
        """Return the axis with some of its cuts."""
        if self.offsets is None:
            return CutAxis(self.attribute, self.domain, self.cuts[kept])
        lengths = np.diff(self.offsets)[kept]
        places = spread(self.offsets[:-1][kept].astype(np.int64), lengths)
        return CutAxis(self.attribute, self.domain, self.cuts[places], _offsets(lengths))

    def texts(self) -> pa.Array:
        """Return the cuts of texts as an Arrow array of bytes."""
        assert self.offsets is not None
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.cuts)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)


def _offsets(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


@dataclass(frozen=True, eq=False)
class PredicateColumns:
    """The predicates of some queries; see the module.

    Attributes:
        axes: The attributes that any of them looks at.
        slots: int64[queries]: ascending.
        deferred: bool[queries]: whether a query has other factors too.
        part_start: int64[queries + 1].
        part_axis: int32[parts].
        part_flags: uint8[parts].
        cut_start: int64[parts + 1].
        cuts: int32[cuts of all parts]: region codes, ascending within a part.
    """

    axes: tuple[CutAxis, ...]
    slots: Numbers
    deferred: npt.NDArray[np.bool_]
    part_start: Numbers
    part_axis: npt.NDArray[np.int32]
    part_flags: npt.NDArray[np.uint8]
    cut_start: Numbers
    cuts: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.slots)

    def select(self, members: Numbers) -> PredicateColumns:
        """Return the predicates of some queries, given by their places, in that order.

        Cuts that none of them has are left out of the axes.
        """
        counts = np.diff(self.part_start)[members]
        parts = spread(self.part_start[members], counts)
        cut_counts = np.diff(self.cut_start)[parts]
        cuts = self.cuts[spread(self.cut_start[parts], cut_counts)]
        of_axis = np.repeat(self.part_axis[parts], cut_counts)
        axes = []
        for number, axis in enumerate(self.axes):
            mine = of_axis == number
            used = np.zeros(len(axis) + 1, np.bool_)
            used[cuts[mine]] = True
            cuts[mine] = np.cumsum(used, dtype=np.int32)[cuts[mine]]
            axes.append(axis.keep(used[1:]))
        return PredicateColumns(
            tuple(axes),
            self.slots[members],
            self.deferred[members],
            _starts(counts),
            self.part_axis[parts],
            self.part_flags[parts],
            _starts(cut_counts),
            cuts,
        )

    def bare(self, member: int, others: tuple[str, ...]) -> tuple[Any, ...]:
        """Return a query's factors as the bare tuples that `Factors.pack` encodes."""
        clauses: list[tuple[tuple[Any, ...], ...]] = []
        clause: list[tuple[Any, ...]] = []
        for part in range(int(self.part_start[member]), int(self.part_start[member + 1])):
            axis, flags = self.axes[self.part_axis[part]], int(self.part_flags[part])
            codes = self.cuts[self.cut_start[part] : self.cut_start[part + 1]].tolist()
            cuts = tuple([axis.cut(code) for code in codes])
            clause.append((axis.attribute, cuts, bool(flags & BELOW), bool(flags & NULLS)))
            if not flags & MORE:
                clauses.append(tuple(clause))
                clause = []
        sets = tuple([c[0] for c in clauses if len(c) == 1])
        return sets, tuple([c for c in clauses if len(c) > 1]), others, False


def spread(starts: Numbers, counts: npt.NDArray[Any]) -> Numbers:
    """List the numbers from each start on, as many as its count says.

    >>> spread(np.array([10, 50]), np.array([2, 3])).tolist()
    [10, 11, 50, 51, 52]
    """
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def _starts(counts: npt.NDArray[Any]) -> Numbers:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def gather(queries: Iterable[tuple[int, bytes]], schema: Schema) -> PredicateColumns:
    """Lay out the predicates of queries given as (slot, packed factors), in any order."""
    index: dict[str, int] = {}
    values: list[list[Any]] = []
    slots, deferred, part_counts = [], [], []
    part_axis: list[int] = []
    part_flags: list[int] = []
    cut_counts: list[int] = []
    for slot, packed in sorted(queries):
        sets, clauses, others, _ = unpack_bare(packed)
        before = len(part_axis)
        for clause in (*[(part,) for part in sets], *clauses):
            for attribute, cuts, below, nulls in clause:
                number = index.get(attribute)
                if number is None:
                    number = index[attribute] = len(values)
                    values.append([])
                values[number].extend(cuts)
                part_axis.append(number)
                part_flags.append(below * BELOW + nulls * NULLS + MORE)
                cut_counts.append(len(cuts))
            part_flags[-1] -= MORE
        slots.append(slot)
        deferred.append(bool(others))
        part_counts.append(len(part_axis) - before)
    axes: list[CutAxis] = []
    codes: list[npt.NDArray[np.int32]] = []
    for attribute, of_axis in zip(index, values, strict=True):
        field = schema.find(attribute)
        domain = domain_of(field.type) if field else None
        assert domain is not None, attribute
        axis, places = _lay(attribute, domain, [_as_array(domain, of_axis)])
        axes.append(axis)
        codes.append(places[0])
    starts = _starts(np.array(cut_counts, np.int64))
    cuts = np.empty(starts[-1], np.int32)
    of_part = np.repeat(np.array(part_axis, np.int64), cut_counts)
    for number, place in enumerate(codes):
        cuts[of_part == number] = place
    return PredicateColumns(
        tuple(axes),
        np.array(slots, np.int64),
        np.array(deferred, np.bool_),
        _starts(np.array(part_counts, np.int64)),
        np.array(part_axis, np.int32),
        np.array(part_flags, np.uint8),
        starts,
        cuts,
    )


def merge(columns: Sequence[PredicateColumns]) -> PredicateColumns:
    """Lay several predicates' columns together, slots ascending."""
    attributes = {axis.attribute: axis.domain for c in columns for axis in c.axes}
    number = {attribute: i for i, attribute in enumerate(attributes)}
    cuts = [c.cuts.copy() for c in columns]
    axes = []
    for attribute, domain in attributes.items():
        having = [
            (i, k, axis)
            for i, c in enumerate(columns)
            for k, axis in enumerate(c.axes)
            if axis.attribute == attribute
        ]
        parts = [axis.cuts if axis.offsets is None else axis.texts() for _, _, axis in having]
        union, places = _lay(attribute, domain, parts)
        axes.append(union)
        for (i, k, _), place in zip(having, places, strict=True):
            mine = np.repeat(columns[i].part_axis == k, np.diff(columns[i].cut_start))
            cuts[i][mine] = place[columns[i].cuts[mine] - 1]
    numbers = [np.array([number[a.attribute] for a in c.axes], np.int32) for c in columns]
    whole = PredicateColumns(
        tuple(axes),
        np.concatenate([c.slots for c in columns]),
        np.concatenate([c.deferred for c in columns]),
        _starts(np.concatenate([np.diff(c.part_start) for c in columns])),
        np.concatenate([n[c.part_axis] for n, c in zip(numbers, columns, strict=True)]),
        np.concatenate([c.part_flags for c in columns]),
        _starts(np.concatenate([np.diff(c.cut_start) for c in columns])),
        np.concatenate(cuts),
    )
    return whole.select(np.argsort(whole.slots, kind="stable"))


def _as_array(domain: Domain, cuts: list[Any]) -> Any:
    if domain is Domain.TEXT:
        return pa.array(cuts, pa.binary())
    return np.array(cuts, np.int64)


def _lay(
    attribute: str, domain: Domain, parts: Sequence[Any]
) -> tuple[CutAxis, list[npt.NDArray[np.int32]]]:
    """Unite cuts of one attribute; return also each cut's code, part by part."""
    if domain is not Domain.TEXT:
        union = np.unique(np.concatenate(parts))
        codes = [(np.searchsorted(union, p) + 1).astype(np.int32) for p in parts]
        return CutAxis(attribute, domain, union), codes
    texts = pc.unique(pa.concat_arrays(parts))
    texts = texts.take(pc.array_sort_indices(texts))
    codes = [(pc.index_in(p, texts).to_numpy() + 1).astype(np.int32) for p in parts]
    _, offsets, data = texts.buffers()
    return CutAxis(
        attribute,
        domain,
        np.frombuffer(data if data is not None and data.size else b"", np.uint8).copy(),
        np.frombuffer(offsets, np.int32, len(texts) + 1).copy(),
    ), codes
