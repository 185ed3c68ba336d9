"""Constraints of streams: what their elements usually satisfy, and how closely (STREAM, CIDR 4.1).

A constraint is trusted for cost and never for meaning. It says which rows nobody should need any
more, so that operators release their memory. An element that breaks a constraint is no reject: what
it needs is read back from the segments, and answers are those without constraints.

How closely a stream adheres is k, a number of elements or a length of time:

- `UNIQUE (c)`: at most one element has a value of c. A join with the stream on c is many-one.
- `CLUSTERED BY (c) WITHIN k`: between two elements with one value of c lie at most k elements with
  other values; or, as a length of time, the two lie at most k apart.
- `ORDERED BY (c) WITHIN k`: behind the k elements that follow an element, or later than k after it,
  no element has a smaller value of c.
- `FOREIGN KEY (c) REFERENCES s WITHIN k`: the element of s that an element refers to is among the
  elements before it and the k elements of s after it; or it comes at most k later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

UNIQUE, CLUSTERED, ORDERED, FOREIGN_KEY = "unique", "clustered", "ordered", "foreign key"
KINDS = (UNIQUE, CLUSTERED, ORDERED, FOREIGN_KEY)


@dataclass(frozen=True)
class Constraint:
    """A constraint of one stream.

    Attributes:
        name: Its name among the constraints of its stream.
        kind: One of `KINDS`.
        columns: The columns it is about.
        references: The stream that a foreign key refers to, by the columns that are unique there.
        rows: k as a number of elements; None where it is a length of time, and for `UNIQUE`.
        time: k as a length of time, in microseconds; None where it is a number.
        observed: Whether nobody declared it, but elements satisfied it so far; else None.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    references: str | None = None
    rows: int | None = None
    time: int | None = None
    observed: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Write the constraint as JSON, without what it does not say."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Constraint:
        """Read what `to_json` wrote."""
        return Constraint(**{**body, "columns": tuple(body["columns"])})
