"""By which columns of streams an operator can be divided into shards that add up to the whole.

A shard of a dataflow gets the elements whose key has a hash of its own. Its operators do what the
whole dataflow's do if all rows that have to meet in one of them come from elements of one shard:
rows of one group, rows with equal join keys, equal rows of a set operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: By the place of a column: a column of each stream below. If elements are divided by these, all
#: rows that agree in the place's column come from one shard. None: the rows are of relations alone,
#: and every shard has all of them.
Sharding = Mapping[int, Mapping[str, str]] | None


def shard_equals(
    left: Sharding, right: Sharding, pairs: Sequence[tuple[int, int]]
) -> dict[int, Mapping[str, str]]:
    """Find the places of the left whose values meet equal ones of the right in one shard.

    Args:
        left, right: By what the inputs can be divided.
        pairs: The places that have to be equal.

    >>> shard_equals({0: {"s": "a"}, 1: {"s": "b"}}, {4: {"t": "c"}}, [(0, 4), (1, 5)])
    {0: {'s': 'a', 't': 'c'}}
    >>> shard_equals({0: {"s": "a"}}, {0: {"s": "b"}}, [(0, 0)])
    {}
    """
    found: dict[int, Mapping[str, str]] = {}
    for here, there in pairs:
        one, other = (left or {}).get(here), (right or {}).get(there)
        if one is None or other is None:
            continue
        if all(other.get(stream, column) == column for stream, column in one.items()):
            found[here] = {**one, **other}
    return found
