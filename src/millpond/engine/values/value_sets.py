"""Which values of one attribute satisfy a boolean factor: a union of intervals, and NULL or not.

Every attribute's values are put on one discrete, ordered axis, so that one structure serves all
types. Integers, timestamps (µs) and dates (days) are themselves; booleans are 0 and 1; decimals
are their unscaled integers. Doubles are integers in the same order, with NaN above infinity and
equal to itself, as in DuckDB. Strings are their UTF-8 bytes, whose order is DuckDB's binary
collation. On such an axis every value has an immediate successor (for bytes: one more NUL), so
`v <= c` is `v < succ(c)` and every interval is half open. So a set is just the ascending **cuts**
at which membership changes. CACQ (section 3.2.6) keeps four structures for >, <, = and <>; cuts
need one, and make union, intersection and complement a merge.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from millpond.model.kept_property import kept_property

Cut = int | bytes

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


def float_key(value: float) -> int:
    """Return the place of a double on its axis; both zeros have one place, and all NaNs one.

    >>> float_key(-0.0) == float_key(0.0) == 0
    True
    >>> float_key(math.inf) + 1 == float_key(math.nan)
    True
    """
    if value != value:
        return _INFINITY + 1
    if value == 0.0:
        return 0
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & INT64_MAX)


_INFINITY: int = struct.unpack("<q", struct.pack("<d", math.inf))[0]


class Domain(Enum):
    """The axis of a column's type."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT = "float"
    BOOL = "bool"
    TEXT = "text"

    @kept_property
    def least(self) -> Cut:
        """The least value."""
        return _LEAST[self]

    @kept_property
    def greatest(self) -> int | None:
        """The greatest value; None where there is none (strings)."""
        return _GREATEST[self]

    def successor(self, value: Cut) -> Cut:
        """Return the least value greater than `value`."""
        return value + b"\0" if isinstance(value, bytes) else value + 1


_LEAST: dict[Domain, Cut] = {
    Domain.INT8: -(2**7),
    Domain.INT16: -(2**15),
    Domain.INT32: -(2**31),
    Domain.INT64: INT64_MIN,
    Domain.FLOAT: float_key(-math.inf),
    Domain.BOOL: 0,
    Domain.TEXT: b"",
}
_GREATEST: dict[Domain, int | None] = {
    Domain.INT8: 2**7 - 1,
    Domain.INT16: 2**15 - 1,
    Domain.INT32: 2**31 - 1,
    Domain.INT64: INT64_MAX,
    Domain.FLOAT: float_key(math.nan),
    Domain.BOOL: 1,
    Domain.TEXT: None,
}


def domain_of(type_name: str) -> Domain | None:
    """Find the axis of a column's canonical type; None if no grouped filter serves the type.

    >>> domain_of("TIMESTAMP"), domain_of("DECIMAL(10,2)"), domain_of("DECIMAL(30,2)")
    (<Domain.INT64: 'int64'>, <Domain.INT64: 'int64'>, None)
    """
    if type_name.startswith("DECIMAL("):
        precision = int(type_name[8:].split(",")[0])
        return Domain.INT64 if precision <= 18 else None
    return _DOMAINS.get(type_name)


_DOMAINS = {
    "BOOLEAN": Domain.BOOL,
    "TINYINT": Domain.INT8,
    "SMALLINT": Domain.INT16,
    "INTEGER": Domain.INT32,
    "BIGINT": Domain.INT64,
    "FLOAT": Domain.FLOAT,
    "DOUBLE": Domain.FLOAT,
    "VARCHAR": Domain.TEXT,
    "JSON": Domain.TEXT,
    "TIMESTAMP": Domain.INT64,
    "TIMESTAMPTZ": Domain.INT64,
    "DATE": Domain.INT32,
}


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A subset of one attribute's domain, and whether NULL belongs to it.

    Attributes:
        cuts: Strictly ascending; membership flips at each (the cut itself is already flipped).
        below: Whether the values below the first cut belong.
        nulls: Whether NULL belongs.

    Cuts at or below the domain's least value, or above its greatest, do not occur: equal sets are
    equal objects.
    """

    cuts: tuple[Cut, ...]
    below: bool
    nulls: bool

    def __repr__(self) -> str:
        # As a dataclass writes it, at a quarter of the time: the keys of slots are made of it.
        return f"ValueSet(cuts={self.cuts!r}, below={self.below!r}, nulls={self.nulls!r})"

    @property
    def is_empty(self) -> bool:
        return not self.cuts and not self.below and not self.nulls

    @property
    def is_all(self) -> bool:
        return not self.cuts and self.below and self.nulls

    def __contains__(self, value: Cut | None) -> bool:
        if value is None:
            return self.nulls
        return self.below ^ (sum(c <= value for c in self.cuts) % 2 == 1)  # type: ignore[operator]

    def union(self, other: ValueSet) -> ValueSet:
        return _merge(self, other, False)

    def intersection(self, other: ValueSet) -> ValueSet:
        return _merge(self, other, True)

    def complement(self) -> ValueSet:
        """Return all other values; NULL belongs if it did not belong before."""
        return ValueSet(self.cuts, not self.below, not self.nulls)


EVERYTHING = ValueSet((), True, True)
NOTHING = ValueSet((), False, False)
NOT_NULL = ValueSet((), True, False)
ONLY_NULL = ValueSet((), False, True)


def interval(domain: Domain, low: Cut | None, high: Cut | None) -> ValueSet:
    """Return the values v with low <= v < high; None stands for no bound.

    Bounds may lie outside the domain.

    >>> interval(Domain.INT8, 5, 1000)
    ValueSet(cuts=(5,), below=False, nulls=False)
    """
    cuts: list[Cut] = []
    below = True
    if low is not None and low > domain.least:  # type: ignore[operator]
        if _is_beyond(domain, low):
            return NOTHING
        cuts.append(low)
        below = False
    if high is not None:
        if high <= (cuts[0] if cuts else domain.least):  # type: ignore[operator]
            return NOTHING
        if not _is_beyond(domain, high):
            cuts.append(high)
    return ValueSet(tuple(cuts), below, False)


def points(domain: Domain, values: Sequence[Cut]) -> ValueSet:
    """Return the set of these values; values outside the domain are left out."""
    cuts: list[Cut] = []
    below = False
    for value in values if len(values) == 1 else sorted(set(values)):
        if value < domain.least or _is_beyond(domain, value):  # type: ignore[operator]
            continue
        after = domain.successor(value)
        if cuts and cuts[-1] == value:
            cuts.pop()
        elif value == domain.least:
            below = True
        else:
            cuts.append(value)
        if not _is_beyond(domain, after):
            cuts.append(after)
    return ValueSet(tuple(cuts), below, False)


def _is_beyond(domain: Domain, value: Cut) -> bool:
    greatest = domain.greatest
    return greatest is not None and value > greatest  # type: ignore[operator]


def _merge(one: ValueSet, two: ValueSet, both: bool) -> ValueSet:
    """Compute the union, or with `both` the intersection, by a sweep over the cuts of the two."""
    neutral = EVERYTHING if both else NOTHING
    if one == neutral:
        return two
    if two == neutral:
        return one
    in_one, in_two = one.below, two.below
    below = state = (in_one and in_two) if both else (in_one or in_two)
    nulls = (one.nulls and two.nulls) if both else (one.nulls or two.nulls)
    if not one.cuts and not two.cuts:
        return ValueSet((), below, nulls)
    first, second = set(one.cuts), set(two.cuts)
    cuts = []
    for cut in sorted(first | second):
        in_one ^= cut in first
        in_two ^= cut in second
        now = (in_one and in_two) if both else (in_one or in_two)
        if now != state:
            cuts.append(cut)
            state = now
    return ValueSet(tuple(cuts), below, nulls)
