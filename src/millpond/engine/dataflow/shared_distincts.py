"""DISTINCTs over windows of other lengths, as stubs over what is kept for all (`stubs.py`)."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from millpond.engine.dataflow.stubs import find_elements
from millpond.model.time import END
from millpond.operators.distinct_announcing import DistinctAnnouncing
from millpond.operators.protocol.stubs import Origin
from millpond.operators.shared_distinct import KeptDistinct, SharedDistinct
from millpond.synopses.order_keys import is_time


@lru_cache(maxsize=1 << 12)
def share_distinct(distinct: DistinctAnnouncing) -> SharedDistinct | None:
    """Make a DISTINCT over kept rows of a DISTINCT over a window.

    Returns:
        None: its input is no such window, a query has it for itself, or values that are equal may
        show different things. Of these a row is kept as it came first, and it may have come before
        the window of the query.
    """
    found = find_elements(distinct.input)
    if found is None or distinct.owner or found.length >= END:
        return None
    if not all(map(_is_shown_alike, found.node.schema.types)):
        return None
    return SharedDistinct(KeptDistinct(found.node), Origin(distinct), (found.length,))


def _is_shown_alike(type_: pa.DataType) -> bool:
    """Whether equal values of a type are one value: not so are zeros of doubles, and intervals."""
    alike = pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_string
    return is_time(type_) or any(is_kind(type_) for is_kind in alike)
